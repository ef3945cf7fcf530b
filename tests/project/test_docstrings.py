"""Every example in a docstring runs and prints what it shows."""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import inspect
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import staging_tf1 as staging

_FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
# Modules that run a program when they are imported.
_NOT_IMPORTED = ("staging_tf1.__main__",)
# Modules whose examples need a package that is an extra.
_NEEDS = {"staging_tf1.sources.arrayrecord": "array_record"}


def _modules_with_examples() -> list[str]:
    found = [module.name for module in pkgutil.walk_packages(staging.__path__, "staging_tf1.")]
    return [name for name in found if name not in _NOT_IMPORTED and ">>> " in _source(name)]


def _source(name: str) -> str:
    spec = importlib.util.find_spec(name)
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).read_text(encoding="utf-8")


def _examples(module: ModuleType) -> Iterator[doctest.DocTest]:
    names = {name: getattr(staging.sources, name) for name in staging.sources.__all__}
    names |= {name: getattr(staging, name) for name in staging.__all__}
    names |= vars(module) | {"np": np, "staging": staging, "tf": tf}
    found = doctest.DocTestFinder(exclude_empty=True).find(module, extraglobs=names)
    return (example for example in found if example.examples)


@pytest.mark.parametrize("name", _modules_with_examples())
def test_the_examples_in_docstrings_run(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    if name in _NEEDS:
        pytest.importorskip(_NEEDS[name])
    module = importlib.import_module(name)
    monkeypatch.chdir(tmp_path)  # an example may write a file
    examples = list(_examples(module))
    assert examples
    for example in examples:
        said: list[str] = []
        with tf.Graph().as_default():
            result = doctest.DocTestRunner(optionflags=_FLAGS).run(example, out=said.append)
        assert result.failed == 0, "".join(said)


def test_the_examples_of_public_names_fit_their_pages() -> None:
    """The site shows them in boxes of 88 columns, where the window has 1,280 pixels."""
    wide = []
    for name, value in [*vars(staging.sources).items(), *((name, getattr(staging, name)) for name in staging.__all__)]:
        owners = [value, *vars(value).values()] if isinstance(value, type) else [value]
        for text in (inspect.getdoc(each) or "" for each in owners if callable(each)):
            examples = doctest.DocTestParser().get_examples(text)
            lines = [line for each in examples for line in (each.source + each.want).splitlines()]
            wide += [f"{name}: {line}" for line in lines if len(line) > 84]
    assert wide == []
