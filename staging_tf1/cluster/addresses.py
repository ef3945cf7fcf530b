"""`Addresses`: whether the other tasks have the same addresses for the tasks of the cluster as this one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from staging_tf1.cluster.layout import Layout, Task
from staging_tf1.errors import ClusterError


class Addresses:
    """Compares the addresses of this task with those that the parameter servers and the chief have told in the ledger.

    With other ones, the servers would get the tensors of one worker from another.

    Attributes:
      jobs: the addresses, as JSON can hold them.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout, self.jobs = layout, layout.to_json()
        # The process of each parameter server that has told its addresses.
        self._told: dict[Task, str] = {}
        # How they differ from those of this task.
        self._different: dict[Task, str] = {}

    def wanted(self) -> list[str]:
        """Return the names of the entries that this task has not compared yet. They are long in a large cluster."""
        # Its own is always wanted: the ledger may have been lost.
        own = self._layout.task
        return [f"layout/{server}" for server in self._layout.servers if server == own or server not in self._told]

    def have_told(self, server: Task, process: str) -> bool:
        """Whether that process of a parameter server has told its addresses."""
        return self._told.get(server) == process

    def note(self, entries: Mapping[str, Any]) -> None:
        """Compare what is among these entries of the ledger."""
        for server in self._layout.servers:
            entry, sign = entries.get(f"layout/{server}"), entries.get(f"task/{server}")
            if entry is not None:
                self._told[server] = entry["process"]
                self._different.pop(server, None)
                if entry["jobs"] != self.jobs:
                    self._different[server] = self._differs(str(server), entry, entry["jobs"])
            elif server == self._layout.task or sign is None or not self.have_told(server, sign["process"]):
                self._told.pop(server, None)

    def check(self) -> None:
        """Raise ClusterError if a parameter server has told others."""
        for message in list(self._different.values()):
            raise ClusterError(message)

    def check_chief(self, run: Mapping[str, Any]) -> None:
        """Raise ClusterError if the chief has told others of its `run`."""
        if run["cluster"] != self.jobs:
            raise ClusterError(self._differs("the chief", run, run["cluster"]))

    def _differs(self, other: str, process: Mapping[str, Any], jobs: Mapping[str, Any]) -> str:
        return (
            f"{self._layout.task} and {other} (process {process['pid']} on {process['host']}) describe the cluster "
            f"differently: {self._layout.differences(jobs)}. Give all processes the same addresses, in the same order."
        )
