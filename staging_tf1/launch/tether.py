"""Runs a program that dies with the process that started it: `python -I -S tether.py PARENT PROGRAM ARGS...`.

PARENT is the process id of `staging-tf1 launch`. On Linux the kernel sends SIGKILL to this process when PARENT ends for
any reason. The program then replaces this process. The setting survives `exec`, but not `fork`: processes that the
program starts are not killed with PARENT, and end only if they notice that their parent or its pipes are gone. As long
as PARENT is alive, it ends them itself, with the process group.

This is a program of its own because Python code between `fork` and `exec` (`preexec_fn`) can deadlock if the parent
has threads, such as those of numpy. It is run by its path, in an isolated interpreter, so it must not import the
package, and nothing in the program's environment can disturb it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
# The exit codes of shells.
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126


def main(parent: int, command: list[str]) -> int:
    """Replace this process by `command`. Return an exit code if that fails."""
    # Python ignores these, and ignored signals stay ignored after exec: `task | head` would not end.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        return 128 + signal.SIGKILL  # the parent ended before the kernel was asked
    try:
        os.execv(command[0], command)
    except OSError as error:
        print(f"cannot run {command[0]!r}: {error.strerror}", file=sys.stderr)
        return _NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_EXECUTABLE


if __name__ == "__main__":
    # Ctrl-C in here ends the process without a traceback, unless it is ignored.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
