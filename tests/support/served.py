"""A program of TensorFlow 2 that loads served models, one after another: to import TensorFlow takes it seconds."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import numpy as np

_LOADER = """
import json, sys
import tensorflow as tf
for line in sys.stdin:
    folder, given = json.loads(line)
    served = tf.saved_model.load(folder).signatures["serving_default"]
    spec = served.structured_input_signature[1]
    got = served(**{name: tf.constant(value, spec[name].dtype) for name, value in given.items()})
    print(json.dumps({name: value.numpy().tolist() for name, value in got.items()}), flush=True)
"""


class Loader:
    """The program, which ends with its block."""

    def __enter__(self) -> Loader:
        self._program = subprocess.Popen(
            [sys.executable, "-c", _LOADER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return self

    def __exit__(self, *error: Any) -> None:
        self._program.communicate()

    def __call__(self, folder: str, **given: Any) -> Any:
        """Return what the model in the folder computes of these inputs."""
        assert self._program.stdin is not None and self._program.stdout is not None
        values = {name: np.asarray(value).tolist() for name, value in given.items()}
        self._program.stdin.write(json.dumps([folder, values]) + "\n")
        self._program.stdin.flush()
        answer = self._program.stdout.readline()
        assert answer, f"the program ended with {self._program.wait()}"
        return json.loads(answer)
