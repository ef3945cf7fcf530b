"""Exceptions of worker processes: type, values, causes, and a traceback with files and lines."""

from __future__ import annotations

import ast
import builtins
import io
import itertools
import subprocess
import sys
import threading
import traceback
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pools import pools
from test_workers_faults import WITH_TESTS
from worker_sources import Reporting

import staging_tf1 as staging
from staging_tf1.errors import SourceError
from staging_tf1.workers.failures import WorkerTraceback, described, raised

# Python 3.10 has none.
ExceptionGroup: Any = getattr(builtins, "ExceptionGroup", None)
BaseExceptionGroup: Any = getattr(builtins, "BaseExceptionGroup", None)


class BadImage(ValueError):
    """Has a constructor of its own, which accepts `args` and makes another exception of them."""

    def __init__(self, path: str, reason: str = "none") -> None:
        super().__init__(f"{path}: {reason}")
        self.path, self.reason = path, reason


class KeywordOnly(KeyError):
    def __init__(self, *, key: str, width: int) -> None:
        super().__init__(key)
        self.width = width


class OfTheSystem(OSError):
    def __init__(self, name: str, step: int) -> None:
        super().__init__(5, "no answer", name)
        self.step = step


class OwnNew(OSError):
    def __new__(cls, name: str, step: int) -> OwnNew:
        return super().__new__(cls, 5, "no answer", name)

    def __init__(self, name: str, step: int) -> None:
        self.step = step


class Lying(Exception):
    def __reduce__(self) -> Any:
        return ValueError, ("another",)


class Refusing(Exception):
    def __reduce__(self) -> Any:
        raise TypeError("not me")


class Slotted(Exception):
    __slots__ = ("empty", "width")

    def __init__(self, width: int) -> None:
        self.width, self.empty = width, None


class Guarded(Exception):
    """Its attributes cannot be set from outside, and its text needs them."""

    def __init__(self, width: int) -> None:
        vars(self)["width"] = width

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("__"):
            raise AttributeError(name)
        super().__setattr__(name, value)

    def __str__(self) -> str:
        return f"{self.width} pixels"  # type: ignore[attr-defined]


def from_cause() -> BaseException:
    return caught(lambda: _raise_from(BadImage("a.png"), FileNotFoundError(2, "no such file", "a.png")))


def _raise_from(error: BaseException, cause: BaseException | None) -> None:
    try:
        raise KeywordOnly(key="k", width=2)
    except KeywordOnly:
        raise error from cause


def caught(call: Callable[[], Any]) -> BaseException:
    try:
        call()
    except BaseException as error:
        return error
    raise AssertionError("it raised nothing")


def groups() -> Iterator[BaseException]:
    if ExceptionGroup is None:
        return

    class OwnGroup(ExceptionGroup):  # type: ignore[misc]
        def __new__(cls, found: list[Exception], code: int) -> Any:
            made = super().__new__(cls, "own", found)
            made.code = code
            return made

    yield ExceptionGroup("both", [BadImage("a"), ExceptionGroup("inner", [OfTheSystem("b", 2)])])
    yield OwnGroup([KeywordOnly(key="k", width=1)], 3)
    yield BaseExceptionGroup("stops", [KeyboardInterrupt(), BadImage("a")])


def errors() -> dict[str, BaseException]:
    made = [
        *(ValueError("a", 3), StopIteration(4), SystemExit(5), KeyboardInterrupt(), zlib.error("z"), KeyError("a")),
        *(
            FileNotFoundError(2, "no such file", "a"),
            OSError(18, "across", "a", None, "b"),
            BlockingIOError(11, "b", 3),
        ),
        *(
            ImportError("no", name="n", path="p"),
            caught(b"\xff".decode),
            caught(lambda: compile("a b", "f.py", "exec")),
        ),
        *(caught(lambda: ().missing), subprocess.CalledProcessError(1, ["a"], b"out")),  # type: ignore[attr-defined]
        *(BadImage("a.png", "dark"), KeywordOnly(key="k", width=2), OfTheSystem("a", 1), OwnNew("a", 1), Slotted(3)),
        *(Lying("a"), Refusing("a"), Guarded(4), caught(lambda: _raise_from(BadImage("a"), None)), from_cause()),
        *groups(),
    ]
    return {f"{number}-{type(error).__name__}": error for number, error in enumerate(made)}


def assert_like(got: BaseException | None, error: BaseException | None) -> None:
    if isinstance(got, WorkerTraceback):
        got = None
    assert type(got) is type(error)
    if got is None or error is None:
        return
    assert (str(got), repr(got), repr(got.args)) == (str(error), repr(error), repr(error.args))
    assert vars(got) == vars(error)
    for name in ("errno", "strerror", "filename", "filename2", "value", "code", "name", "path", "start", "lineno"):
        assert getattr(got, name, "none") == getattr(error, name, "none"), name
    for inner, wanted in itertools.zip_longest(getattr(got, "exceptions", ()), getattr(error, "exceptions", ())):
        assert_like(inner, wanted)


@pytest.mark.parametrize("name", errors())
def test_an_exception_keeps_its_type_values_and_causes(name: str) -> None:
    error = errors()[name]
    got = raised(described(error), "train:0")
    assert_like(got, error)
    assert isinstance(got.__cause__, WorkerTraceback)
    assert str(got.__cause__).startswith('\n"""\nin worker process \'train:0\':\n')
    assert "".join(traceback.format_exception(error)) in str(got.__cause__)


def test_values_that_cannot_be_moved_are_printed_and_nothing_else() -> None:
    error = BadImage("a.png")
    error.file, error.lock, error.held = sys.stdout, threading.Lock(), [io.StringIO("x"), 3]  # type: ignore[attr-defined]
    error.args = ("a", (n for n in ()))
    got: Any = raised(described(error), "train:0")
    assert type(got) is BadImage and (got.path, got.reason) == ("a.png", "none")
    assert got.args == ("a", repr(error.args[1]))
    assert (got.lock, got.held) == (repr(error.lock), repr(error.held))  # type: ignore[attr-defined]


class _Unloadable:
    """Is pickled, and cannot be loaded."""

    def __reduce__(self) -> Any:
        return int, ("x",)

    def __repr__(self) -> str:
        return "unloadable"


def test_an_exception_whose_values_do_not_load_keeps_the_others() -> None:
    error = BadImage("a.png")
    error.found = [_Unloadable()]  # type: ignore[attr-defined]
    got: Any = raised(described(error), "train:0")
    assert type(got) is BadImage and got.path == "a.png" and got.found == "[unloadable]"


def test_a_long_chain_costs_no_type() -> None:
    chain: BadImage | None = None
    for number in range(3000):
        error = BadImage(str(number))
        error.__context__, error.before = chain, chain  # type: ignore[attr-defined]
        chain = error
    assert chain is not None
    got = raised(described(chain), "train:0")
    assert type(got) is BadImage and got.path == "2999"


def test_an_exception_whose_text_fails_keeps_its_type() -> None:
    class Mute(BadImage):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    got: Any = raised(described(Mute("a.png")), "train:0")
    assert type(got) is Mute and got.path == "a.png"


def test_a_local_class_is_caught_and_skipped(graph: Any) -> None:
    class Bad(BadImage):
        pass

    def make(index: int) -> Any:
        if index in (2, 5):
            raise Bad(f"{index}.png", reason="dark")
        return [index]

    with pools(Reporting(9, make)) as (pool,):
        with pytest.raises(Bad, match="2.png: dark") as caught:
            pool.make(2)
        assert caught.value.reason == "dark" and Bad.__init__ is BadImage.__init__
    batch = staging.staged(Reporting(9, make), num_processes=2, ignored_exception_types=Bad)
    with staging.StagingSession() as sess:
        assert [int(sess.run(batch["x"])[0]) for _ in range(7)] == [0, 1, 3, 4, 6, 7, 8]


def test_an_exception_whose_class_cannot_be_made_here_is_named() -> None:
    """Its base refuses subclasses in the training process."""

    def make(index: int) -> Any:
        class Local(Exception):
            def __init_subclass__(cls) -> None:
                if "staging_tf1.workers.worker" not in sys.modules:
                    raise TypeError("not here")

        class Inner(Local):
            pass

        raise Inner(f"inner\n{index}")

    with pools(Reporting(9, make)) as (pool,):
        with pytest.raises(SourceError, match="the source raised, in a worker process: Inner: inner\n4"):
            pool.make(4)


_PROGRAM = Path(__file__).parents[1] / "support" / "raising_program.py"


@pytest.mark.slow_cases("-c|stdin|module")
@pytest.mark.parametrize("way", ["file", "-c", "stdin", "module", "notebook"])
def test_exceptions_of_the_main_program_are_caught(run_python: Any, tmp_path: Path, way: str) -> None:
    program = _PROGRAM.read_text(encoding="utf-8")
    path = tmp_path / "program.py"
    path.write_text(program)
    notebook = f"import linecache\ntext = {program!r}\n{_NOTEBOOK}"
    arguments = {
        "file": [path],
        "-c": ["-c", program],
        "stdin": ["-"],
        "module": ["-m", "program"],
        "notebook": ["-c", notebook],
    }[way]
    env = {"PYTHONPATH": f"{WITH_TESTS['PYTHONPATH']}:{tmp_path}"}
    result = run_python(*arguments, env=env, **({"input": program} if way == "stdin" else {}))
    assert result.returncode == 0, result.stderr
    name = {"-c": "<string>", "stdin": "<stdin>", "notebook": "<cell 1>"}.get(way, str(path))
    found = ast.literal_eval(result.stdout)
    line = program[: program.index("raise BadImage")].count("\n") + 1
    assert found["caught"] == [
        ("BadImage", ("2.png: dark",), "2.png", "WorkerTraceback"),
        ("Own", (), None, "WorkerTraceback"),
    ]
    # Those of a batch, too.
    assert found["kept"] == [True, 5, True]
    assert f'File "{name}", line {line}, in make' in found["traceback"]
    # Python before 3.13 does not know the source of the other two.
    if way in ("file", "module", "notebook"):
        assert 'raise BadImage(f"{index}.png", reason="dark")' in found["traceback"]


_NOTEBOOK = """
linecache.cache["<cell 1>"] = (len(text), None, text.splitlines(True), "<cell 1>")
exec(compile(text, "<cell 1>", "exec"))
"""
