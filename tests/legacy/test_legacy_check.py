"""`staging-tf1 check`: each rule on its documented examples, the corpora, and unusable input."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from legacy_support import PROGRAMS

from staging_tf1.cli import check
from staging_tf1.legacy import source_files
from staging_tf1.legacy.lint import checker
from staging_tf1.legacy.lint.checker import RULES

DOCS = Path(__file__).parents[2] / "docs" / "rules"
_EXPECTED = re.compile(r"# bad: ((?:STG\d+[ ,]*)+)")

Capture = Any


def codes(path: Path) -> list[tuple[int, str]]:
    """Return (line, code) of each finding in a file."""
    return [(found.line, found.code) for found in checker.check(source_files.read(str(path)))]


def planted(path: Path) -> list[tuple[int, str]]:
    """Return (line, code) of each mistake that the comments of a file declare."""
    return [
        (number, code)
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        for match in _EXPECTED.finditer(line)
        for code in re.findall(r"STG\d+", match.group(1))
    ]


def examples(code: str) -> dict[str, str]:
    """Return the bad and the good example on a rule's page."""
    text = (DOCS / f"{code}.md").read_text()
    found = re.findall(r"## (Bad|Good)\n\n```python\n(.*?)```", text, re.DOTALL)
    assert [title for title, _ in found] == ["Bad", "Good"]
    return dict(found)


def test_every_rule_has_its_page_and_every_page_its_rule() -> None:
    assert sorted(RULES) == sorted(path.stem for path in DOCS.glob("STG*.md"))
    index = (DOCS / "README.md").read_text()
    for code, rule in RULES.items():
        assert f"[{code}]({code}.md) | {rule.name} |" in index
        assert (DOCS / f"{code}.md").read_text().startswith(f"# {code} {rule.name}: ")


@pytest.mark.parametrize("code", sorted(RULES))
def test_the_bad_example_has_this_mistake_and_no_other(code: str, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(examples(code)["Bad"])
    assert {found for _, found in codes(tmp_path / "bad.py")} == {code}


@pytest.mark.parametrize("code", sorted(RULES))
def test_the_good_example_has_no_mistake(code: str, tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text(examples(code)["Good"])
    assert codes(tmp_path / "good.py") == []


@pytest.mark.parametrize("path", sorted((PROGRAMS / "planted").glob("*.py")), ids=lambda path: path.stem)
def test_exactly_the_planted_mistakes_are_found(path: Path) -> None:
    assert planted(path)
    assert codes(path) == sorted(planted(path))


@pytest.mark.parametrize("path", sorted((PROGRAMS / "clean").glob("*.py")), ids=lambda path: path.stem)
def test_the_clean_corpus_is_clean(path: Path) -> None:
    assert codes(path) == []


@pytest.mark.parametrize("path", sorted(PROGRAMS.glob("*.py")), ids=lambda path: path.stem)
def test_the_legacy_programs_have_no_mistake_but_their_age(path: Path) -> None:
    # A program may keep a mistake of its time on purpose, and declares it.
    assert {code for _, code in codes(path)} == {code for _, code in planted(path)}


def test_comments_suppress(tmp_path: Path) -> None:
    path = tmp_path / "noqa.py"
    line = "x = tf.contrib.rpc.rpc{}\n"
    for comment, left in [
        ("", ["STG117"]),
        ("  # noqa", []),
        ("  # noqa: STG117", []),
        ("  # NOQA: E501, STG117", []),
        ("  # noqa: STG101", ["STG117"]),
    ]:
        path.write_text("import tensorflow as tf\n" + line.format(comment))
        assert [code for _, code in codes(path)] == left, comment


BAD = (
    "import tensorflow as tf\n"
    "call, area = tf.contrib.rpc.rpc, tf.contrib.staging.StagingArea([tf.float32])\n"
    "got = area.get()\n"
    "sess = tf.Session()\n"
)


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    path = tmp_path / "bad.py"
    path.write_text(BAD)
    return path


def test_it_prints_its_findings(bad: Path, capsys: Capture) -> None:
    assert check.main([str(bad)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        f"{bad}:2:14: STG117 tf.contrib.rpc.rpc: its ops were in a binary of TensorFlow 1; rewrite the code that uses "
        "it",
        f"{bad}:3:7: STG104 nothing is put into this area: get blocks forever",
        "found 2 mistakes in 1 file",
    ]


def test_names_that_run_restores_are_no_mistakes(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "old.py"
    path.write_text(
        "from tensorflow.python.ops import array_ops, control_flow_ops\n"
        "from tensorflow.python.framework.ops import RegisterShape\n"
        "from tensorflow.python.framework import common_shapes\n"
        "rows = array_ops.unstack(control_flow_ops.cond(x, f, g))\n"
        "common_shapes.call_cpp_shape_fn(x)\n"
    )
    restored = " is restored by staging-tf1 run, and gone in plain Python. "
    register = f"tensorflow.python.framework.ops.RegisterShape{restored}It has no public replacement."
    assert check.main([str(path)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        f"{path}:2:1: STG120 {register}",
        f"{path}:4:8: STG120 tensorflow.python.ops.array_ops.unstack{restored}Use tf.unstack.",
        f"{path}:5:1: STG120 tensorflow.python.framework.common_shapes.call_cpp_shape_fn was removed from TensorFlow "
        "2. TensorFlow infers shapes by itself.",
        "found 1 mistake and 2 names that only staging-tf1 run restores in 1 file",
    ]


# The name of a file, its content, and what is said of it. None: there is no file of this name.
UNREADABLE: list[tuple[str, bytes | None, str]] = [
    ("missing.py", None, "does not exist"),
    (
        "old.py",
        b"import tensorflow as tf\nx = 1\nprint 'loss', x\n",
        "3: is Python 2 (a print statement: \"print 'loss', x\"). Convert it first with 2to3 -w (part of Python up to "
        "3.12) or futurize (from the package 'future')",
    ),
    (
        "latin.py",
        b"# no declaration\nname = '\xe9'\n",
        "2: is not utf-8: byte 0xe9. Declare the encoding in the first line: # -*- coding: latin-1 -*-",
    ),
    ("binary.py", b"\0\1\2", "is not Python source: it contains null bytes"),
    ("notes.txt", b"notes", "is not a Python file (.py)"),
    ("broken.py", b"x = (1,\n", "1: is not valid Python: '(' was never closed"),
    (
        "declared.py",
        b"# -*- coding: klingon -*-\n",
        "1: unknown encoding: klingon; correct the declaration in the first two lines",
    ),
    ("empty", None, "contains no Python files"),
    ("itself.py", None, "is a loop of symbolic links"),
]


@pytest.mark.parametrize(("name", "content", "message"), UNREADABLE)
def test_bad_input_is_named_and_the_other_files_are_done(
    name: str, content: bytes | None, message: str, bad: Path, capsys: Capture
) -> None:
    path = bad.parent / name
    if content is not None:
        path.write_bytes(content)
    elif name == "empty":
        path.mkdir()
    elif name == "itself.py":
        path.symlink_to(path)
    assert check.main([str(path), str(bad)]) == 2
    out, err = capsys.readouterr()
    assert err.startswith(f"staging-tf1 check: {path}:{'' if message[0].isdigit() else ' '}{message}")
    assert err.count("\n") == 1
    assert "found 2 mistakes in 1 file" in out


def test_declared_encodings_are_read(tmp_path: Path) -> None:
    path = tmp_path / "latin.py"
    path.write_bytes(b"# -*- coding: latin-1 -*-\nimport tensorflow.contrib.rpc  # \xe9t\xe9\n")
    assert codes(path) == [(2, "STG117")]


def test_a_loop_of_folders_is_left_out(bad: Path, capsys: Capture) -> None:
    below = bad.parent / "below"
    below.mkdir()
    (below / "again").symlink_to(bad.parent)
    assert check.main([str(bad.parent)]) == 2
    out, err = capsys.readouterr()
    assert err == (f"staging-tf1 check: {below / 'again'}: is a symbolic link to a folder that contains it; skipped\n")
    assert "found 2 mistakes in 1 file" in out


def test_it_needs_no_tensorflow(run_python: Any, bad: Path) -> None:
    blocked = (
        "import sys; sys.modules['tensorflow'] = None\n"
        "from staging_tf1.cli.main import main; sys.exit(main(['check', sys.argv[1]]))"
    )
    ran: subprocess.CompletedProcess[str] = run_python("-c", blocked, bad)
    assert (ran.returncode, ran.stderr) == (1, "")
    assert "found 2 mistakes in 1 file" in ran.stdout


@pytest.mark.parametrize(("count", "said"), [(1, "no findings in 1 file\n"), (2, "no findings in 2 files\n")])
def test_it_says_that_there_are_no_findings(
    count: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(count):
        (tmp_path / f"{number}.py").write_text("x = 1\n")
    assert check.main([str(tmp_path)]) == 0
    assert capsys.readouterr().out == said
    (tmp_path / "bad.py").write_text("x = (\n")
    assert check.main([str(tmp_path)]) == 2
    assert capsys.readouterr().out == ""
