"""Training on a cluster of processes on 127.0.0.1: what it costs, how it scales, and how fast it recovers.

    python benchmarks/cluster.py [step latency kills pause load crowd] [--rounds 15] [--json out.json]

- step: one worker and one parameter server. A step on `staged(source, cluster=cluster)` should take no longer than the
  same step by hand, fed with a `feed_dict` or by tf.data; and with a step of 5 ms, at most 5 % longer than with a
  position that is not on the parameter server.
- latency: each batch waits 20 ms. Two workers should train at least 1.9 times as fast as one, and four 3.6 times.
- kills: seconds from the kill -9 of a worker, and of the parameter server, to the next step of everybody, if it is
  restarted at once. At most 5 and 10. TensorFlow is loaded before.
- pause: for how long the other workers stand still for a checkpoint, and how long the chief takes to save it, with ref
  and resource variables of 1, 100 and 1,000 MB, and 2 to 4 workers.
- load: what the position and the heartbeats of a worker cost the first parameter server; from that, its load with 10,
  100 and 1,000 workers.
- crowd: 10 to 1,000 workers without steps start and stay, stand still in pauses, also after the machines of ten have
  vanished, are dealt batches, and end. The first parameter server should need less than half a core to keep them. A
  pause should take less than half a second, and a round of the dealer at most 10 ms.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from multiprocessing import forkserver
from typing import Any

from common import finish, flags, ratio, turns

from staging_tf1.cluster.signs import beat_secs
from staging_tf1.launch.tasks import free_ports

HOST = "127.0.0.1"
CONTEXT: Any = multiprocessing.get_context("forkserver")
LAYERS = {0: "no further layer", 3: "three more layers"}
WORKERS = (1, 2, 4)
TOWERS = (10, 100, 1000)
STEPS_PER_SEC = 10
CROWDS, CROWD_PROCESSES, CROWD_SECS, VANISHING = (10, 100, 300, 1000), 4, 30.0, 10
SIZES, PAUSED_WORKERS = (1, 100, 1000), (2, 3, 4)
PATIENCE_SECS = 600.0
_TICKS = os.sysconf("SC_CLK_TCK")


class Tasks:
    """The processes of one cluster. `close` kills those that are left.

    Attributes:
      ps: the pipe to the parameter server.
    """

    ps: Any

    def __init__(self, workers: int, folder: str) -> None:
        addresses = [f"{HOST}:{port}" for port in free_ports(HOST, workers + 1)]
        self.jobs = {"ps": addresses[:1], "worker": addresses[1:]}
        self._folder = folder
        self._processes: dict[str, Any] = {}

    def start(self, task: str, program: str, *arguments: Any) -> Any:
        """Start a process, and return the pipe to it."""
        ours, theirs = CONTEXT.Pipe()
        log = os.path.join(self._folder, f"{task}.log")
        process = CONTEXT.Process(target=run, args=(program, theirs, log, self.jobs, *arguments), daemon=True)
        process.start()
        theirs.close()
        self._processes[task] = process
        return ours

    def start_ps(self) -> int:
        """Start the parameter server, and return its process id."""
        self.ps = self.start("ps", "serve", 0)
        return int(received(self.ps))

    def kill(self, task: str) -> None:
        self._processes[task].kill()
        self._processes[task].join()

    def show_ended(self) -> None:
        """Print the last words of the processes that have ended."""
        for task, process in self._processes.items():
            process.join(1.0)
            if process.exitcode is not None:
                with open(os.path.join(self._folder, f"{task}.log"), errors="replace") as log:
                    print(f"{task} has ended with {process.exitcode}:\n{log.read()[-4000:]}", file=sys.stderr)

    def close(self) -> None:
        for task, process in self._processes.items():
            if process.is_alive():
                self.kill(task)


@contextmanager
def tasks(workers: int) -> Iterator[Tasks]:
    """The processes of a cluster; none is started."""
    with tempfile.TemporaryDirectory() as folder:
        made = Tasks(workers, folder)
        try:
            yield made
        except EOFError:
            made.show_ended()
            raise
        finally:
            made.close()


def run(program: str, *arguments: Any) -> None:
    """The target of each process. Here, so that `cluster_tasks` is not imported to start one."""
    import cluster_tasks

    cluster_tasks.main(program, *arguments)


def received(pipe: Any) -> Any:
    """What a task sends. Fails if it ends, or sends nothing."""
    if not pipe.poll(PATIENCE_SECS):
        raise TimeoutError(f"a task has sent nothing for {PATIENCE_SECS:.0f} s")
    return pipe.recv()


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Print and return the figures of each part."""
    words = flags(__doc__, rounds=15)
    words.add_argument("parts", nargs="*", metavar="PART", help=f"some of {', '.join(PARTS)} (default: all)")
    options = words.parse_args(argv)
    if unknown := set(options.parts) - set(PARTS):
        words.error(f"unknown: {', '.join(sorted(unknown))}; expected some of {', '.join(PARTS)}")
    start_fork_server()
    result = {}
    for part in options.parts or PARTS:
        print(part)
        result[part] = PARTS[part](options)
    finish(options, result)
    return result


def start_fork_server() -> None:
    """Start it with this process's path, so that it finds the module to preload."""
    CONTEXT.set_forkserver_preload(["cluster_tasks"])
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([os.path.dirname(os.path.abspath(__file__)), *filter(None, sys.path)])
    try:
        forkserver.ensure_running()
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def step(options: Any) -> dict[str, Any]:
    """Microseconds per step with each input, for a short and a longer step."""
    found = {}
    for layers, what in list(LAYERS.items())[: 1 if options.quick else None]:
        with tasks(1) as cluster:
            cluster.start_ps()
            records = 128 * 4 if options.quick else 128 * 100
            found[what] = received(cluster.start("worker0", "compare", layers, records, turns(options, 0.2)))
        micros = {name: statistics.median(each) for name, each in found[what].items()}
        print(f"  {micros['staged'] / 1e3:.1f} ms per step of staged() ({what})")
        for over, under in (
            ("feed_dict", "staged"),
            ("tf.data", "staged"),
            ("staged", "position on the worker"),
        ):
            print(f"    {over} takes {shown(*ratio(found[what], over, under))} of the time of {under}")
    return found


def latency(options: Any) -> dict[int, list[float]]:
    """Steps per second of all workers together, where each batch waits."""
    numbers = WORKERS[: 2 if options.quick else None]
    rate: dict[int, list[float]] = {number: [] for number in numbers}
    with tasks(numbers[-1]) as cluster:
        cluster.start_ps()
        pipes = [cluster.start(f"worker{index}", "wait_and_train", index) for index in range(numbers[-1])]
        for pipe in pipes:
            received(pipe)
        for _ in range(1 if options.quick else options.rounds):
            for number in numbers:
                for pipe in pipes[:number]:
                    pipe.send(0.3 if options.quick else 3.0)
                rate[number].append(sum(map(received, pipes[:number])))
        for pipe in pipes:
            pipe.send(0)
    for number in numbers[1:]:
        times = [more / single for more, single in zip(rate[number], rate[1])]
        print(f"  {number} workers train {shown_of(times)} times as fast as one")
    return rate


def kills(options: Any) -> dict[str, list[float]]:
    """Seconds from a kill -9 to the next step of everybody."""
    begun = CONTEXT.RawArray("d", 2)
    secs: dict[str, list[float]] = {"worker1": [], "worker0": [], "ps": []}
    with tasks(2) as cluster, tempfile.TemporaryDirectory() as folder:

        def start(task: str) -> None:
            if task == "ps":
                cluster.start_ps()
            else:
                cluster.start(task, "train_until_killed", int(task[-1]), folder, begun)

        def secs_until_all_step() -> float:
            now = time.monotonic()
            wait_until(lambda: min(begun) > now)
            return time.monotonic() - now

        for task in ("ps", "worker0", "worker1"):
            start(task)
        secs_until_all_step()
        for _ in range(1 if options.quick else options.rounds):
            for task, found in secs.items():
                secs_until_all_step()
                began = time.monotonic()
                cluster.kill(task)
                start(task)
                secs_until_all_step()
                found.append(time.monotonic() - began)
    names = {"worker1": "a worker", "worker0": "the chief", "ps": "the parameter server"}
    for task, found in secs.items():
        print(f"  {shown_of(found)} s from the kill of {names[task]} to the next step of everybody")
    return secs


def pause(options: Any) -> dict[str, Any]:
    """Milliseconds that workers stand still for a checkpoint, and seconds until the chief has written it."""
    found: dict[str, Any] = {}
    for megabytes in SIZES[: 1 if options.quick else None]:
        for kind in ("ref", "resource"):
            for workers in PAUSED_WORKERS[: 1 if options.quick else None]:
                stood, saved = paused(megabytes, kind, workers, 2 if options.quick else min(options.rounds, 7))
                found[f"{megabytes} MB, {kind}, {workers} workers"] = {"stood_ms": stood, "saved_secs": saved}
                print(
                    f"  {megabytes:5} MB of {kind} variables, {workers} workers: stand still for {shown_of(stood)} ms, "
                    f"saved in {shown_of(saved)} s"
                )
    return found


def paused(megabytes: int, kind: str, workers: int, rounds: int) -> tuple[list[float], list[float]]:
    """The milliseconds of all workers but the chief, and the seconds of the chief."""
    with tasks(workers) as cluster, tempfile.TemporaryDirectory() as folder:
        cluster.start_ps()
        arguments = (megabytes, kind == "resource", folder)
        pipes = [cluster.start(f"worker{index}", "save_and_stand_still", index, *arguments) for index in range(workers)]
        for pipe in pipes:
            received(pipe)
        pipes[0].send(rounds)
        saved = received(pipes[0])
        for pipe in pipes[1:]:
            pipe.send("end")
        # The chief restores or initializes in a pause, too, before these.
        stood = [1e3 * secs for pipe in pipes[1:] for secs in received(pipe)[-rounds:]]
        return stood, saved


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_SECS
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError("the workers have stopped")
        time.sleep(0.01)


def load(options: Any) -> dict[str, Any]:
    """CPU milliseconds of the parameter server per step and per heartbeat, and what follows for its load."""
    towers = TOWERS[:1] if options.quick else TOWERS
    found: dict[str, Any] = {"step": {}, "reach": {}, "beat": {}, "steps/s": {}}
    for number in towers:
        with tasks(2) as cluster:
            server = cluster.start_ps()
            pipes = [cluster.start(f"worker{index}", "only_count", index, 4, number) for index in range(2)]
            for pipe in pipes:
                received(pipe)
            for kind in ("reach", "step"):
                count = 20 if options.quick else 250
                costs = [cost(server, pipes, (kind, count), 8 * count) for _ in range(1 if options.quick else 5)]
                found[kind][number] = [millis for millis, _ in costs]
                if kind == "step":
                    found["steps/s"][number] = [rate for _, rate in costs]
        with tasks(1) as cluster:
            server = cluster.start_ps()
            pipe = cluster.start("worker0", "beat", 0, number)
            received(pipe)
            count = 20 if options.quick else 200
            found["beat"][number] = [cost(server, [pipe], count, count)[0] for _ in range(1 if options.quick else 5)]
    print_load(found)
    return found


def crowd(options: Any) -> dict[int, dict[str, Any]]:
    """What many workers cost the parameter server, and for how long they stand still."""
    return {number: crowd_of(number, options) for number in CROWDS[: 1 if options.quick else None]}


def crowd_of(workers: int, options: Any) -> dict[str, Any]:
    """For each phase its seconds, the cores of the parameter server, and what the chief's process measured in it."""
    found: dict[str, Any] = {}
    turns = 2 if options.quick else 7
    orders = [("start", 0), ("stay", 2.0 if options.quick else CROWD_SECS), ("pause", turns), ("deal", 10 * turns)]
    orders += [("vanish", 0), ("pause after", turns)]
    if not options.quick:
        # The parameter server waits a minute for those that vanished.
        orders.append(("end", 0))
    with tasks(CROWD_PROCESSES) as cluster, ExitStack() as stack:
        # All workers have a name and an address. One server answers for those that stay. Those that vanish answer once:
        # then their backlog is full, and the system drops what comes, as if the machine were gone.
        vanishing = min(VANISHING, workers // 4)
        staying = stack.enter_context(socket.create_server(("", 0), backlog=4096)).getsockname()[1]
        listening = [stack.enter_context(socket.create_server((HOST, 0), backlog=0)) for _ in range(vanishing)]
        addresses = [f"127.0.{number // 250}.{1 + number % 250}:{staying}" for number in range(workers - vanishing)]
        cluster.jobs["worker"] = [*addresses, *(f"{HOST}:{each.getsockname()[1]}" for each in listening)]
        server = cluster.start_ps()
        pipes = [
            cluster.start(f"worker{index}", "live", range(index, workers, CROWD_PROCESSES), vanishing)
            for index in range(CROWD_PROCESSES)
        ]
        for name, order in orders:
            cpu, began = cpu_secs(server), time.perf_counter()
            for pipe in pipes:
                pipe.send((name, order))
            measured, *_ = map(received, pipes)
            took = time.perf_counter() - began
            # The parameter server ends with the run.
            cpu = (received(cluster.ps) if name == "end" else cpu_secs(server)) - cpu
            found[name] = {"cores": cpu / took, "secs": took, "ms": measured}
            said = f"{cpu / took:.2f} cores of the parameter server, for {took:.0f} s"
            if measured is not None:
                said += f"; {shown_of(measured)} ms each, {measured[0]:.0f} the first"
            print(f"  {workers} workers {name}: {said}", flush=True)
    return found


def cost(server: int, pipes: Sequence[Any], order: Any, runs: int) -> tuple[float, float]:
    """CPU milliseconds of the server per run, and runs per second, when the clients make so many runs."""
    cpu, wall = cpu_secs(server), time.perf_counter()
    for pipe in pipes:
        pipe.send(order)
    for pipe in pipes:
        received(pipe)
    wall = time.perf_counter() - wall
    return (cpu_secs(server) - cpu) * 1e3 / runs, runs / wall


def cpu_secs(process: int) -> float:
    """The CPU time of a process, with its threads that have ended."""
    with open(f"/proc/{process}/stat", encoding="utf-8") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def print_load(found: dict[str, Any]) -> None:
    print("  measured: CPU ms of the parameter server; towers and entries as with so many workers")
    for number in found["step"]:
        print(
            f"    {number:5} workers: {shown_of(found['reach'][number])} for a run that reads a number from it, "
            f"{shown_of(found['step'][number])} for one that also counts a batch, "
            f"{shown_of(found['beat'][number])} for a heartbeat; at most {shown_of(found['steps/s'][number])} steps/s"
        )
    print(f"  computed from that: cores of the parameter server at {STEPS_PER_SEC} steps/s of each worker")
    for number in found["step"]:
        reached, counted, beaten = (statistics.median(found[kind][number]) for kind in ("reach", "step", "beat"))
        steps = number * STEPS_PER_SEC * counted / 1e3
        more = number * STEPS_PER_SEC * max(0.0, counted - reached) / 1e3
        beats = number / beat_secs(number) * beaten / 1e3
        said = f"{steps:.2f} for the steps, of which the position {more:.2f}; {beats:.2f} for heartbeats"
        print(f"    {number:5} workers: {said}")


def shown_of(values: Sequence[float]) -> str:
    return shown(statistics.median(values), min(values), max(values))


def shown(median: float, least: float, most: float) -> str:
    return f"{median:.2f} ({least:.2f} to {most:.2f})"


PARTS: dict[str, Callable[[Any], Any]] = {
    "step": step,
    "latency": latency,
    "kills": kills,
    "pause": pause,
    "load": load,
    "crowd": crowd,
}

if __name__ == "__main__":
    main()
