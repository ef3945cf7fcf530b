"""Progress bars on a terminal. Where stderr is a file or a pipe there are none."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

_Item = TypeVar("_Item")
# Bars that nobody asked for appear only if the work takes longer.
SILENT_SECS = 2.0


def progress_bar(what: str, total: int | None, unit: str, delay_secs: float = 0.0) -> Any:
    """Return a bar that disappears when it is closed, as a context manager with `update(amount)`.

    Args:
      what: the text before the bar, such as the name of a file.
      total: the amount of work; None if unknown.
      unit: of the amount, such as "B" or " records".
      delay_secs: seconds before it appears.
    """
    # None without a console.
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    return tqdm_bar(
        desc=what, total=total, unit=unit, unit_scale=True, leave=False, delay=delay_secs, disable=not is_terminal
    )


def tqdm_bar(**options: Any) -> Any:
    """Return a `tqdm.tqdm`. It is imported here, because worker processes show no bar and should start soon."""
    from tqdm import tqdm

    return tqdm(**options)


def with_progress(items: Iterable[_Item], total: int, what: str) -> Iterator[_Item]:
    """Yield the items of a loop over files, with a bar if that takes longer than `SILENT_SECS`."""
    with progress_bar(what, total, " files", SILENT_SECS) as bar:
        for item in items:
            yield item
            bar.update()
