"""The most likely cause of a stall: a pure function of a snapshot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from staging_tf1.doctor.views import Snapshot, StoreView
from staging_tf1.feed import threads

# A source that has taken this many times its usual time does not look slow any more, but stuck.
_STUCK_FACTOR = 4.0


@dataclass(frozen=True)
class Diagnosis:
    """One sentence of what is wrong, one of what to do, and whether the step waits for input at all."""

    cause: str
    cure: str
    waits: bool = True


def diagnose(snapshot: Snapshot) -> Diagnosis:
    """The most likely cause of what `snapshot` shows.

    Every store that the step could wait for is asked, in order; the first that explains the wait is the answer.

    >>> from staging_tf1.doctor.views import StepView
    >>> area = StoreView("area 'train'", "area", size=0, capacity=1, closed=None, wanted=1, has_put=False)
    >>> print(diagnose(Snapshot(StepView(30.0, "", takes=True), (area,))).cause)
    area 'train' is empty, and the graph has no op that puts into it
    """
    for store in snapshot.stores:
        found = _of_store(store, snapshot)
        if found is not None:
            return found
    return Diagnosis(
        "no area or queue keeps the step waiting: its own ops are still computing, or wait for something else",
        "Look at what it runs: a tf.data iterator, a py_func, a read from a file, another server",
        waits=False,
    )


def _of_store(store: StoreView, snapshot: Snapshot) -> Diagnosis | None:
    if store.step_puts and not store.wanted and _is_full(store):
        return _full(store)
    if store.lockstep and store.feeders:
        # The step itself reads, to put the next batch, while it could take the last one.
        return _in_source(store, snapshot)
    if not store.wanted or store.size is None or store.closed or not _is_short(store):
        return None
    rules: tuple[Callable[[StoreView, Snapshot], Diagnosis | None], ...]
    if store.feeders:
        rules = (_dead, _other_tower, _not_started, _ended, _shortfall, _in_source, _in_graph)
    else:
        rules = (_dead, _no_thread, _no_put, _input_over, _shortfall, _nobody_puts)
    return next((found for rule in rules if (found := rule(store, snapshot)) is not None), None)


def _is_full(store: StoreView) -> bool:
    return store.size is not None and 0 < store.capacity <= store.size


def _is_short(store: StoreView) -> bool:
    """Whether a take of the step's would have to wait."""
    assert store.size is not None
    # What is withheld from the round stands in the area, but may not be taken: its tokens are not out.
    return store.size < store.wanted + store.min_after_dequeue


def _full(store: StoreView) -> Diagnosis:
    cause = f"{store.name} is full ({store.size} of {store.capacity}), and this run puts into it"
    if not store.has_take:
        return Diagnosis(f"{cause}, but the graph has no op that takes from it", "Build its get(), and run it")
    return Diagnosis(
        f"{cause} while nothing takes from it",
        "After the warm-up, fetch the get in every run that puts: sess.run([train_op, put])",
    )


def _dead(store: StoreView, snapshot: Snapshot) -> Diagnosis | None:
    if not store.error:
        return None
    return Diagnosis(
        f"the thread that fed {store.name} has died of {store.error}",
        "Mend the cause of that exception; a coordinator, or StagingSession, would have raised it from your run",
    )


def _other_tower(store: StoreView, snapshot: Snapshot) -> Diagnosis | None:
    """Towers whose batches nobody takes fill up, and then keep the round from being complete."""
    others = [each for each in snapshot.stores if store.pipeline and each.pipeline == store.pipeline]
    ignored = [each for each in others if not each.wanted and _is_full(each)]
    if not ignored:
        return None
    names = ", ".join(f"{each.name} ({each.size} of {each.capacity})" for each in ignored)
    return Diagnosis(
        f"the step takes from tower {store.tower} of '{store.pipeline}' only, while the other is full: {names}",
        "Fetch something of every tower in each step, or give staged() only the devices that you use",
    )


def _not_started(store: StoreView, snapshot: Snapshot) -> Diagnosis | None:
    idle = [each for each in store.feeders if each.doing == threads.NOT_STARTED]
    if len(idle) < len(store.feeders):
        return None
    return Diagnosis(
        f"{store.name} is empty, because its feed threads were made but never started",
        "Call start() of each thread, or let staging.start(sess, coord) or StagingSession make and start them",
    )


def _ended(store: StoreView, snapshot: Snapshot) -> Diagnosis | None:
    if any(each.doing != threads.ENDED for each in store.feeders):
        return None
    return Diagnosis(
        f"{store.name} has {_holding(store)}, and its feed threads are dead: they ended without closing it",
        "Look in the log for what ended them; make a new session to start them again",
    )


def _shortfall(store: StoreView, snapshot: Snapshot) -> Diagnosis | None:
    """Fewer elements than a shuffle queue keeps back, or than one take wants."""
    assert store.size is not None
    if not store.size:
        return None
    needed = store.wanted + store.min_after_dequeue
    keeps = f", because min_after_dequeue={store.min_after_dequeue} of them must stay" * bool(store.min_after_dequeue)
    cause = f"{store.name} holds {store.size} elements, and a take of {store.wanted} needs {needed}{keeps}"
    if not store.feeders and not store.putters:
        return Diagnosis(
            f"{cause}; nothing is putting more into it",
            "Close the queue at the end of the data, put more, or lower min_after_dequeue",
        )
    slow = next((each for each in store.feeders if each.doing == threads.WAITING_FOR_SOURCE), None)
    if slow is not None:
        cause += f"; feed thread '{slow.name}' has been in the source for {slow.secs:.1f} s{slow.place}"
    return Diagnosis(cause, "Wait until it has filled, lower min_after_dequeue, or make the source faster")


def _in_source(store: StoreView, snapshot: Snapshot) -> Diagnosis | None:
    inside = [each for each in store.feeders if each.doing == threads.WAITING_FOR_SOURCE]
    if not inside:
        return None
    longest = max(inside, key=lambda each: each.secs)
    usual = longest.mean_source_secs
    if longest.batches and longest.secs < _STUCK_FACTOR * usual:
        return Diagnosis(
            f"the source of {store.name} is slower than the step: it takes {usual:.1f} s for a batch, and feed thread "
            f"'{longest.name}' has been in it for {longest.secs:.1f} s{longest.place}",
            "Make it faster, or let threads read ahead (no lockstep, num_threads=)",
        )
    after = f"after {longest.batches} batches" if longest.batches else "and has not made its first batch"
    return Diagnosis(
        f"the source of {store.name} is stuck: feed thread '{longest.name}' has been in it for "
        f"{longest.secs:.1f} s{longest.place}, {after}",
        "Give what it waits for (a file, a network, a lock) a timeout, so that it raises instead",
    )


def _in_graph(store: StoreView, snapshot: Snapshot) -> Diagnosis | None:
    """The put op computes what it puts, and has not come to an end."""
    busy = [each for each in store.feeders if each.doing == threads.PUTTING]
    if not busy:
        return None
    longest = max(busy, key=lambda each: each.secs)
    return Diagnosis(
        f"the ops that compute the batches of {store.name} have not returned for {longest.secs:.1f} s, after "
        f"{longest.batches} batches",
        "Look at what they read: a tf.data dataset, a py_func, another queue",
    )


def _no_thread(store: StoreView, snapshot: Snapshot) -> Diagnosis | None:
    if store.lockstep:
        return Diagnosis(
            f"nothing is staged in {store.name}, which is in lockstep, and this run does not carry its put",
            "Run steps by StagingSession.run, make_callable, or a MonitoredSession with StagingHook; a raw session, "
            "such as step_context.session, goes past them",
        )
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
        "Build its put(), and run it once before the first step" if store.kind == "area" else "Build its enqueue()",
    )


def _input_over(store: StoreView, snapshot: Snapshot) -> Diagnosis | None:
    if not store.over:
        return None
    return Diagnosis(
        f"{store.name} is empty and stays so, because its input has ended: {', '.join(store.over)}",
        "The step that met the end has put nothing, and its get may have taken the last element, which is lost then: "
        "count the batches and leave the last put out, or use staged()",
    )


def _nobody_puts(store: StoreView, snapshot: Snapshot) -> Diagnosis | None:
    if store.putters:
        return Diagnosis(
            f"{store.name} is {_emptiness(store)}, and the thread that puts into it has not come to an end",
            "Look at what that thread waits for; its values may depend on something that is empty, too",
        )
    if store.kind == "area":
        ended = "; if its input has ended, leave the last get out" if store.may_be_over else ""
        return Diagnosis(
            f"{store.name} is empty: this run gets from it, and nothing puts into it",
            f"Run its put once before the first step (the warm-up), and then fetch put and get in every step{ended}",
        )
    return Diagnosis(
        f"{store.name} is {_emptiness(store)}, and no thread is putting into it: the thread that should has died, or "
        f"was never started",
        "Start it (tf.train.start_queue_runners starts a QueueRunner); a CustomRunner would have raised its exception",
    )


def _emptiness(store: StoreView) -> str:
    return "empty" if not store.size else f"short of elements ({store.size})"


def _holding(store: StoreView) -> str:
    return "no element" if not store.size else f"{store.size} elements"
