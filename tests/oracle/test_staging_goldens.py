"""This package's areas answer like those of TensorFlow 1.15.5, which `record_staging.py` recorded."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import tensorflow.compat.v1 as tf

import staging_tf1 as staging

HERE = Path(__file__).parent
GOLDENS = json.loads((HERE / "staging_goldens.json").read_text())


def load_cases() -> ModuleType:
    spec = importlib.util.spec_from_file_location("staging_cases", HERE / "staging_cases.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CASES = load_cases()


def test_the_goldens_are_those_of_the_oracle_and_complete() -> None:
    assert GOLDENS["tensorflow"] == "1.15.5"
    assert sorted(GOLDENS["answers"]) == sorted(case.__name__ for case in CASES.CASES)


@pytest.mark.parametrize("case", CASES.CASES, ids=lambda case: case.__name__)
def test_as_tensorflow_1_15_answered(case: Any) -> None:
    with tf.Graph().as_default():
        answer = CASES._plain(case(tf, staging))
    assert json.loads(json.dumps(answer)) == GOLDENS["answers"][case.__name__]
