"""Runs a program beside this file, as a user would."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_HERE = Path(__file__).resolve().parent
_ROOT = _HERE.parents[1]


def output_of(program: str, *arguments: str) -> str:
    """Run a program and return what it prints. TensorFlow's own messages are left out."""
    paths = [str(_ROOT), os.environ.get("PYTHONPATH", "")]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "CUDA_VISIBLE_DEVICES": "-1",
    }
    command = [sys.executable, str(_HERE / program), *arguments]
    done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{program} failed:\n{done.stderr}")
    return done.stdout
