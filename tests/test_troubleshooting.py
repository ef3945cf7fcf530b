"""docs/troubleshooting.md has an entry for every message that the package can print."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

_ROOT = Path(__file__).parent.parent
_PAGE = _ROOT / "docs" / "troubleshooting.md"
# The shim for unchanged programs, its rules and its commands have pages of their own.
_ELSEWHERE = ("legacy/", "cli/check.py", "cli/migrate.py", "cli/run.py")
_SAY = {"warn", "warn_explicit", "error", "warning", "info", "complain", "add_note"}
# The checks of arguments that are told what is wanted: what they say ends with it.
_SAY |= {"refuse", "function", "names", "listed", "having"}
# Here messages are made that are said elsewhere: every sentence counts.
_SPOKEN = (
    "doctor/diagnosis.py",
    "graph/meter.py",
    "graph/placement.py",
    "lifecycle/stuck.py",
    "lifecycle/verdict.py",
)
_SENTENCE = 20
# Shorter pieces of a message, such as " got ", stand in many.
_TELLING = 12


def _sites() -> Iterator[tuple[str, str]]:
    """Where the package says something: "file:line", and the longest fixed piece of what it says."""
    for path in sorted((_ROOT / "staging_tf1").rglob("*.py")):
        name = path.relative_to(_ROOT / "staging_tf1").as_posix()
        if name.startswith(_ELSEWHERE):
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if name in _SPOKEN:
            for text in _sentences(tree):
                yield name, text
        for function in _functions(tree):
            for node in ast.walk(function):
                said = _said(node)
                pieces = [piece for each in said for piece in _pieces(each, function, tree)]
                if pieces:
                    yield f"{name}:{node.lineno}", max(pieces, key=len)  # type: ignore[attr-defined]


def _sentences(tree: ast.Module) -> Iterator[str]:
    """The longest piece of each text that is no docstring."""
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, (ast.JoinedStr, ast.Constant)) and id(node) not in docstrings | inside:
            longest = max(_texts(node), key=len, default="")
            if len(longest) >= _SENTENCE:
                yield longest


def _functions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    """Functions and methods; what stands in an inner function belongs to the outer one, too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            yield node


def _said(node: ast.AST) -> list[ast.expr]:
    """The arguments of an exception that is raised, a warning, or a line in the log."""
    if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
        return node.exc.args
    if isinstance(node, ast.Call) and _called(node) in _SAY:
        return node.args
    return []


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _pieces(said: ast.expr, function: ast.FunctionDef, tree: ast.Module) -> list[str]:
    """The fixed pieces of a message; those of the variable or of the function that it comes from, if it has none."""
    own = _texts(said)
    if own:
        return own
    names = {node.id for node in ast.walk(said) if isinstance(node, ast.Name)}
    made: list[ast.expr] = [
        node.value
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and any(getattr(target, "id", None) in names for target in node.targets)
    ]
    helpers = names | {node.attr for node in ast.walk(said) if isinstance(node, ast.Attribute)}
    for each in ast.walk(tree):
        if isinstance(each, ast.FunctionDef) and each.name in helpers:
            made += [node.value for node in ast.walk(each) if isinstance(node, ast.Return) and node.value is not None]
    return [piece for value in made for piece in _texts(value)]


def _texts(expression: ast.expr) -> list[str]:
    constants = (node.value for node in ast.walk(expression) if isinstance(node, ast.Constant))
    # The formats of log lines and templates have their gaps inside.
    pieces = [piece for text in constants if isinstance(text, str) for piece in re.split(r"%[sd]|\{\w+\}", text)]
    return [clean for piece in pieces if len(clean := _plain(piece)) >= _TELLING]


def _plain(text: str) -> str:
    return " ".join(text.split())


_SITES = sorted(set(_sites()))
_ENTRY = re.compile(
    r"^- ``(?P<message>.+?)``\s+\*\*Cause:\*\* (?P<cause>.+?) \*\*Cure:\*\* (?P<cure>.+?\.)$", re.DOTALL
)


def _entries() -> list[str]:
    """The messages that the page lists; each entry must have a cause and a cure."""
    page = _PAGE.read_text(encoding="utf-8")
    entries = [_plain(part) for part in re.split(r"\n(?=- ``|\n|#)", page) if part.startswith("- ``")]
    for entry in entries:
        assert _ENTRY.match(entry), f"wanted '- ``message`` **Cause:** ... **Cure:** ...', got: {entry}"
    return [entry[4 : entry.index("`` **Cause:**")] for entry in entries]


@pytest.mark.parametrize(("where", "piece"), _SITES, ids=[where for where, _ in _SITES])
def test_every_message_has_an_entry(where: str, piece: str) -> None:
    found = any(piece in message for message in _entries())
    assert found, f"{where} says {piece!r}, which docs/troubleshooting.md does not list: add it, with cause and cure"


def test_every_entry_is_a_message_of_the_package() -> None:
    pieces = {piece for _, piece in _SITES}
    stale = [message for message in _entries() if not any(piece in message for piece in pieces)]
    assert not stale, "nothing in the package says this any more"


def test_no_message_stands_there_twice() -> None:
    entries = _entries()
    assert len(set(entries)) == len(entries)
