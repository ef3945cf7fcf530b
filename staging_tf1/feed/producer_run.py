"""`ProducerRun`: the feed threads of one producer in one session."""

from __future__ import annotations

import threading
import time
from contextlib import AbstractContextManager, nullcontext

from staging_tf1._tf import is_uninitialized_iterator, profiled, tf
from staging_tf1.errors import UninitializedError
from staging_tf1.feed.batch_reader import BatchReader, FedBatch
from staging_tf1.feed.delivery import Delivery
from staging_tf1.feed.handshake import FeederSide
from staging_tf1.feed.sink_run import FailedBlock
from staging_tf1.feed.source_errors import refuse_unfed
from staging_tf1.feed.threads import (
    PARKED,
    PUTTING,
    WAITING_FOR_SOURCE,
    WAITING_IN_ORDER,
    Rotation,
    Sequencer,
    Stopped,
    ThreadState,
    be_nice,
)
from staging_tf1.graph.state import is_watched

# How long, and how often, to look for an iterator's initializer in a session whose steps are not seen.
_PATIENCE_SECS = 30.0
_LOOK_SECS = 0.1


class Crew:
    """The feed threads of one producer in one session. The first `number` of them work.

    A thread parks between two batches, where it holds none. So the number may change at any moment: the batches and
    their order stay the same.

    Args:
      number: how many threads work at first.

    Attributes:
      number: how many work now.
      ended: whether the parked threads have been told to end.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.ended = False
        self._changed = threading.Condition()

    def admit(self, state: ThreadState) -> bool:
        """Park the calling thread until it is among those that work. Return False if it is to end instead."""
        if state.index < self.number:
            return True
        state.now(PARKED)
        with self._changed:
            self._changed.wait_for(lambda: self.ended or state.index < self.number)
            return not self.ended

    def resize(self, number: int) -> None:
        """Let the first `number` threads work. Others park after their current batch."""
        with self._changed:
            self.number = number
            self._changed.notify_all()

    def end(self) -> None:
        with self._changed:
            self.ended = True
            self._changed.notify_all()


class ProducerRun:
    """One producer in one session. `feed` is the body of each of its threads.

    Args:
      batches: reads the batches.
      rotation: the order of the towers, for an input that they share.
      delivery: takes the batches.

    Attributes:
      on_failed_step: called after a failed step.
    """

    def __init__(self, batches: BatchReader, rotation: Rotation, delivery: Delivery) -> None:
        self.producer = producer = batches.producer
        self.states = [ThreadState(f"feed:{producer.name}:{i}", index=i) for i in range(producer.num_threads)]
        self.crew = Crew(1 if producer.autotune else producer.num_threads)
        self.skipped = batches.skipped
        self.sink = delivery.sinks[producer.tower]
        self._batches, self._rotation, self._delivery = batches, rotation, delivery
        # The name of the event of each put in TensorFlow's profile.
        self._put_event = f"put {producer.name}"
        self._open_threads = producer.num_threads
        # How many threads are in `feed`, and how many have left it.
        self._feeding = self._left = 0
        self.pool = producer.pool
        self._finishing = threading.Event()
        self._lock = threading.Lock()
        self._sequencer = Sequencer(batches.start)
        self._keeps_order = producer.plan.in_order and producer.num_threads > 1
        self._round = batches.start
        self._began = time.perf_counter()
        handshake = self.sink.sink.put.handshake
        self._handshake = None if handshake is None else FeederSide(handshake, self.sink.sink, delivery)
        self.on_failed_step = batches.on_failed_step
        if self._handshake is not None:
            # Wakes a feeder that waits for its taker.
            self.on_failed_step.append(self._handshake.wake)

    def stop(self) -> None:
        """Wake the threads that wait for earlier batches, and the parked ones."""
        self.crew.end()
        self._sequencer.stop()
        self._rotation.stop()
        self._batches.stop()
        if self.pool is not None:
            self.pool.stop()

    def finish(self) -> None:
        """Make the threads end after their current batch, as at the end of the source."""
        if self.producer.chained:
            # The pipeline that it takes from ends and closes its queue. What that queue holds must still be delivered.
            return
        self._finishing.set()
        self.crew.end()
        self._rotation.stop()
        self._batches.stop()

    def resize(self, number: int) -> None:
        self.crew.resize(number)

    def feed(self, state: ThreadState) -> None:
        """Deliver batches until the end of the data, or until the pipeline stops."""
        with self._lock:
            self._feeding += 1
        try:
            self._feed(state)
        finally:
            # Whatever the reason, such as a closed session: parked threads must not wait on.
            self.crew.end()
            self._end_workers()

    def _end_workers(self) -> None:
        """End the worker processes after the last thread."""
        with self._lock:
            self._feeding -= 1
            self._left += 1
            is_last = not self._feeding and (self._left == self.producer.num_threads or self._delivery.stopping)
        if is_last and self.pool is not None:
            self.pool.end()

    def _feed(self, state: ThreadState) -> None:
        state.now(WAITING_FOR_SOURCE)
        be_nice(self.producer.plan.nice)
        try:
            if self._batches.reads:
                self._feed_from_source(state)
            else:
                self._feed_from_graph(state)
        except Stopped:
            if self._delivery.stopping:
                raise
        with self._lock:
            self._open_threads -= 1
            if self._open_threads:
                return
        if not self._delivery.stopping:
            if self._handshake is not None:
                self.sink.close()
                self._handshake.serve_rest()
            self._delivery.producer_ended(self.producer.tower)

    @property
    def _ending(self) -> bool:
        return self._delivery.stopping or self._finishing.is_set()

    def _feed_from_source(self, state: ThreadState) -> None:
        while not self._ending and self.crew.admit(state):
            cpu_began = state.enter_source()
            batch = self._batches.next(state)
            if batch is None:
                return
            source_secs = state.leave_source(cpu_began, WAITING_IN_ORDER)
            with self._in_order(batch):
                if batch.prepared is None:
                    self._delivery.await_round(self.producer.tower)
                    self._batches.leave_out(batch, state)
                    continue
                state.now(PUTTING)
                with profiled(self._put_event, batch=state.batch):
                    self._put(batch, state)
                put_secs = state.now(WAITING_FOR_SOURCE)
            state.put_secs += put_secs
            self._batches.note_put(batch, source_secs, put_secs)
            # Freed first: the next batch may wait for its memory.
            del batch

    def _in_order(self, batch: FedBatch) -> AbstractContextManager[None]:
        return self._sequencer.at(batch.place, batch.batches) if self._keeps_order else nullcontext()

    def _put(self, batch: FedBatch, state: ThreadState) -> None:
        assert batch.prepared is not None
        arrays, records = batch.prepared
        stamp = self._batches.stamp_of(batch)
        if batch.batches > 1:
            self._put_block(batch, state)
            return
        if self._handshake is not None:
            self._handshake.make_room(len(arrays[0]))
        self.sink.put(*arrays, stamp=stamp)
        if self._handshake is not None:
            self._handshake.have_put()
        self._delivery.staged_one(self.producer.tower)
        state.count(arrays, records)

    def _put_block(self, batch: FedBatch, state: ThreadState) -> None:
        assert batch.prepared is not None
        arrays, records = batch.prepared
        error: tf.errors.OpError | None = None
        try:
            count = self.sink.put_block(*arrays, batches=batch.batches)
        except FailedBlock as failed:
            count, error = failed.put, failed.error
        records = records * count // batch.batches
        if self._batches.maps:
            # What `map_fn` returns is not seen. The batch before was as large, or almost.
            state.count_sized(records, count, times=count)
        else:
            state.count([array[: len(array) * count // batch.batches] for array in arrays], records, batches=count)
        if error is not None:
            raise self._batches.failed_in(batch, count, error) from error
        if count < batch.batches:
            raise Stopped

    def _feed_from_graph(self, state: ThreadState) -> None:
        while not self._ending:
            state.now(PUTTING)
            with self._in_rotation():
                if not self._put_computed(state):
                    return
            state.put_secs += state.now(WAITING_FOR_SOURCE)
            state.batches += 1
            self._delivery.staged_one(self.producer.tower)

    def _in_rotation(self) -> AbstractContextManager[None]:
        if not self.producer.plan.in_rotation:
            return nullcontext()
        with self._lock:
            round = self._round
            self._round += 1
        return self._rotation.at(round, self.producer.tower)

    def _put_computed(self, state: ThreadState) -> bool:
        """Put the next batch that is not skipped. Return False at the end.

        A bad batch is skipped within the rotation. Otherwise its tower would fall behind the others, until they waited
        for it with full areas.
        """
        while True:
            was_needed = self._delivery.is_needed.is_set()
            try:
                with profiled(self._put_event):
                    self.sink.put()
            except (tf.errors.OutOfRangeError, Stopped):
                # Caught before the types to skip, which may include Exception.
                return False
            except Exception as error:
                refuse_unfed(error, [self._delivery.pipeline])
                if is_uninitialized_iterator(error):
                    self._await_initializer(was_needed, error)
                elif isinstance(error, self.skipped.types):
                    self._batches.skip(state, error)
                else:
                    raise
            else:
                return True

    def _await_initializer(self, is_needed: bool, error: BaseException) -> None:
        """Wait a moment for the program to initialize its iterator, as a hook does after the threads have started.

        Raises:
          UninitializedError: a step needs a batch, or nothing has told for long whether one does.
        """
        delivery = self._delivery
        unseen = not is_watched(delivery.session)
        if is_needed or (unseen and time.perf_counter() > self._began + _PATIENCE_SECS):
            raise UninitializedError(
                f"'{self.producer.name}': its batches come from an iterator that is uninitialized. Run its initializer "
                f"before the first step: sess.run(iterator.initializer), in a hook's after_create_session(), or with "
                f"tf.train.Scaffold(local_init_op=...)."
            ) from error
        delivery.is_needed.wait(_LOOK_SECS)
