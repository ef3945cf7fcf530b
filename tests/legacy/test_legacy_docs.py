"""docs/migrating.md and docs/estimator.md: every command runs, in order, and prints the documented output."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from forked import QUIET, ForkServer
from legacy_support import HERE, Run, assert_same_numbers, goldens
from slow import with_slow

from staging_tf1.cli.main import main

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "migrating.md"
Capture = Any


def commands(text: str) -> list[tuple[str, str]]:
    """Return (command, output) of the page's console blocks, in order."""
    found = []
    for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            found.append((command, output))
    return found


@pytest.fixture
def run_command(
    run_python: Run, legacy_run: Run, fork_server: ForkServer, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str, Path], str]:
    """Return a function that runs a command of the page in a folder, and returns what it prints.

    A new interpreter for each command takes 10 s in all. The run without slow tests has those of test_legacy_imports.py
    and test_legacy_reports.py.
    """

    def run(command: str, folder: Path) -> str:
        program, *words = shlex.split(command)
        if program == "python":
            return printed_by(fork_server.run(*words, cwd=folder, env=QUIET))
        if with_slow():
            return printed_by(run_python("-m", "staging_tf1", *words, cwd=folder, env=QUIET))
        if words[0] == "run":
            return printed_by(legacy_run(*words[1:], cwd=folder))
        monkeypatch.chdir(folder)
        assert main(words) <= 1
        printed: str = capsys.readouterr().out
        return printed

    return run


def printed_by(ran: subprocess.CompletedProcess[str]) -> str:
    assert ran.returncode <= 1, ran.stderr[-2000:]
    return ran.stdout


@pytest.mark.slow  # test_legacy_check.py and test_legacy_migrate.py have the commands
def test_every_command_prints_what_the_page_says(run_command: Callable[[str, Path], str], tmp_path: Path) -> None:
    text = PAGE.read_text()
    before, after = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (tmp_path / "train.py").write_text(before)
    (tmp_path / "staged.py").write_text(after)
    listed = commands(text)
    assert len(listed) == 7
    for command, output in listed:
        printed = run_command(command, tmp_path)
        if command.startswith(("python ", "staging-tf1 run ")):
            assert_same_numbers(printed, output)  # kernels round differently on other processors
        else:
            assert printed == output, command
    assert sorted(os.listdir(tmp_path)) == ["staged.py", "train.py"]


def test_the_numbers_on_the_page_are_those_of_tensorflow_1() -> None:
    outputs = [
        output
        for command, output in commands(PAGE.read_text())
        if command.endswith(("run train.py", "python train.py", "python staged.py"))
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


FIRST_LOSSES = """
import json
cases = json.load(open("cases.json"))

def first_loss(name):
    return session.run("loss:0", {each + ":0": value for each, value in cases[name]["feeds"].items()})

with tf.Session() as session:
    saver.restore(session, "./model")
    print("batch_norm_by_placeholder step 0 %.5g" % first_loss("batch_norm_by_placeholder"))
with tf.Graph().as_default(), tf.Session() as session:
    tf.saved_model.loader.load(session, ["train"], "exported")
    print("batch_norm_of_keras step 0 %.5g" % first_loss("batch_norm_of_keras"))
"""


def test_graphs_of_1_15_load_without_the_shim_as_the_page_says(fork_server: ForkServer, tmp_path: Path) -> None:
    with tarfile.open(HERE / "goldens" / "saved" / "graphs.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    for name, on_the_page in {"": "model", ".meta": "model.meta"}.items():
        (tmp_path / f"batch_norm_by_placeholder{name}").rename(tmp_path / on_the_page)
    (tmp_path / "batch_norm_of_keras").rename(tmp_path / "exported")
    page = (DOCS / "troubleshooting.md").read_text().partition("### A saved graph")[2]
    page = page.partition("\n## ")[0]
    blocks = re.findall(r"```text\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 2
    ran = fork_server.run("-c", "\n".join([*blocks, FIRST_LOSSES]), cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr[-2000:]
    expected = re.findall(
        "(?:batch_norm_by_placeholder|batch_norm_of_keras) step 0 .*", goldens("saved")["load_graphs"]
    )
    assert_same_numbers(ran.stdout, "\n".join([*expected, ""]))
