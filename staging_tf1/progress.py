"""Progress bars on a terminal. Where stderr is a file or a pipe there are none."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, TypeVar

_Item = TypeVar("_Item")
# Bars that were not requested appear only if the work takes longer.
SILENT_SECS = 2.0


def progress_bar(label: str, total: int | None, unit: str, delay_secs: float = 0.0) -> Any:
    """Return a bar that disappears when it is closed, as a context manager with `update(amount)`.

    Args:
      label: the text before the bar, such as the name of a file.
      total: the amount of work; None if unknown.
      unit: of the amount, such as "B" or " records".
      delay_secs: seconds before it appears.
    """
    return tqdm_bar(is_terminal(), desc=label, total=total, unit=unit, unit_scale=True, leave=False, delay=delay_secs)


def is_terminal() -> bool:
    """Whether there is a terminal to show a bar on."""
    return sys.stderr is not None and sys.stderr.isatty()  # None without a console


def tqdm_bar(shown: bool, **options: Any) -> Any:
    """Return a `tqdm.tqdm` with these options, or a substitute if no bar is shown."""
    bar = _bar_class() if shown else None
    # With miniters a bar needs no thread to notice that the work has become slower.
    return _NoBar() if bar is None else bar(miniters=1, **options)


class _NoBar(AbstractContextManager["_NoBar"]):
    """Shows nothing. A disabled bar of tqdm would also have a lock and a thread, and take time to import."""

    n = 0

    def update(self, amount: int = 1) -> None:
        self.n += amount

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


@functools.cache
def _bar_class() -> Any:
    try:
        from tqdm import tqdm
    except ImportError:  # `check` runs where nothing is installed
        return None

    class Bar(tqdm):  # type: ignore[type-arg]
        monitor_interval = 0

    # tqdm's own lock is shared with forked processes. If one is killed while it holds it, all others wait forever.
    Bar.set_lock(threading.RLock())
    return Bar


def with_progress(items: Iterable[_Item], total: int, label: str) -> Iterator[_Item]:
    """Yield the items of a loop over files, with a bar if that takes longer than `SILENT_SECS`."""
    with progress_bar(label, total, " files", SILENT_SECS) as bar:
        for item in items:
            yield item
            bar.update()
