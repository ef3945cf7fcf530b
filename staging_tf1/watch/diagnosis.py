"""`diagnose`: the most likely cause of a stall, as a pure function of a snapshot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from staging_tf1.feed import threads
from staging_tf1.watch.views import Snapshot, StoreView

_BUILD = {
    "area": "Build its put(), and run it once before the first step",
    "barrier": "Build its insert_many(), and run it before the step",
}
# A source that has taken this many times its usual time counts as stuck, not slow.
_STUCK_FACTOR = 4.0
# A task that has been silent for this long is probably gone. Tasks give a sign every two seconds.
_SILENT_SECS = 10.0


@dataclass(frozen=True)
class Diagnosis:
    """One sentence on what is wrong, one on how to fix it, and whether the step waits for input at all."""

    cause: str
    cure: str
    waits: bool = True
    # Whether it names something that the step waits for.
    explains: bool = True


def diagnose(snapshot: Snapshot) -> Diagnosis:
    """Return the most likely cause of the stall in `snapshot`.

    Goes through the stores in order. The first one that explains the wait decides.

    >>> from staging_tf1.watch.views import StepView
    >>> area = StoreView("area 'train'", "area", size=0, capacity=1, closed=None, wanted=1, has_put=False)
    >>> print(diagnose(Snapshot(StepView(30.0, "", takes=True), (area,))).cause)
    area 'train' is empty, and the graph has no op that puts into it
    """
    gone = _server_gone(snapshot)
    if gone is not None:
        return gone
    for store in snapshot.stores:
        diagnosis = _of_store(store, snapshot)
        if diagnosis is not None:
            return diagnosis
    calls = f"; they call {', '.join(snapshot.step.calls)}" * bool(snapshot.step.calls)
    return Diagnosis(
        f"the step is not waiting for input: its own ops are still computing, or wait for something else{calls}",
        "Look at what it runs: a tf.data iterator, a py_func, a read from a file, another server",
        waits=False,
        explains=False,
    )


def _server_gone(snapshot: Snapshot) -> Diagnosis | None:
    """A parameter server does not answer. What holds the variables holds up everything."""
    gone = [task for task in snapshot.tasks if task.is_ps and task.unreachable]
    if not gone:
        return None
    named = ", ".join(f"{task.name} at {task.address} ({task.unreachable})" for task in gone)
    return Diagnosis(
        f"the step needs variables on a parameter server that does not answer: {named}",
        "Start it again, with the same address; the sessions then go on from the last checkpoint",
        waits=False,
    )


def _gradients(store: StoreView, snapshot: Snapshot) -> Diagnosis:
    """A synchronous step waits for the gradients of the other workers."""
    others = [task for task in snapshot.tasks if not task.is_ps and not task.finished]
    cause = "the step waits for the gradients of the other workers, in synchronous training"
    if not snapshot.tasks:
        return Diagnosis(cause, "Look at their logs: one of them has ended, or computes a long step", waits=False)
    if not others:
        return Diagnosis(
            f"{cause}, but they have all finished",
            "Let all workers make the same number of steps: Cluster(sync=True)",
            waits=False,
        )
    last = max(others, key=lambda task: task.silent_secs)
    if last.silent_secs > _SILENT_SECS:
        return Diagnosis(
            f"{cause}; {last.name} at {last.address} has given no sign of life for {last.silent_secs:.0f} s",
            "Start it again; it goes on behind its position",
            waits=False,
        )
    names = ", ".join(task.name for task in others)
    return Diagnosis(
        f"{cause}; {names} are running" if len(others) > 1 else f"{cause}; {names} is running",
        "Look at their logs: one of them waits for its input or computes a long step",
        waits=False,
    )


def _of_store(store: StoreView, snapshot: Snapshot) -> Diagnosis | None:
    if store.is_sync:
        # What wants nothing else waits after its step, and may have had a token that was too many.
        only = not any(other.wanted for other in snapshot.stores if other is not store)
        return _gradients(store, snapshot) if store.wanted and (only or not store.size) else None
    if store.step_puts and not store.wanted and _is_full(store):
        return _full(store)
    if store.lockstep and store.feeders:
        # The step itself reads the next batch, even if it could take the last one.
        return _in_service(store, snapshot) or _in_source(store, snapshot)
    if not store.wanted or store.size is None or store.closed or not _is_short(store):
        return None
    rules: tuple[Callable[[StoreView, Snapshot], Diagnosis | None], ...]
    if store.feeders:
        rules = (
            *(_dead, _other_tower, _not_started, _ended, _starting, _shortfall),
            *(_in_share, _in_service, _in_source, _in_graph),
        )
    else:
        rules = (
            *(_dead, _no_thread, _idle_runner, _no_put, _input_over, _from_input, _no_op_thread),
            *(_too_few_gradients, _incomplete, _shortfall, _no_records, _nobody_puts),
        )
    return next((diagnosis for rule in rules if (diagnosis := rule(store, snapshot)) is not None), None)


def _is_full(store: StoreView) -> bool:
    return store.size is not None and 0 < store.capacity <= store.size


def _is_short(store: StoreView) -> bool:
    """Whether a get of the step would wait."""
    assert store.size is not None
    # Batches withheld from an incomplete round are not in `size`: they have no token yet.
    return store.size < store.wanted + store.min_after_dequeue


def _full(store: StoreView) -> Diagnosis:
    cause = f"{store.name} is full ({store.size} of {store.capacity}), and this run puts into it"
    if not store.has_take:
        return Diagnosis(
            f"{cause}, but the graph has no op that takes elements from it",
            f"Build its {'get' if store.kind == 'area' else 'dequeue'}() and run it",
        )
    if store.kind != "area":
        return Diagnosis(
            f"{cause}, but nothing takes elements from it",
            "Dequeue in another thread or between the puts, or give it a larger capacity",
        )
    return Diagnosis(
        f"{cause}, but nothing takes elements from it",
        "After the warm-up, fetch the get in every run that puts: sess.run([train_op, put])",
    )


def _dead(store: StoreView, snapshot: Snapshot) -> Diagnosis | None:
    if not store.error:
        return None
    if "uninitialized" in store.error:
        return Diagnosis(
            f"the thread that fed {store.name} has died: {store.error}",
            "Run tf.global_variables_initializer() and tf.local_variables_initializer() before the threads start; "
            "num_epochs= counts in a local variable",
        )
    return Diagnosis(
        f"the thread that fed {store.name} has died: {store.error}",
        "Fix that exception; with a coordinator or StagingSession, your run would have raised it",
    )


def _other_tower(store: StoreView, snapshot: Snapshot) -> Diagnosis | None:
    """A tower that no step fetches fills up, and no further round becomes complete."""
    others = [other for other in snapshot.stores if store.pipeline and other.pipeline == store.pipeline]
    ignored = [other for other in others if not other.wanted and _is_full(other)]
    if not ignored:
        return None
    names = ", ".join(f"{other.name} ({other.size} of {other.capacity})" for other in ignored)
    return Diagnosis(
        f"the step takes only from tower {store.tower} of '{store.pipeline}', while these are full: {names}",
        "Fetch something from every tower in each step, or give staged() only the devices that you use",
    )


def _not_started(store: StoreView, snapshot: Snapshot) -> Diagnosis | None:
    idle = [feeder for feeder in store.feeders if feeder.doing == threads.NOT_STARTED]
    if len(idle) < len(store.feeders):
        return None
    return Diagnosis(
        f"{store.name} is empty, because its feed threads were created but never started",
        "Start each thread, or let staging.start(sess, coord) or StagingSession create and start them",
    )


def _ended(store: StoreView, snapshot: Snapshot) -> Diagnosis | None:
    if any(feeder.doing != threads.ENDED for feeder in store.feeders):
        return None
    return Diagnosis(
        f"{store.name} has {_holding(store)}, and its feed threads have ended without closing it",
        "Look in the log for what ended them; create a new session to start them again",
    )


def _starting(store: StoreView, snapshot: Snapshot) -> Diagnosis | None:
    """The worker processes cannot make a batch yet."""
    waiting = [feeder for feeder in store.feeders if feeder.starting]
    if not waiting:
        return None
    longest = max(waiting, key=lambda feeder: feeder.secs)
    named = ", ".join(dict.fromkeys(feeder.starting for feeder in waiting))
    return Diagnosis(
        f"{store.name} has {_holding(store)}, because what makes its batches is still starting, for "
        f"{longest.secs:.1f} s{longest.location}: {named}",
        "Wait: a worker process imports the modules of the source and loads the source. Import what takes long, such "
        "as TensorFlow, only in the functions that use it; or use num_threads= instead",
    )


def _idle_runner(store: StoreView, snapshot: Snapshot) -> Diagnosis | None:
    if not store.idle_runner:
        return None
    if snapshot.step.creates_session:
        return Diagnosis(
            f"{store.name} is {_emptiness(store)}, and this run initializes the variables: a MonitoredSession starts "
            "the queue runners after that",
            "Let no initial value depend on the queue: create the variable with a constant, and assign the value in a "
            "hook, in after_create_session(session, coord), when the queue runners are running",
        )
    return Diagnosis(
        f"{store.name} is {_emptiness(store)}, and its QueueRunner was never started in this session",
        "Call tf.train.start_queue_runners(sess=sess, coord=coord) after the variables are initialized and before the "
        "first step",
    )


def _from_input(store: StoreView, snapshot: Snapshot) -> Diagnosis | None:
    """The put of another thread waits in its turn: for a store that is empty."""
    if not store.putters:
        return None
    rest = tuple(other for other in snapshot.stores if other.name != store.name)
    for other in rest:
        if other.name in store.inputs:
            behind = replace(other, wanted=1, step_puts=False)
            diagnosis = _of_store(behind, replace(snapshot, stores=rest)) or _no_records(other, snapshot)
            if diagnosis is not None:
                cause = f"{store.name} is {_emptiness(store)}, because what fills it waits, too: {diagnosis.cause}"
                return Diagnosis(cause, diagnosis.cure, diagnosis.waits)
    return None


def _too_few_gradients(store: StoreView, snapshot: Snapshot) -> Diagnosis | None:
    if store.kind != "accumulator":
        return None
    return Diagnosis(
        f"{store.name} has {store.size} gradients, and the step takes the mean of {store.wanted}",
        "Run its apply_grad() before the step or in another thread, with local_step= of the current step: it drops "
        "older gradients",
    )


def _no_records(store: StoreView, snapshot: Snapshot) -> Diagnosis | None:
    """There are names of files, and the reader that takes them has delivered nothing."""
    if not store.reader or store.inputs or not (store.putters or store.size):
        return None
    return Diagnosis(
        f"{store.reader} gets the names of files from {store.name}, and delivers no records of them",
        "Look at these files: a TFRecord file without records has 0 bytes. If they have some, the reader hangs in one",
    )


def _incomplete(store: StoreView, snapshot: Snapshot) -> Diagnosis | None:
    if not store.incomplete:
        return None
    return Diagnosis(
        f"{store.name} holds {store.size} complete elements, and the step takes {store.wanted}; {store.incomplete} "
        f"more lack a component",
        "Insert each component for every key (insert_many), or take fewer elements",
    )


def _shortfall(store: StoreView, snapshot: Snapshot) -> Diagnosis | None:
    """The queue has fewer elements than a dequeue needs, with those that a shuffle queue keeps back."""
    assert store.size is not None
    if not store.size:
        return None
    needed = store.wanted + store.min_after_dequeue
    keeps = f", because min_after_dequeue={store.min_after_dequeue} of them must stay" * bool(store.min_after_dequeue)
    cause = f"{store.name} holds {store.size} elements, and a dequeue of {store.wanted} needs {needed}{keeps}"
    if not store.feeders and not store.putters:
        return Diagnosis(
            f"{cause}; nothing adds more",
            "Close the queue at the end of the data, put more elements, or lower min_after_dequeue",
        )
    slow = next((feeder for feeder in store.feeders if feeder.doing == threads.WAITING_FOR_SOURCE), None)
    if slow is not None:
        cause += f"; feed thread '{slow.name}' has been in the source for {slow.secs:.1f} s{slow.location}"
    return Diagnosis(cause, "Wait until the queue is filled, lower min_after_dequeue, or make the source faster")


def _in_service(store: StoreView, snapshot: Snapshot) -> Diagnosis | None:
    """The graph computes the batches from a dataset of the tf.data service, which delivers none."""
    busy = [feeder for feeder in store.feeders if feeder.doing in (threads.WAITING_FOR_SOURCE, threads.PUTTING)]
    if not store.service or not busy:
        return None
    return Diagnosis(
        f"{store.service} has delivered nothing to {store.name} for {max(feeder.secs for feeder in busy):.1f} s",
        "Check that its dispatcher and all its workers are running: TensorFlow reports no error for a dead one, but "
        "waits until it is back at the same address",
    )


def _in_share(store: StoreView, snapshot: Snapshot) -> Diagnosis | None:
    waiting = [feeder for feeder in store.feeders if feeder.doing == threads.WAITING_FOR_SHARE]
    if not waiting:
        return None
    longest = max(waiting, key=lambda feeder: feeder.secs)
    cause = f"feed thread '{longest.name}' has waited {longest.secs:.1f} s for batches that the chief hands out"
    silent = [task for task in snapshot.tasks if not (task.is_ps or task.finished) and task.silent_secs > _SILENT_SECS]
    if silent:
        named = ", ".join(f"{task.name} at {task.address} ({task.silent_secs:.0f} s)" for task in silent)
        return Diagnosis(
            f"{cause}, and these have given no sign of life: {named}",
            "Start them again. After Cluster(silence_secs=) the other workers get the batches of one that is gone",
        )
    return Diagnosis(
        f"{cause}, and the other workers have not consumed those that they have been given",
        "Look at their logs: one of them computes a long step, or has stopped stepping",
    )


def _in_source(store: StoreView, snapshot: Snapshot) -> Diagnosis | None:
    inside = [feeder for feeder in store.feeders if feeder.doing == threads.WAITING_FOR_SOURCE]
    if not inside:
        return None
    longest = max(inside, key=lambda feeder: feeder.secs)
    usual = longest.mean_source_secs
    if longest.batches and longest.secs < _STUCK_FACTOR * usual:
        return Diagnosis(
            f"the source of {store.name} is slower than the step: it takes {usual:.1f} s per batch, and feed thread "
            f"'{longest.name}' has been in it for {longest.secs:.1f} s{longest.location}",
            "Make it faster, or let threads read ahead (no lockstep, num_threads=)",
        )
    after = f"after {longest.batches} batches" if longest.batches else "and has not returned its first batch"
    cure = "Add a timeout to whatever it waits for (a file, a network, a lock), so that it raises instead"
    if longest.url:
        cure = (
            "Check the server and the network. After timeout_secs= of the source, 60 s unless it is given, the request "
            "is tried once more, and then raises"
        )
    return Diagnosis(
        f"the source of {store.name} is stuck: feed thread '{longest.name}' has been in it for "
        f"{longest.secs:.1f} s{longest.location}, {after}",
        cure,
    )


def _in_graph(store: StoreView, snapshot: Snapshot) -> Diagnosis | None:
    """The put op is still computing the values that it puts."""
    busy = [feeder for feeder in store.feeders if feeder.doing == threads.PUTTING]
    if not busy:
        return None
    longest = max(busy, key=lambda feeder: feeder.secs)
    return Diagnosis(
        f"the ops that compute the batches of {store.name} have not returned for {longest.secs:.1f} s, after "
        f"{longest.batches} batches",
        "Look at what they read: a tf.data dataset, a py_func, another queue",
    )


def _no_thread(store: StoreView, snapshot: Snapshot) -> Diagnosis | None:
    if store.kind == "staged":
        return Diagnosis(
            f"{store.name} is empty, because its feed threads were never started in this session",
            "Use StagingSession or StagingHook, or call staging.start(sess, coord) before the first step",
        )
    return None


def _no_put(store: StoreView, snapshot: Snapshot) -> Diagnosis | None:
    if store.has_put:
        return None
    return Diagnosis(
        f"{store.name} is {_emptiness(store)}, and the graph has no op that puts into it",
        _BUILD.get(store.kind, "Build its enqueue()"),
    )


def _input_over(store: StoreView, snapshot: Snapshot) -> Diagnosis | None:
    if not store.over:
        return None
    return Diagnosis(
        f"{store.name} is empty and its input has ended: {', '.join(store.over)}",
        "The step that met the end of the data put nothing, and may have lost the last element to its get. Count the "
        "batches and leave out the last put, or use staged()",
    )


def _no_op_thread(store: StoreView, snapshot: Snapshot) -> Diagnosis | None:
    """A get of a plain area holds a thread of the pool while it waits; a queue does not."""
    if not (snapshot.one_op_thread and store.kind == "area" and store.putters):
        return None
    return Diagnosis(
        f"{store.name} is empty, and the get that waits for it holds the only thread for ops, so the put of another "
        "thread cannot run",
        "Let the session have more: tf.ConfigProto(inter_op_parallelism_threads=2); or use staged(), whose gets hold "
        "no thread",
    )


def _nobody_puts(store: StoreView, snapshot: Snapshot) -> Diagnosis | None:
    if store.putters:
        return Diagnosis(
            f"{store.name} is {_emptiness(store)}, and the put of another thread is still running",
            "Look at what that put waits for; its values may depend on another empty area or queue",
        )
    if store.kind == "area":
        ended = "; if its input has ended, leave out the last get" if store.may_be_over else ""
        return Diagnosis(
            f"{store.name} is empty: this run gets from it, and nothing puts into it",
            f"Run its put once before the first step (the warm-up), then fetch put and get in every step{ended}",
        )
    put_at = f"; what fills it was made at {store.put_at}" * bool(store.put_at)
    if store.is_remote:
        return Diagnosis(
            f"{store.name} is {_emptiness(store)}, and no thread of this process is putting into it{put_at}",
            "If another process fills it, look at its log; if this one should, start the thread",
        )
    if store.kind == "barrier":
        return Diagnosis(
            f"{store.name} is {_emptiness(store)}, and no thread is inserting into it{put_at}",
            "Run its insert_many for every component before the step, or in another thread",
        )
    return Diagnosis(
        f"{store.name} is {_emptiness(store)}, and no thread is putting into it: its thread has died or was never "
        f"started{put_at}",
        "Start it (tf.train.start_queue_runners starts a QueueRunner); a CustomRunner would have raised its exception",
    )


def _emptiness(store: StoreView) -> str:
    return "empty" if not store.size else f"short of elements ({store.size})"


def _holding(store: StoreView) -> str:
    return "no element" if not store.size else f"{store.size} elements"
