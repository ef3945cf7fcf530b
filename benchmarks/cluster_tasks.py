"""What the processes of `cluster.py` run. A fork server imports this module, so TensorFlow is loaded only once."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from threading import Thread
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf
from common import Step, in_turn
from workloads import WORKLOADS

import staging_tf1 as staging
from staging_tf1.cluster.clock import TICK_SECS, Clock
from staging_tf1.cluster.connection import bounded_config
from staging_tf1.cluster.dealer import Dealer
from staging_tf1.cluster.dealing import Names
from staging_tf1.cluster.fence import Fence
from staging_tf1.cluster.ledger import Ledger
from staging_tf1.cluster.member import Member
from staging_tf1.cluster.signs import Pulse
from staging_tf1.graph.acked import Acked
from staging_tf1.graph.position import Position, TowerRange

LATENCY_SECS = 0.020
SILENCE_SECS, PATIENCE_SECS = 60.0, 600.0


def main(program: str, pipe: Any, log: str, *arguments: Any) -> None:
    """Run `program` in this process. What TensorFlow prints goes to the file `log`."""
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(file, 2)
    globals()[program](pipe, *arguments)


def serve(pipe: Any, jobs: Any, index: int) -> None:
    """A parameter server. Sends its process id, and at the end its CPU seconds."""
    cluster = staging.Cluster(jobs, "ps", index)
    pipe.send(os.getpid())
    cluster.serves()
    pipe.send(time.process_time())


def compare(pipe: Any, jobs: Any, layers: int, records: int, turns: dict[str, Any]) -> None:
    """The only worker of a cluster measures a step with each kind of input, and sends microseconds per step."""
    cluster = staging.Cluster(jobs, "worker", 0)
    workload = WORKLOADS["W1"]
    data = workload.open(records)
    by_hand: dict[str, Any] = {"master": cluster.target, "config": cluster.session_config()}
    with ExitStack() as stack:
        steps: dict[str, Step] = {}
        with tf.Graph().as_default(), cluster.device_scope():
            train_op = model(staging.staged(workload.source(data, 1), cluster=cluster), layers, "staged")
            session = stack.enter_context(staging.StagingSession(cluster=cluster))
            steps["staged"] = lambda session=session, train_op=train_op: session.run(train_op)
        with tf.Graph().as_default(), cluster.device_scope():
            train_op = model(staging.staged(workload.source(data, 1)), layers, "alone")
            session = stack.enter_context(staging.StagingSession(**by_hand))
            steps["position on the worker"] = lambda session=session, train_op=train_op: session.run(train_op)
        with tf.Graph().as_default(), cluster.device_scope():
            fed = {
                name: tf.placeholder(dtype, [workload.batch_size, *shape])
                for name, (shape, dtype) in workload.spec.items()
            }
            train_op = model(fed, layers, "feed_dict")
            session = stack.enter_context(tf.train.MonitoredTrainingSession(**by_hand))
            batches = workload.batches(data, 1)

            def feed(session: Any = session, train_op: Any = train_op, fed: Any = fed) -> None:
                batch = next(batches)
                session.run(train_op, {fed[name]: batch[name] for name in fed})

            steps["feed_dict"] = feed
        with tf.Graph().as_default(), cluster.device_scope():
            dataset, feeds = workload.dataset(data, 1)
            iterator = tf.data.make_initializable_iterator(dataset)
            train_op = model(iterator.get_next(), layers, "tf_data")
            session = stack.enter_context(tf.train.MonitoredTrainingSession(**by_hand))
            session.run_step_fn(lambda step_context: step_context.session.run(iterator.initializer, feeds))
            steps["tf.data"] = lambda session=session, train_op=train_op: session.run(train_op)
        pipe.send(in_turn(steps, **turns))


def model(batch: Any, layers: int, name: str) -> Any:
    """The train op: fixed layers, which only take time on the worker, then a softmax regression."""
    # A server keeps variables by name, so each graph has its own names.
    with tf.variable_scope(name):
        values = batch["image"]
        kernel = tf.constant(np.random.default_rng(0).normal(0, 1 / 28, (784, 784)).astype(np.float32))
        for _ in range(layers):
            values = tf.tanh(tf.matmul(values, kernel))
        logits = tf.matmul(values, tf.get_variable("weights", [784, 10], initializer=tf.zeros_initializer()))
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=batch["label"], logits=logits))
        return tf.train.GradientDescentOptimizer(0.01).minimize(loss)


def wait_and_train(pipe: Any, jobs: Any, index: int) -> None:
    """A worker whose batches wait for 20 ms. For each number of seconds that it is sent, it sends a number of steps."""

    def wait(batch: Any, rng: np.random.Generator) -> Any:
        # The wait is part of the workload: storage with a latency of 20 ms and no CPU time.
        time.sleep(LATENCY_SECS)
        return batch

    cluster = staging.Cluster(jobs, "worker", index)
    source = staging.sources.ArraySource(np.arange(1000, dtype=np.float32), batch_size=10, seed=1, transform=wait)
    with tf.Graph().as_default():
        with cluster.device_scope():
            batch = staging.staged(source, cluster=cluster)
            train_op = tf.assign_add(tf.get_variable("total", []), tf.reduce_sum(batch))
        with staging.StagingSession(cluster=cluster) as session:
            pipe.send("ready")
            while secs := pipe.recv():
                # Batches that waited in the area between two rounds.
                for _ in range(4):
                    session.run(train_op)
                count, began = 0, time.monotonic()
                while time.monotonic() < began + secs:
                    session.run(train_op)
                    count += 1
                pipe.send(count / (time.monotonic() - began))
            # The source has no end, and there is no common one.
            os._exit(0)


def train_until_killed(pipe: Any, jobs: Any, index: int, folder: str, begun: Any) -> None:
    """A worker that writes into `begun[index]` when its last finished step began."""
    cluster = staging.Cluster(jobs, "worker", index)
    source = staging.sources.ArraySource(np.arange(1000, dtype=np.float32), batch_size=10, seed=1)
    with tf.Graph().as_default():
        with cluster.device_scope():
            total = tf.assign_add(tf.get_variable("total", []), tf.reduce_sum(staging.staged(source, cluster=cluster)))
            with tf.control_dependencies([total]):
                train_op = tf.assign_add(tf.train.get_or_create_global_step(), 1)
        saving = {"checkpoint_dir": folder, "save_checkpoint_steps": 500, "save_checkpoint_secs": None}
        with staging.StagingSession(cluster=cluster, **saving) as session:
            while not session.should_stop():
                began = time.monotonic()
                session.run(train_op)
                begun[index] = began


def save_and_stand_still(pipe: Any, jobs: Any, index: int, megabytes: int, use_resource: bool, folder: str) -> None:
    """A worker with steps of a few milliseconds. The chief saves as often as it is sent, and sends the seconds of each.

    The others are sent a word at the end, and send for how long they stood still each time.
    """
    cluster = staging.Cluster(jobs, "worker", index)
    with tf.Graph().as_default():
        with cluster.device_scope():
            batch = staging.staged(
                staging.sources.ArraySource(np.arange(1000, dtype=np.float32), batch_size=10, seed=1), cluster=cluster
            )
            with tf.variable_scope("", use_resource=use_resource):
                partitioner = tf.fixed_size_partitioner(8)
                weights = tf.get_variable("weights", [megabytes * 2**18], partitioner=partitioner)
            values = tf.random_normal([250, 250]) + tf.reduce_sum(batch)
            for _ in range(3):
                values = tf.tanh(tf.matmul(values, values))
            sums = tf.reduce_sum(values, keepdims=True)[0]
            with tf.control_dependencies([tf.scatter_add(part, [0], sums) for part in weights]):
                train_op = tf.assign_add(tf.train.get_or_create_global_step(), 1)
        saver = tf.train.Saver(max_to_keep=1)
        with staging.StagingSession(cluster=cluster) as session:
            stood = watched_gate(cluster.member.gate)
            session.run(train_op)
            pipe.send("ready")
            saved = []
            while not pipe.poll():
                session.run(train_op)
            for _ in range(pipe.recv() if cluster.is_chief else 0):
                for _ in range(20):
                    session.run(train_op)
                began = time.perf_counter()
                session.run_step_fn(lambda step_context: saver.save(step_context.session, f"{folder}/model"))
                saved.append(time.perf_counter() - began)
            pipe.send(saved if cluster.is_chief else stood)
            pipe.recv()
            # The source has no end, and there is no common one.
            os._exit(0)


def watched_gate(gate: Any) -> list[float]:
    """Return a list, to which the seconds of each time that the gate is closed are added."""
    close, opened, secs, began = gate.close, gate.open, [], [0.0]

    def watched_close(*holder: Any) -> None:
        began[0] = time.perf_counter()
        close(*holder)

    def watched_open() -> None:
        opened()
        secs.append(time.perf_counter() - began[0])

    gate.close, gate.open = watched_close, watched_open
    return secs


def only_count(pipe: Any, jobs: Any, index: int, sessions: int, towers: int) -> None:
    """Many light workers in one process: each runs what a step of ours runs on the first parameter server, and no more.

    Is sent a kind of run and a number, and makes so many runs in each session. Sends when they are done.
    """
    cluster = staging.Cluster(jobs, "worker", index)
    with ExitStack() as stack:
        steps = [light_worker(cluster, stack, index * sessions + number, towers) for number in range(sessions)]
        pipe.send("ready")
        while order := pipe.recv():
            kind, count = order
            threads = [Thread(target=repeat, args=(step[kind], count)) for step in steps]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            pipe.send("done")


def light_worker(cluster: Any, stack: ExitStack, number: int, towers: int) -> dict[str, Step]:
    """What one worker runs on the parameter server to count a batch, and a run that only reads a number from it."""
    with tf.Graph().as_default():
        # Runs on the worker, as the get of a staged batch does.
        with tf.device(cluster.own_device):
            taken = tf.no_op()
        fence = Fence(cluster)
        tower_range = TowerRange(number, 1, towers)
        position = Position({"source": "light"}, tower_range, device=cluster.shared_device, fence=fence.check)
        with tf.control_dependencies([taken]):
            advanced = position.advance(0, None, None)
        with tf.device(cluster.own_device), tf.control_dependencies([advanced]):
            step = tf.no_op()
        with tf.device(cluster.shared_device):
            weight = tf.Variable(0.0, use_resource=True, name="weight")
        with tf.device(cluster.own_device):
            reach = tf.negative(weight.read_value()).op
        session = stack.enter_context(tf.Session(cluster.target, config=cluster.session_config()))
        session.run([position.initializers, weight.initializer])
        fence.take(session)
        return {"step": session.make_callable(step), "reach": session.make_callable(reach)}


def repeat(step: Step, count: int) -> None:
    for _ in range(count):
        step()


def live(pipe: Any, jobs: Any, indices: Any, vanishing: int) -> None:
    """The parts of many workers in their cluster, without a session of their own: threads with their connections.

    Is sent a phase and a number for it, and sends milliseconds, or None, when all are through.
    """
    layouts = [staging.Cluster(jobs, "worker", index).layout for index in indices]
    server = layouts[0].servers[0]
    target = f"grpc://{layouts[0].address(server)}"
    # One thread looks at the clock for all of them. A thousand would cost the server nothing, and this machine much.
    clock = Clock()
    Pulse("clock", TICK_SECS, lambda number: clock.now()).start()
    members = []
    for layout in layouts:
        member = Member(layout, Ledger(target, server.device), SILENCE_SECS, PATIENCE_SECS, clock=clock)
        member._ticks = Pulse("no clock", PATIENCE_SECS, lambda number: None)
        members.append(member)
    leads = members[0].task == members[0].layout.chief
    while True:
        name, order = pipe.recv()
        measured = None
        if name == "stay":
            time.sleep(order)
        elif name in ("pause", "pause after"):
            measured = paused_millis(members[0], order) if leads else None
        elif name == "deal":
            measured = dealt_millis(members[0], order) if leads else None
        elif name == "vanish":
            gone = [member for member in members if member.task.index >= len(member.layout.workers) - vanishing]
            for member in gone:
                member._pulse.stop()
                member.pauses.stop()
                members.remove(member)
        else:
            # They start a few at a time, as many as the cores of one machine can, and wait for each other at the end.
            phase = {"start": start_member, "end": end_member}[name]
            with ThreadPoolExecutor(4 if name == "start" else len(members)) as pool:
                list(pool.map(phase, members))
        pipe.send(measured)


def paused_millis(chief: Any, times: int) -> list[float]:
    """Milliseconds until all workers stand still, of each pause."""
    millis = []
    for _ in range(times):
        began = time.perf_counter()
        with chief.pauses.pause():
            millis.append(1e3 * (time.perf_counter() - began))
        time.sleep(0.5)
    return millis


def dealt_millis(chief: Any, rounds: int) -> list[float]:
    """Milliseconds of each round of the dealer, in which a fifth of the workers ask for two batches more."""
    server, workers = chief.layout.servers[0], chief.layout.workers
    with tf.Graph().as_default():
        with tf.device(server.device):
            variable = tf.Variable(Acked.first(0).cells, use_resource=True, name="position")
            fed = tf.placeholder(tf.int64, [None])
            acknowledge = tf.assign(variable, fed, validate_shape=False)
        session = tf.Session(f"grpc://{chief.layout.address(server)}", config=bounded_config("/job:ps"))
        session.run(variable.initializer)
    dealer = Dealer(chief, "train", variable.op.name, None)
    fences = chief.ledger.read([f"fence/{task}" for task in workers])
    asked, names, millis = dict.fromkeys(workers, 0), Names("train"), []
    for number in range(rounds):
        # A worker whose thread answered too late to a pause has lost its fence.
        asking = [task for task in workers[number % 5 :: 5] if f"fence/{task}" in fences]
        for task in asking:
            asked[task] += 2
        asks = {task: {"token": fences[f"fence/{task}"], "total": asked[task], "closed": False} for task in asking}
        chief.ledger.write({names.ask(str(task)): ask for task, ask in asks.items()})
        began = time.perf_counter()
        dealer._round()
        millis.append(1e3 * (time.perf_counter() - began))
        # What was given five rounds ago has been trained.
        held = dealer._dealing.held
        session.run(acknowledge, {fed: Acked.first(max(0, max(held, default=0) - 2 * len(workers))).cells})
    session.close()
    # The first round reads everything.
    return millis[1:]


def start_member(member: Any) -> None:
    """What a session does of a worker when it begins."""
    member.start()
    if member.task == member.layout.chief:
        member.begin_run()
        member.mark_initialized()
    else:
        member.await_run({}, PATIENCE_SECS)
    member.take_fence()


def end_member(member: Any) -> None:
    """What a session does of a worker when its data has ended."""
    if member.task == member.layout.chief:
        member.await_workers()
    member.finish()
    if member.task != member.layout.chief:
        member.await_last_save()
    member.stop()


def beat(pipe: Any, jobs: Any, index: int, tasks: int) -> None:
    """Beats like a worker among `tasks`. Is sent a number of heartbeats, and sends when they are done."""
    member = staging.Cluster(jobs, "worker", index).member
    sign = {"process": "0" * 32, "host": "a-host-with-a-name", "pid": 123456, "beat": 0}
    member.ledger.write({f"task/worker {number}": sign for number in range(tasks)})
    member.ledger.write({f"fence/worker {number}": "0" * 32 for number in range(tasks)})
    pipe.send("ready")
    while count := pipe.recv():
        for number in range(count):
            own = {f"task/{member.task}": {**sign, "beat": number}}
            member.ledger.write_and_read(own, ["task/worker 0", "task/ps 0"])
        pipe.send("done")
