"""A program in a fork of `fork_server.py` behaves as one that a new interpreter runs."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from forked import ForkServer
from processes import RunPython
from slow import with_slow

# The arguments of Python, by what is compared.
PROGRAMS = {
    "words and streams": ["-c", "import sys; print(sys.argv, sys.stdin.read()); print('err', file=sys.stderr)", "-x"],
    "main module": ["-c", "import __main__, sys; print(__name__, __main__ is sys.modules['__main__'], __main__.sys)"],
    "exit code": ["-c", "raise SystemExit(7)"],
    "exit text": ["-c", "raise SystemExit('why')"],
    "exception": ["-c", "import sys; sys.excepthook = lambda *_: print('hook'); 1 / 0"],
    "at exit": ["-c", "import atexit; atexit.register(print, 'bye')"],
    "freed at exit": ["-c", "class A:\n    def __del__(self): print('freed')\na = A()"],
    "thread": ["-c", "import threading, time; threading.Timer(0.01, print, ['late']).start()"],
    "signal": ["-c", "import os, signal; os.kill(os.getpid(), signal.SIGTERM)"],
    "hard exit": ["-c", "import os; os._exit(3)"],
    "warnings": ["-W", "error::UserWarning", "-c", "import warnings; warnings.warn('x', DeprecationWarning)"],
    "module": ["-m", "staging_tf1", "--version"],
    "folder and environment": ["-c", "import os; print(os.getcwd(), os.environ['ADDED'], os.environ['PATH'])"],
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_it_is_like_a_new_interpreter(
    fork_server: ForkServer, run_python: RunPython, tmp_path: Path, program: str
) -> None:
    words = PROGRAMS[program]
    options: dict[str, Any] = dict(input="typed", cwd=tmp_path, env={"ADDED": "1"})
    new = run_python(*words, **options)
    frees = program == "freed at exit"
    for whole_end in {frees, frees or with_slow()}:
        forked = fork_server.run(*words, **options, whole_end=whole_end)
        assert (forked.returncode, forked.stdout, forked.stderr) == (new.returncode, new.stdout, new.stderr)


def test_a_file(fork_server: ForkServer, tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("x = 3")
    path = tmp_path / "program.py"
    path.write_text("import beside, sys; print(beside.x, __file__, sys.argv)")
    assert fork_server.run(path, "word").stdout == f"3 {path} ['{path}', 'word']\n"


def test_tensorflow_is_loaded_and_each_program_has_its_own(fork_server: ForkServer) -> None:
    code = (
        "import random, sys; there = 'tensorflow' in sys.modules\n"
        "import tensorflow.compat.v1 as tf; tf.disable_v2_behavior(); x = tf.constant(1)\n"
        "with tf.Session() as sess: print(there, x.name, sess.run(x), random.random())"
    )
    first, other = (fork_server.run("-c", code).stdout.split() for _ in range(2))
    assert first[:3] == other[:3] == ["True", "Const:0", "1"]
    assert first[3] != other[3]


def test_it_can_be_waited_for_told_and_killed(fork_server: ForkServer) -> None:
    with fork_server.start("-c", "print(input(), flush=True); input()", stdin=subprocess.PIPE) as program:
        assert program.stdin is not None and program.stdout is not None
        program.stdin.write("go\n")
        program.stdin.flush()
        assert program.stdout.readline() == "go\n"
        with pytest.raises(subprocess.TimeoutExpired):
            program.wait(timeout=0)
        program.kill()
        assert program.wait() == -signal.SIGKILL
    program.kill()  # it has ended


PARENT = "import os; print(os.getppid())"


WORKER = Path(__file__).parents[1] / "support" / "fork_worker.py"


def test_a_worker_that_crashes_ends_its_output(run_python: RunPython, shared_folder: Path) -> None:
    # As pytest-xdist waits for it: the process that stands for the worker keeps no end of the pipe.
    code = "import os, signal; print('begun', flush=True); os.kill(os.getpid(), signal.SIGSEGV)"
    ran = run_python(WORKER, shared_folder / "workers", "-c", code)
    assert (ran.returncode, ran.stdout) == (-signal.SIGSEGV, "begun\n")


def test_ctrl_c_is_for_the_programs(fork_server: ForkServer) -> None:
    server = fork_server.run("-c", PARENT).stdout
    os.kill(int(server), signal.SIGINT)
    code = "import os, signal; os.kill(os.getpid(), signal.SIGINT)"
    assert "KeyboardInterrupt" in fork_server.run("-c", code).stderr
    assert fork_server.run("-c", PARENT).stdout == server


def test_connections_share_a_server(fork_server: ForkServer, shared_folder: Path, tmp_path: Path) -> None:
    server = fork_server.run("-c", PARENT).stdout
    other = ForkServer(shared_folder / "fork_server", tmp_path)
    assert other.run("-c", PARENT).stdout == server
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MINE", "1")
        # The environment of the process that asks counts, not that of the one that has started the server.
        assert other.run("-c", "import os; print(os.environ['MINE'], os.getcwd())").stdout == f"1 {tmp_path}\n"
    other.close()
    assert fork_server.run("-c", PARENT).stdout == server
