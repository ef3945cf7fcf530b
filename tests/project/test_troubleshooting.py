"""docs/troubleshooting.md explains every cause in the stall report, every exception class and every warning class."""

from __future__ import annotations

import ast
import inspect
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from staging_tf1 import errors

_ROOT = Path(__file__).parents[2]
_PAGE = _ROOT / "docs" / "troubleshooting.md"
_STALLS = "A step does not return"

# For each function of staging_tf1/watch that makes a Diagnosis: the entry of each `Diagnosis(...)` in it, from top to
# bottom. Entries are named by their heading, because the wording of a message may change without its cause changing.
_ENTRIES = {
    "diagnose": ["The step is not waiting for input"],
    "_server_gone": ["A parameter server does not answer"],
    "_gradients": ["A synchronous step waits for the other workers"] * 4,
    "_full": ["The area is full"] * 3,
    "_dead": ["The thread that fed a queue met an uninitialized variable", "A feed thread has died"],
    "_idle_runner": ["An initializer waits for a queue", "The queue runner was never started"],
    "_no_records": ["A reader finds no records"],
    "_too_few_gradients": ["An accumulator has too few gradients"],
    "_from_input": ["The thread that fills the queue is waiting"],
    "_incomplete": ["A barrier has incomplete elements"],
    "_starting": ["The worker processes are still starting"],
    "_other_tower": ["A tower is never fetched"],
    "_not_started": ["The feed threads were never started"],
    "_ended": ["The feed threads ended without closing the queue"],
    "_shortfall": ["The queue holds fewer elements than the step takes"] * 2,
    "_in_share": ["Other workers have the remaining batches"] * 2,
    "_in_service": ["The tf.data service delivers nothing"],
    "_in_source": ["The source is slower than the step", "The source is stuck"],
    "_in_graph": ["The ops behind `staged(tensors)` do not return"],
    "_no_thread": ["The feed threads were never started"],
    "_no_put": ["The graph has no put"],
    "_input_over": ["The input has ended and the area is empty"],
    "_no_op_thread": ["A get holds the only thread for ops"],
    "_nobody_puts": [
        "The thread that fills the queue is waiting",
        "The warm-up put is missing",
        "No thread fills the queue",
        "No thread fills the queue",
        "No thread fills the queue",
    ],
}


def _entries() -> Iterator[tuple[str, str, str]]:
    """(section, heading, text) of each entry on the page."""
    section = ""
    for part in re.split(r"^(?=##)", _PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE):
        title, _, text = part.partition("\n")
        if title.startswith("### "):
            yield section, title.removeprefix("### "), text.strip()
        else:
            section = title.removeprefix("## ")


def _diagnoses() -> dict[str, list[str]]:
    """The places, "file:line", where each function there makes a Diagnosis."""
    found = defaultdict(list)
    for path in sorted((_ROOT / "staging_tf1" / "watch").glob("*.py")):
        for function, call in _calls(ast.parse(path.read_text(encoding="utf-8")), ""):
            if "Diagnosis" in (getattr(call.func, "id", ""), getattr(call.func, "attr", "")):
                found[function].append(f"{path.name}:{call.lineno}")
    return found


def _calls(node: ast.AST, function: str) -> Iterator[tuple[str, ast.Call]]:
    """Each call below `node`, and the name of the innermost function that it is in."""
    for child in ast.iter_child_nodes(node):
        inside = child.name if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)) else function
        if isinstance(child, ast.Call):
            yield inside, child
        yield from _calls(child, inside)


def _classes() -> list[str]:
    return [
        name
        for name, value in inspect.getmembers(errors, inspect.isclass)
        if issubclass(value, Exception) and value.__module__ == errors.__name__
    ]


def test_every_diagnosis_has_an_entry() -> None:
    found = _diagnoses()
    assert found
    for function, places in found.items():
        entries = _ENTRIES.get(function, [])
        assert len(places) == len(entries), (
            f"{function}() makes diagnoses at {', '.join(places)}, and {len(entries)} of them are known here: explain "
            f"each in docs/troubleshooting.md, under '{_STALLS}', and name its entry in _ENTRIES"
        )
    assert set(_ENTRIES) == set(found), "_ENTRIES has a function that makes no diagnosis"


def test_the_page_explains_these_stalls_and_no_others() -> None:
    stalls = {heading: text for section, heading, text in _entries() if section == _STALLS}
    causes = {heading for heading in stalls if not heading.startswith("`StallError`")}
    assert causes == {heading for headings in _ENTRIES.values() for heading in headings}
    assert [heading for heading in causes if "**Fix:** " not in stalls[heading]] == []


@pytest.mark.parametrize("name", _classes())
def test_every_exception_and_warning_has_an_entry(name: str) -> None:
    texts = [text for _, heading, text in _entries() if f"`{name}`" in heading]
    assert texts, f"docs/troubleshooting.md has no entry with `{name}` in its heading"
    assert all(texts)


def test_the_page_names_no_other_class() -> None:
    named = {name for _, heading, _ in _entries() for name in re.findall(r"`(\w+(?:Error|Warning))`", heading)}
    assert named == set(_classes())


def _anchor(title: str) -> str:
    return re.sub(r"[^\w-]", "", title.lower().replace(" ", "-"))


def _texts() -> Iterator[str]:
    """Every string of the package; what an f-string inserts is "{}"."""
    for path in (_ROOT / "staging_tf1").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def test_entries_quote_the_messages_of_the_package() -> None:
    quoted = {heading: re.findall(r"^> … (.+)$", text, re.MULTILINE) for _, heading, text in _entries()}
    words = [each for found in quoted.values() for each in found]
    texts = list(_texts())
    assert len(words) == len(set(words)) > 60
    assert [each for each in words if not any(each in text for text in texts)] == []
    stalls = [heading for section, heading, _ in _entries() if section == _STALLS]
    assert [heading for heading in stalls if not quoted[heading] and not heading.startswith("`StallError`")] == []


def test_every_entry_has_a_text_and_a_heading_of_its_own() -> None:
    headings = [heading for _, heading, _ in _entries()]
    assert len(set(headings)) == len(headings)
    assert [heading for _, heading, text in _entries() if not text] == []


def test_the_contents_lead_to_every_section() -> None:
    listed = re.findall(r"^- \[(.+?)\]\(#(.+?)\)", _PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert [title for title, _ in listed] == list(dict.fromkeys(section for section, _, _ in _entries()))
    assert [anchor for _, anchor in listed] == [_anchor(title) for title, _ in listed]
