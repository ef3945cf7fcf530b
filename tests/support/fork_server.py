"""Runs programs in forks of this process, which has imported TensorFlow: that takes seconds, and a fork milliseconds.

`forked.py` starts it, with a socket to listen on. It must never run a session: none can run in a fork after that.
"""

from __future__ import annotations

import atexit
import builtins
import gc
import json
import linecache
import os
import random
import runpy
import select
import signal
import socket
import sys
import tempfile
import types
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

# Larger than any request: a program of the tests, and the environment.
_MOST_BYTES = 1 << 20


def next_program(listener: socket.socket) -> dict[str, Any]:
    """Answer requests until one asks for a program, and return that in the fork. Exits when nobody can ask any more."""
    clients: list[socket.socket] = []
    while True:
        readable, _, _ = select.select([listener, *clients], [], [])
        for each in readable:
            if each is listener:
                clients.append(listener.accept()[0])
                send(clients[-1], b"ready")
                continue
            request, streams = receive(each)
            if request is None:
                each.close()
                clients.remove(each)
                if not clients:
                    raise SystemExit(0)
            elif answer(each, request, streams):
                for inherited in (listener, *clients):
                    inherited.close()
                return request


def receive(client: socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    """Return a request with its streams, or None at the end of the connection."""
    # It is an error if the client was killed.
    with suppress(ConnectionError):
        message, streams, _, _ = socket.recv_fds(client, _MOST_BYTES, 3)
        if message:
            return json.loads(message), streams
    return None, []


def send(client: socket.socket, message: bytes) -> None:
    """Send an answer. If nobody reads it any more, the next `receive` says so."""
    with suppress(ConnectionError):
        client.send(message)


def answer(client: socket.socket, request: dict[str, Any], streams: list[int]) -> bool:
    """Reap a process, or fork one with these standard streams. Return whether this is the fork."""
    if "pid" in request:
        _, status = os.waitpid(request["pid"], 0)
        send(client, json.dumps(os.waitstatus_to_exitcode(status)).encode())
        return False
    pid = os.fork()
    for number, stream in enumerate(streams):
        if not pid:
            os.dup2(stream, number)
        os.close(stream)
    if pid:
        send(client, json.dumps(pid).encode())
    return not pid


def settle(program: dict[str, Any]) -> list[str]:
    """Make this process what a new interpreter is for the program, and return its words without the options."""
    if program["new_session"]:
        os.setsid()
    os.chdir(program["cwd"])
    for name in program["removed"]:
        os.environ.pop(name, None)
    os.environ.update(program["added"])
    random.seed()
    sys.modules["numpy"].random.seed()
    words: list[str] = program["words"]
    while words[0] == "-W":
        action, _, category = words[1].partition("::")
        warnings.simplefilter(action, getattr(builtins, category or "Warning"))  # type: ignore[arg-type]
        words = words[2:]
    return words


def run(words: list[str]) -> None:
    """Run `-c CODE`, `-m MODULE` or `FILE`, with their arguments, as the main program."""
    kind, *rest = words
    if kind == "-m":
        sys.argv, sys.path[0] = rest, os.getcwd()
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        return
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    if kind == "-c":
        sys.argv, sys.path[0], text, name = ["-c", *rest[1:]], "", rest[0], "<string>"
    else:
        sys.argv, sys.path[0], name = words, str(Path(kind).parent.resolve()), kind
        text = Path(kind).read_text(encoding="utf-8")
        main.__file__ = kind
    if kind == "-c" and sys.version_info >= (3, 13):
        # Tracebacks and warnings show the lines of such a program.
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    exec(compile(text, name, "exec"), main.__dict__)


@contextmanager
def noise_held_back() -> Iterator[None]:
    """Write to the standard error stream only if there is an exception. TensorFlow's import always writes lines."""
    shown = os.dup(2)
    with tempfile.TemporaryFile() as noise:
        os.dup2(noise.fileno(), 2)
        try:
            yield
        except BaseException:
            noise.seek(0)
            os.write(shown, noise.read())
            raise
        finally:
            os.dup2(shown, 2)
            os.close(shown)


def import_all() -> None:
    """Import what the programs use, without searches for garbage, which would take a fifth of the time."""
    gc.disable()
    import tensorflow.compat.v1

    import staging_tf1

    for public in staging_tf1.__all__:
        getattr(staging_tf1, public)
    tensorflow.compat.v1.Session  # noqa: B018  # TensorFlow loads its parts when they are used
    gc.collect()
    # Otherwise each program ends with a search of TensorFlow for garbage, which copies its memory and takes a second.
    gc.freeze()
    gc.enable()


class QuickEnd:
    """Ends a program behind its threads and exit handlers, if it asks for that and has no exception to print.

    The rest, in which Python frees all modules of TensorFlow, takes 0.3 s.
    """

    def __init__(self) -> None:
        self._code: int | None = None
        # The first handler to be registered is the last to be called.
        atexit.register(self._end)

    def run(self, words: list[str]) -> None:
        """Run the program."""
        try:
            run(words)
            self._code = 0
        except SystemExit as ended:
            if ended.code is None or isinstance(ended.code, int):
                self._code = ended.code or 0
            raise

    def _end(self) -> None:
        if self._code is not None:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(self._code & 0xFF)


if __name__ == "__main__":
    # A Ctrl-C in the terminal is for the programs.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    quick_end = QuickEnd()
    with noise_held_back():
        import_all()
    program = next_program(socket.socket(fileno=int(sys.argv[1])))
    # A signal handler of Python's own, as in a new interpreter.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    (run if program["whole_end"] else quick_end.run)(settle(program))
