"""docs/migrating.md and docs/estimator.md: every command runs, in order, and prints the documented output."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import pytest

pytest.importorskip("libcst")

from forked import ForkServer
from legacy_support import QUIET, Run, assert_same_numbers, goldens

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "migrating.md"


def commands(text: str) -> list[tuple[str, str]]:
    """Return (command, output) of the page's console blocks, in order."""
    found = []
    for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            found.append((command, output))
    return found


def test_every_command_prints_what_the_page_says(run_python: Run, fork_server: ForkServer, tmp_path: Path) -> None:
    text = PAGE.read_text()
    program = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert program is not None
    (tmp_path / "train.py").write_text(program.group(1))
    listed = commands(text)
    assert len(listed) == 9
    for command, output in listed:
        first, *rest = shlex.split(command)
        if first == "cat":
            printed = (tmp_path / rest[0]).read_text()
        else:
            words = ["-m", "staging_tf1", *rest] if first == "staging-tf1" else rest
            run = fork_server.run if first == "python" else run_python
            ran = run(*words, cwd=tmp_path, env=QUIET)
            assert ran.returncode <= 1, ran.stderr[-2000:]
            printed = ran.stdout
        if command.startswith(("python ", "staging-tf1 run ")):
            assert_same_numbers(printed, output)  # kernels round differently on other processors
        else:
            assert printed == output, command
    assert os.listdir(tmp_path) == ["train.py"]


def test_the_numbers_on_the_page_are_those_of_tensorflow_1() -> None:
    outputs = [
        output
        for command, output in commands(PAGE.read_text())
        if command.endswith(("run train.py", "python train.py"))
    ]
    assert outputs == [goldens()["feed_thread"]] * 3


def test_the_program_on_the_page_about_estimators(legacy_run: Run, tmp_path: Path) -> None:
    text = (DOCS / "estimator.md").read_text()
    program = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert program is not None
    (tmp_path / "fit.py").write_text(program.group(1))
    ((_, output),) = commands(text)
    ran = legacy_run("fit.py", cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert_same_numbers(ran.stdout, output, rel=1e-3)
