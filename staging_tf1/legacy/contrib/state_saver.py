"""`tf.contrib.training.batch_sequences_with_states`: batches of segments of long sequences, with saved states."""

from __future__ import annotations

from typing import Any

from staging_tf1._tf import tf
from staging_tf1.legacy.contrib import segments
from staging_tf1.legacy.contrib.barrier import Barrier

_ENDS = (tf.errors.OutOfRangeError, tf.errors.CancelledError)


class NextQueuedSequenceBatch:
    """A batch of segments, the states of their sequences, and the ops that save the states after this segment.

    `SequenceQueueingStateSaver` makes it. Each step must run `save_state` of all states: the next segment of a sequence
    is ready when it has them. `tf.nn.static_state_saving_rnn` runs it with its outputs.
    """

    def __init__(self, barrier: Barrier, tokens: Any, batch_size: Any, allow_small_batch: bool) -> None:
        self._barrier = barrier
        self._indices, self._keys, self._values = barrier.take_many(batch_size, allow_small_batch)
        self._batch_size = tf.shape(self._keys)[0]
        self._is_last = self.sequence + 1 >= self.sequence_count
        finished = tf.reduce_sum(tf.cast(self._is_last, tf.int32))
        with tf.control_dependencies([tokens.dequeue_many(finished)]):
            self._states = tf.nest.map_structure(tf.identity, self._values["states"])

    @property
    def batch_size(self) -> Any:
        """The number of segments, an int32 scalar."""
        return self._batch_size

    @property
    def insertion_index(self) -> Any:
        """The position of the sequence in the input, int64 [batch_size]. It starts at -2**63."""
        return self._indices

    @property
    def key(self) -> Any:
        """The keys of the segments, string [batch_size], such as "00000_of_00003:KEY" for the first of three."""
        return self._keys

    @property
    def next_key(self) -> Any:
        """The keys of the next segments, string [batch_size]; "STOP:KEY" after the last."""
        return self._values["next_key"]

    @property
    def sequence(self) -> Any:
        """The numbers of the segments in their sequences, int32 [batch_size]."""
        return self._values["sequence"]

    @property
    def sequence_count(self) -> Any:
        """The number of segments of each sequence, int32 [batch_size]."""
        return self._values["sequence_count"]

    @property
    def length(self) -> Any:
        """The number of time steps in each segment without the padding, int32 [batch_size]."""
        return self._values["length"]

    @property
    def total_length(self) -> Any:
        """The lengths of the sequences without the padding, int32 [batch_size]."""
        return self._values["total_length"]

    @property
    def context(self) -> dict[str, Any]:
        """The context of each sequence by name, [batch_size, ...]."""
        return dict(self._values["context"])

    @property
    def sequences(self) -> dict[str, Any]:
        """The time steps of the segments by name, [batch_size, num_unroll, ...]."""
        return dict(self._values["sequences"])

    def state(self, state_name: str) -> Any:
        """Return the states before the segments, [batch_size, ...]: the initial ones, or what `save_state` saved.

        Raises:
          KeyError: `initial_states` has no such state.
        """
        if state_name not in self._states:
            raise KeyError(f"initial_states has no {state_name!r}, only {', '.join(map(repr, self._states))}")
        return self._states[state_name]

    def save_state(self, state_name: str, value: Any, name: str | None = None) -> Any:
        """Return an op that saves the states for the next segments.

        Raises:
          KeyError: `initial_states` has no such state.
          TypeError: `value` has another type than the state.
          ValueError: `value` has another shape than the state.
        """
        state = self.state(state_name)
        value = tf.convert_to_tensor(value, dtype_hint=state.dtype)
        if value.dtype != state.dtype:
            raise TypeError(f"state {state_name!r} is {state.dtype.name}, got a value of {value.dtype.name}")
        if not value.shape.is_compatible_with(state.shape):
            raise ValueError(f"state {state_name!r} has the shape {state.shape}, got a value of {value.shape}")
        with tf.name_scope(name, "InputQueueingStateSaver_SaveState", [value]), _beside(self._barrier.barrier_ref):
            equal = tf.debugging.assert_equal(
                tf.shape(value), tf.shape(state), message=f"state {state_name} and its new value differ in shape"
            )
            with tf.control_dependencies([equal]):
                goes_on = tf.logical_not(self._is_last)
            return self._barrier.insert(
                self._barrier.components["states"][state_name],
                tf.boolean_mask(self.next_key, goes_on),
                tf.boolean_mask(value, goes_on),
            )


class SequenceQueueingStateSaver:
    """Splits sequences into segments of `num_unroll` time steps, and keeps the states between the segments.

    The arguments are those of `batch_sequences_with_states`, without padding: the length of the sequences must be a
    multiple of `num_unroll`. `prefetch_op` inserts one example. Run it in a `tf.train.QueueRunner`, which takes the
    state saver as its queue.

    Raises:
      TypeError: an argument has the wrong type.
      ValueError: a shape is wrong or unknown, there are no sequences or states, or `capacity` is below `batch_size`.
    """

    def __init__(
        self,
        batch_size: Any,
        num_unroll: int,
        input_length: Any,
        input_key: Any,
        input_sequences: dict[str, Any],
        input_context: dict[str, Any],
        initial_states: dict[str, Any],
        capacity: int | None = None,
        allow_small_batch: bool = False,
        name: str | None = None,
    ) -> None:
        self.batch_size = batch_size
        self.num_unroll = segments.checked_unroll(num_unroll)
        with tf.name_scope(name, "InputQueueingStateSaver") as self.name:
            # Its size limits the examples in the barrier. The barrier holds their segments, whose number is unknown.
            self._tokens = tf.FIFOQueue(-1 if capacity is None else capacity, [tf.int32], [[]])
            with _beside(self._tokens.queue_ref):
                example = segments.Example(
                    key=segments.scalar("input_key", input_key, tf.string),
                    length=segments.scalar("input_length", input_length, tf.int32),
                    sequences=_not_empty("input_sequences", input_sequences, time_steps=True),
                    context=segments.named("input_context", input_context),
                    states=_not_empty("initial_states", initial_states),
                )
                self.barrier = Barrier(segments.specs(example, self.num_unroll))
                self.prefetch_op = self._prefetch(example, _capacity_checks(capacity, batch_size))
                self.next_batch = NextQueuedSequenceBatch(self.barrier, self._tokens, batch_size, allow_small_batch)

    def close(self, cancel_pending_enqueues: bool = False, name: str | None = None) -> Any:
        """Return an op that ends the input. Sequences in the barrier go on, unless their inserts are cancelled.

        Cancelling raises `tf.errors.InvalidArgumentError` if the input has ended and nothing is left to cancel.
        """
        with tf.name_scope(name, "SQSSClose"), _beside(self.barrier.barrier_ref):
            if not cancel_pending_enqueues:
                with tf.control_dependencies([self._tokens.close()]):
                    return self.barrier.close()
            # The kernel never finishes the second close of a barrier that had no incomplete elements at the first.
            left = tf.logical_or(tf.logical_not(self._tokens.is_closed()), self.barrier.incomplete_size() > 0)
            with tf.control_dependencies([tf.debugging.Assert(left, ["The input has already ended."])]):
                return tf.group(self.barrier.close(True), self._tokens.close(True))

    def _prefetch(self, example: segments.Example, checks: list[Any]) -> Any:
        keys, components = segments.split(example, self.num_unroll, checks)
        places = {name: self.barrier.components[name] for name in components}
        with tf.control_dependencies([keys]):
            token = self._tokens.enqueue(0)
        with tf.control_dependencies([token]):
            inserted = self.barrier.insert(places, keys, components)
        # The states come last: a first insert with the first key only would give its segment an index of its own.
        with tf.control_dependencies([inserted]):
            states = {name: tf.expand_dims(state, 0) for name, state in example.states.items()}
            return self.barrier.insert(self.barrier.components["states"], keys[:1], states)


def batch_sequences_with_states(
    input_key: Any,
    input_sequences: dict[str, Any],
    input_context: dict[str, Any],
    input_length: Any,
    initial_states: dict[str, Any],
    num_unroll: int,
    batch_size: Any,
    num_threads: int = 3,
    capacity: int = 1000,
    allow_small_batch: bool = True,
    pad: bool = True,
    make_keys_unique: bool = False,
    make_keys_unique_seed: int | None = None,
    name: str | None = None,
) -> NextQueuedSequenceBatch:
    """Return a batch of segments of `num_unroll` time steps, for truncated back-propagation through time.

    The next segment of a sequence follows when `save_state` has saved its states. `tf.train.start_queue_runners` starts
    the threads that insert examples. As in TensorFlow 1.15.5, a batch that is waiting for examples when the input ends
    does not get smaller: it ends the input, or waits on if a sequence in the queue lacks its states.

    Args:
      input_key: the key of the example, a string scalar. Two examples in the queue must not have the same.
      input_sequences: dict of tensors with time steps in the first dimension, all of the same length.
      input_context: dict of tensors that come with every segment of the example.
      input_length: the length without padding, an int32 scalar; None for the length of the sequences, with `pad`.
      initial_states: dict of tensors, the states before the first segment.
      num_unroll: the number of time steps of a segment.
      batch_size: the number of segments of a batch.
      num_threads: the number of threads that insert examples.
      capacity: the number of examples that the queue holds, at least `batch_size`.
      allow_small_batch: whether smaller batches follow when the input ends.
      pad: pads the sequences with zeros to a multiple of `num_unroll`. Otherwise, their length must be one.
      make_keys_unique: adds a random number to each key.
      make_keys_unique_seed: the seed of these numbers.
      name: a name scope for the ops.

    Raises:
      TypeError: an argument has the wrong type, or a tensor is sparse.
      ValueError: a shape is wrong or unknown, there are no sequences or states, or `capacity` is below `batch_size`.
    """
    unroll = segments.checked_unroll(num_unroll)
    if input_length is None and not pad:
        raise ValueError("input_length is None: pass the length of the sequences, or pad=True")
    with tf.name_scope(name, "batch_sequences_with_states"):
        input_sequences = _not_empty("input_sequences", input_sequences, time_steps=True)
        if pad:
            length, input_sequences = segments.padded(input_sequences, unroll)
            input_length = length if input_length is None else input_length
        if make_keys_unique:
            number = tf.random_uniform([], 0, 100000000, tf.int32, seed=make_keys_unique_seed)
            input_key = tf.strings.join([input_key, tf.strings.as_string(number)])
        saver = SequenceQueueingStateSaver(
            batch_size,
            unroll,
            input_length,
            input_key,
            input_sequences,
            input_context,
            initial_states,
            capacity=capacity,
            allow_small_batch=allow_small_batch,
        )
        ready = tf.cast(saver.barrier.ready_size(), tf.float32)
        tf.summary.scalar(f"queue/{saver.barrier.name}/ready_segment_batches_", ready)
        inserts = [saver.prefetch_op] * num_threads
        tf.train.add_queue_runner(tf.train.QueueRunner(saver, inserts, queue_closed_exception_types=_ENDS))
    return saver.next_batch


def _not_empty(what: str, tensors: Any, time_steps: bool = False) -> dict[str, Any]:
    made = segments.named(what, tensors, time_steps)
    if not made:
        raise ValueError(f"{what} is empty, expected at least one tensor")
    return made


def _capacity_checks(capacity: int | None, batch_size: Any) -> list[Any]:
    if capacity is None:
        return []
    size = tf.get_static_value(batch_size) if tf.is_tensor(batch_size) else batch_size
    if size is None:
        return [tf.debugging.assert_less_equal(batch_size, capacity, message="capacity is below batch_size")]
    if capacity < size:
        raise ValueError(f"capacity is {capacity}, expected at least the batch_size, {size}")
    return []


def _beside(reference: Any) -> Any:
    """Place ops on the device of a queue or barrier: these are on the CPU, and so must be the strings around them."""
    return tf.get_default_graph().colocate_with(reference)
