"""Starts a program with the shim installed before its first line runs, and passes it the settings.

Child processes read the settings from one environment variable.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import MutableMapping, Sequence
from dataclasses import asdict, dataclass
from typing import NoReturn

ENVIRONMENT_NAME = "STAGING_TF1_LEGACY"
CLAIMED_VERSION = "1.15.5"
_BOOTSTRAP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bootstrap")


@dataclass(frozen=True)
class Settings:
    """How the program sees TensorFlow."""

    packages: tuple[str, ...] = ()  # top-level names of installed packages that also see TF1
    claim_version: bool = False  # tf.__version__ is 1.15.5 for the program
    old_names: bool = True  # names that numpy and Python removed, such as np.object, are available
    only: tuple[str, ...] = ()  # the names of `tf` that programs see as in TF1; all, if there are none
    compile_runs: bool = True  # runs with the same fetches as before do not parse them again
    stall_secs: float | None = None  # after which a run that waits is explained; None is the environment's, or 60

    def to_environment(self, environment: MutableMapping[str, str]) -> None:
        """Write these settings to `environment`, where every Python child process finds them."""
        environment[ENVIRONMENT_NAME] = json.dumps(asdict(self))


def from_environment() -> Settings | None:
    """Return the settings that the parent process wrote, or None if there are none."""
    text = os.environ.get(ENVIRONMENT_NAME)
    if not text:
        return None
    stored = json.loads(text)
    return Settings(**{**stored, "packages": tuple(stored["packages"]), "only": ()})


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
