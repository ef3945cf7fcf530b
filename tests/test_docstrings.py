"""Every example in a docstring runs and prints what it says."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import staging_tf1 as staging

_FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
# Modules that are the program when they are imported.
_NOT_IMPORTED = ("staging_tf1.__main__",)


def _module_names() -> list[str]:
    found = pkgutil.walk_packages(staging.__path__, "staging_tf1.")
    return ["staging_tf1", *(module.name for module in found if module.name not in _NOT_IMPORTED)]


def _examples(module: ModuleType) -> Iterator[doctest.DocTest]:
    names = {name: getattr(staging.sources, name) for name in staging.sources.__all__}
    names |= {name: getattr(staging, name) for name in staging.__all__}
    names |= vars(module) | {"np": np, "staging": staging, "tf": tf}
    found = doctest.DocTestFinder(exclude_empty=True).find(module, extraglobs=names)
    return (example for example in found if example.examples)


@pytest.mark.parametrize("name", _module_names())
def test_the_examples_in_docstrings_run(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    module = importlib.import_module(name)
    monkeypatch.chdir(tmp_path)  # an example may write a file
    for example in _examples(module):
        said: list[str] = []
        with tf.Graph().as_default():
            result = doctest.DocTestRunner(optionflags=_FLAGS).run(example, out=said.append)
        assert result.failed == 0, "".join(said)
