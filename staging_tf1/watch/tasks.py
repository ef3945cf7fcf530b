"""What this task knows of the other tasks of its cluster."""

from __future__ import annotations

from staging_tf1.cluster.cluster import Cluster
from staging_tf1.cluster.layout import Task
from staging_tf1.cluster.reach import why_unreachable
from staging_tf1.errors import ClusterError
from staging_tf1.watch.views import TaskView


def tasks_of(cluster: Cluster) -> tuple[TaskView, ...]:
    """Ask the parameter servers, and return the views of all other tasks."""
    layout = cluster.layout
    others = [task for task in (*layout.servers, *layout.workers) if task != layout.task]
    return tuple(_view(cluster, task) for task in others)


def _view(cluster: Cluster, task: Task) -> TaskView:
    member, is_ps = cluster.member, task.job == "ps"
    return TaskView(
        name=str(task),
        address=cluster.layout.address(task),
        silent_secs=member.signs.silent_secs(task),
        unreachable=_unreachable(cluster, task) if is_ps else "",
        finished=member.has_finished(task),
        is_ps=is_ps,
    )


def _unreachable(cluster: Cluster, task: Task) -> str:
    try:
        return why_unreachable(cluster.layout, task) or ""
    except ClusterError as error:
        return str(error)
