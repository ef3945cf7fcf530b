"""SIGTERM as an exception in the main thread, as Ctrl-C is one, where the program does not handle it itself."""

from __future__ import annotations

import signal
import threading
from typing import Any, NoReturn


def in_main_thread() -> bool:
    """Whether the caller is in the main thread, the only one that may set handlers of signals."""
    return threading.current_thread() is threading.main_thread()


def catch_sigterm() -> bool:
    """Let the next SIGTERM raise SystemExit in the main thread. A second one ends the process at once.

    Return False, and change nothing, if the program handles SIGTERM, or outside the main thread.
    """
    if not in_main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        return False
    signal.signal(signal.SIGTERM, exit_once)
    return True


def release_sigterm() -> None:
    """Undo `catch_sigterm`, unless the program has set a handler since. For the main thread."""
    if signal.getsignal(signal.SIGTERM) is exit_once:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def exit_once(number: int, frame: Any) -> NoReturn:
    """Raise SystemExit as the handler of a signal, and remove this handler: a second one ends the process at once."""
    signal.signal(number, signal.SIG_DFL)
    raise SystemExit(128 + number)
