"""Exceptions of the user's source, and of the ops that compute its batches. They never end the data in silence."""

from __future__ import annotations

import contextlib
import re
import sys
import threading
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from absl import logging

from staging_tf1._tf import tf
from staging_tf1.arguments import INT64_MAX, instance, shown, whole
from staging_tf1.errors import BuildError, SourceError
from staging_tf1.graph.callsite import site_of_op
from staging_tf1.graph.dependencies import ancestors

if TYPE_CHECKING:
    from staging_tf1.feed.pipeline import Pipeline


# A session takes the first two for the end of the data. After the other two it restarts, and without a checkpoint it
# silently begins with new variables.
_SIGNALS = (StopIteration, tf.errors.OutOfRangeError, tf.errors.AbortedError, tf.errors.UnavailableError)


class naming_batch:
    """Adds a note with the batch's number to an exception that the source raises."""

    def __init__(self, index: int) -> None:
        self._index = index

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        if error is not None:
            add_note(error, f"raised while the source made batch {self._index}")


def keep_cause(coord: Any) -> None:
    """Let a MonitoredSession re-raise an exception of a source as it is, after a run that has raised it.

    It asks the coordinator for a requested exception, and if there is one, raises that of the run `from None`. The
    cause would be lost, also to the coordinator, which has the same exception.

    Args:
      coord: the coordinator of the session.
    """
    if not isinstance(coord, tf.train.Coordinator) or "raise_requested_exception" in vars(coord):
        return
    itself, ask = weakref.ref(coord), type(coord).raise_requested_exception

    def ask_for_others() -> None:
        handled = sys.exc_info()[1]
        try:
            ask(itself())
        except BaseException as requested:
            if requested is not handled:
                raise

    coord.raise_requested_exception = ask_for_others


class errors_only:
    """Raises `SourceError` in place of an exception that a training session would take for a signal.

    PEP 479 does the same: it turns a StopIteration inside a generator into a RuntimeError.

    Args:
      owner: the owner of the source, for messages: "'train'".
    """

    def __init__(self, owner: str) -> None:
        self._owner = owner

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        if isinstance(error, _SIGNALS):
            raise SourceError(_not_the_end(self._owner, error)) from error


def _not_the_end(owner: str, error: BaseException) -> str:
    kind = type(error).__name__
    batch = "".join(
        note.replace("raised while the source", " while it")
        for note in getattr(error, "__notes__", ())
        if note.startswith("raised while the source")
    )
    message = f": {text}" if (text := text_of(error)) else ""
    return (
        f"{owner}: the source raised {kind}{batch}{message}. This is an error, not the end of the data: a source ends "
        f"with its last batch, a generator by returning. Catch the {kind} in the source, or skip the batch with "
        f"ignored_exception_types."
    )


def text_of(error: BaseException) -> str:
    """Return the text of an exception, even if its own code fails."""
    try:
        return str(error)
    except Exception as failure:
        return f"(its text raises {type(failure).__name__})"


def add_note(error: BaseException, note: str) -> None:
    """`BaseException.add_note`, which Python 3.10 lacks. Does nothing if the exception takes no attributes."""
    with contextlib.suppress(Exception):
        error.__notes__ = [*getattr(error, "__notes__", []), note]


@dataclass(frozen=True)
class SkipRule:
    """Which exceptions are skipped, and how many per session; None is no limit."""

    types: tuple[type[BaseException], ...] = ()
    most: int | None = None


def skip_rule(types: Any, most: Any, caller: str) -> SkipRule:
    """Check the arguments `ignored_exception_types` and `max_ignored`.

    Raises:
      TypeError, ValueError: they are not exception classes, or not a number.
    """
    expected = "subclasses of Exception, such as (tf.errors.DataLossError,)"
    instance(caller, "ignored_exception_types", types, (type, tuple, list, set, frozenset), expected)
    listed = (types,) if isinstance(types, type) else tuple(types)
    for kind in listed:
        if not (isinstance(kind, type) and issubclass(kind, Exception)):
            raise TypeError(f"{caller} got {shown(kind)} in ignored_exception_types, expected {expected}.")
    if most is None:
        return SkipRule(listed)
    number = whole(caller, "max_ignored", most, 0, INT64_MAX, "skipped batches")
    if not listed:
        raise ValueError(f"{caller} got max_ignored={number} without ignored_exception_types. Give both.")
    return SkipRule(listed, number)


class SkipCounter:
    """Counts the batches that one producer skips in one session. Thread-safe."""

    def __init__(self, name: str, rule: SkipRule) -> None:
        self.types = rule.types
        self.count = 0
        self._name, self._most = name, rule.most
        self._lock = threading.Lock()

    def skip(self, error: BaseException) -> None:
        """Count one skipped batch; raise `error` instead if that exceeds the limit."""
        with self._lock:
            if self._most is not None and self.count >= self._most:
                raise error
            self.count += 1
            count = self.count
        kind, text = type(error).__name__, text_of(error)
        logging.warning("'%s' skipped a bad batch (%d so far): %s: %s", self._name, count, kind, text)


_UNFED = re.compile(r"must feed a value for placeholder tensor '([^']+)'")


@contextlib.contextmanager
def naming_unfed(pipelines: Sequence[Pipeline]) -> Iterator[None]:
    """Raise BuildError if a run of the block fails because one of `pipelines` depends on a placeholder."""
    try:
        yield
    except tf.errors.InvalidArgumentError as error:
        refuse_unfed(error, pipelines)
        raise


def refuse_unfed(error: BaseException, pipelines: Sequence[Pipeline]) -> None:
    """Raise BuildError if `error` says that a placeholder is not fed. Only the text tells.

    Args:
      error: of a run without the program's feeds.
      pipelines: whose ops the run has run.
    """
    found = _UNFED.search(str(error)) if isinstance(error, tf.errors.InvalidArgumentError) else None
    if found is None:
        return
    computed = {pipeline: {op.name: op for op in ancestors(_ops_of(pipeline))} for pipeline in pipelines}
    # One inside a function of the graph is in none.
    pipeline = next((pipeline for pipeline in pipelines if found[1] in computed[pipeline]), pipelines[0])
    placeholder = computed[pipeline].get(found[1])
    site = None if placeholder is None else site_of_op(placeholder)
    at = "" if site is None else f" (made at {site})"
    raise BuildError(
        f"{pipeline}: its batches depend on placeholder '{found[1]}'{at}, which nothing feeds: they are computed ahead "
        f"of the steps, without the feeds of a step. {_cure(pipeline, placeholder)}"
    ) from error


def _ops_of(pipeline: Pipeline) -> list[Any]:
    init = [] if pipeline.init is None else [pipeline.init]
    return [*init, *(sink.put.op for sink in pipeline.sinks)]


def _cure(pipeline: Pipeline, placeholder: Any) -> str:
    consumers = [] if placeholder is None else placeholder.outputs[0].consumers()
    if any(op.type.startswith("IteratorFromStringHandle") for op in consumers):
        return (
            "It is the handle of an iterator. Pass the dataset itself to staged(), each dataset to its own, and build "
            "the model on each of them."
        )
    if pipeline.init is not None:
        return (
            "Make the iterator yourself: iterator = tf.data.make_initializable_iterator(dataset), "
            "staged(iterator.get_next()), and feed its initializer in the init_fn of a tf.train.Scaffold, or before "
            "staging.start()."
        )
    return (
        "Apply the placeholder to the staged tensors instead, or replace it by a variable or a "
        "tf.placeholder_with_default()."
    )
