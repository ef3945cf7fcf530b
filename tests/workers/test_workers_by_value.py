"""Functions and classes that are pickled by value, as those of the main program: their files, lines and source text."""

from __future__ import annotations

import functools
import io
import pickle
import threading
import types
from pathlib import Path
from typing import Any

import main_program_child
import pytest

from staging_tf1.workers.by_value import ByValuePickler


def _by_value(value: Any) -> bytes:
    file = io.BytesIO()
    ByValuePickler(file, 5).dump(value)
    return file.getvalue()


def _kinds() -> dict[str, Any]:
    unit = 3

    def plain(x: Any = 2) -> Any:
        """With a docstring."""
        return [(lambda: unit / y)() for y in (x, *range(2))]

    def generator() -> Any:
        yield from (1 / x for x in (1, 0))

    async def coroutine() -> Any:
        def inner() -> float:
            return 1 / 0

        return inner()

    class Kind:
        @property
        def prop(self) -> Any:
            return 1 / 0

        @classmethod
        def of_class(cls) -> Any:
            return 1 / 0

        @staticmethod
        def static() -> Any:
            return 1 / 0

        def method(self) -> Any:
            class Nested:
                value = 1 / unit

            return Nested

    # As tracers and debuggers do.
    constants = (*plain.__code__.co_consts, threading.Lock, print)
    traced = types.FunctionType(plain.__code__.replace(co_consts=constants), globals(), "plain", (), plain.__closure__)
    return {
        "function": plain,
        "lambda": lambda x: 1 / x,
        "generator": generator,
        "coroutine": coroutine,
        "partial": functools.partial(plain, x=1),
        "method": Kind().method,
        "class": Kind,
        "traced": traced,
    }


def _codes(value: Any) -> list[types.CodeType]:
    """The code in a function, partial or class, and in its constants."""
    if isinstance(value, type):
        return [code for name in sorted(vars(value)) for code in _codes(vars(value)[name])]
    if isinstance(value, types.CodeType):
        return [value, *(code for each in value.co_consts for code in _codes(each))]
    for name in ("func", "fget", "__func__", "__code__"):
        if hasattr(value, name):
            return _codes(getattr(value, name))
    return []


@pytest.mark.parametrize("kind", _kinds())
def test_code_that_is_pickled_by_value_keeps_its_file_and_lines(kind: str) -> None:
    value = _kinds()[kind]
    before, after = _codes(value), _codes(pickle.loads(_by_value(value)))
    assert before and len(before) == len(after)
    for old, new in zip(before, after):
        assert old is not new and old.co_filename == new.co_filename == __file__
        assert list(old.co_lines()) == list(new.co_lines()) and old.co_name == new.co_name
        if kind != "traced":
            assert old == new


def test_source_text_of_a_file_is_not_moved() -> None:
    assert b"is not moved" not in _by_value(lambda: None)


def test_what_a_main_program_defines_works_in_a_worker(run_python: Any, tmp_path: Path) -> None:
    """Decorated functions, classes and their methods, and modules that were loaded by path: a table."""
    result = run_python(main_program_child.__file__, tmp_path)
    assert (result.returncode, result.stdout) == (0, "done\n"), result.stderr
