"""Starts a program with the shim installed before its first line runs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import NoReturn

from staging_tf1.legacy.shim.settings import Settings

_BOOTSTRAP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bootstrap")


def launch(program: Sequence[str], settings: Settings) -> NoReturn:
    """Run ``python PROGRAM...`` in place of this process: a script or ``-m`` and a module, with arguments.

    Python itself runs the program, so ``__main__``, ``sys.argv``, exit codes, signals and tracebacks are the usual
    ones. Child processes (spawned workers, ``subprocess`` calls of ``sys.executable``) get the shim through the
    environment. `runpy` in this process would break each of these.
    """
    environment = dict(os.environ)
    settings.to_environment(environment)
    inherited = environment.get("PYTHONPATH")
    environment["PYTHONPATH"] = os.pathsep.join([_BOOTSTRAP, inherited] if inherited else [_BOOTSTRAP])
    command = [sys.executable, *_interpreter_flags(), *program]
    sys.stdout.flush()
    sys.stderr.flush()
    if os.name == "posix":
        os.execve(sys.executable, command, environment)
    # On Windows, exec does not keep the console and the exit code.
    sys.exit(subprocess.call(command, env=environment))


def _interpreter_flags() -> list[str]:
    flags = [*(f"-W{option}" for option in sys.warnoptions)]
    flags += [
        "-" + letter * count for letter, count in (("O", sys.flags.optimize), ("b", sys.flags.bytes_warning)) if count
    ]
    if sys.flags.dont_write_bytecode:
        flags.append("-B")
    for name, value in sys._xoptions.items():
        flags.append(f"-X{name}" if value is True else f"-X{name}={value}")
    return flags
