"""`staging-tf1 launch`: runs the tasks of a TensorFlow cluster as processes of this machine."""

from __future__ import annotations

import argparse

from staging_tf1.cli.arguments import OneLineParser, complain, seconds, split_program, whole_number
from staging_tf1.launch.supervisor import supervise
from staging_tf1.launch.tasks import HOST, ProgramError, find_program, free_ports, make_tasks

_PROG = "staging-tf1 launch"
_EPILOG = """
Each task finds its cluster and its place in it in TF_CONFIG. For programs that have flags for that, these words in the
program's arguments are replaced: {ps_hosts} and {worker_hosts} (host:port,host:port; the chief is the first worker),
{job_name} (ps or worker), {task_index}, and {task} (chief-0, worker-0, ps-0; for names of files). Each line that a task
prints begins with its name, as in [worker 0].

The exit code is 0 if no task fails, else that of the first one that fails and may not be restarted: 128 + N if signal N
ended it. Ctrl-C ends all tasks, the servers last, so that the chief can save a checkpoint. A second Ctrl-C kills them.

examples:
  staging-tf1 launch --workers 3 --ps 1 -- train.py --steps 1000
  staging-tf1 launch --restarts 3 -- staging-tf1 run old.py --job_name={job_name} --task_index={task_index}
  staging-tf1 launch --sync -- -m my_models.train --log {task}.log
"""
_TAKE_A_VALUE = ("--workers", "--ps", "--restarts", "--grace")
# The bounds only protect the machine from typing errors.
_MOST_TASKS, _MOST_RESTARTS, _MOST_SECS = 1000, 10**6, 86_400


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of `launch`, for the options before the program."""
    parser = OneLineParser(
        prog=_PROG,
        usage=f"{_PROG} [options] -- script.py args...\n       {_PROG} [options] -- -m module args...\n"
        f"       {_PROG} [options] -- program args...",
        description="Runs a TensorFlow cluster on this machine, one process per task, for tests, teaching and machines "
        "with many cores. Each line of their output starts with the name of the task.",
        epilog=_EPILOG,
    )
    add = parser.add_argument
    tasks = whole_number(1, _MOST_TASKS)
    add("--workers", type=tasks, default=2, metavar="N", help="workers, with the chief (default: %(default)s)")
    add("--ps", type=tasks, default=1, metavar="N", help="parameter servers (default: %(default)s)")
    add(
        "--restarts",
        type=whole_number(0, _MOST_RESTARTS),
        default=0,
        metavar="N",
        help="times to restart each task that fails (default: %(default)s)",
    )
    add("--sync", action="store_true", help="set STAGING_TF1_SYNC=1 for the tasks")
    add(
        "--grace",
        type=seconds(_MOST_SECS),
        default=5.0,
        metavar="SECS",
        help="how long a parameter server may run on after the last worker, and how long a task may take to exit after "
        "Ctrl-C or SIGTERM, for example to save a checkpoint (default: %(default)g)",
    )
    return parser


def main(argv: list[str]) -> int:
    """Run the tasks and return the exit code for their outcome. Return 2 if there is no such program."""
    parser = make_parser()
    ours, named = split_program(argv, _TAKE_A_VALUE)
    options = parser.parse_args(ours)
    try:
        program = find_program(named)
    except ProgramError as error:
        parser.error(str(error))
    try:
        ports = free_ports(HOST, options.workers + options.ps)
    except OSError as error:
        complain(_PROG, f"no free ports for {options.workers + options.ps} tasks: {error.strerror}")
        return 1
    tasks = make_tasks(program, options.workers, options.ps, ports, options.sync)
    return supervise(_PROG, tasks, restarts=options.restarts, grace_secs=options.grace)
