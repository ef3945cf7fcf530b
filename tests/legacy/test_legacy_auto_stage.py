"""Unmodified programs print the same under `staging-tf1 run` and `staging-tf1 run --auto-stage`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from legacy_support import PROGRAMS, Run, assert_same_numbers, goldens, needs_contrib
from load import slowdown

AUTO = PROGRAMS / "auto"
PREFIX = "staging-tf1 run --auto-stage:"


def said(stderr: str) -> list[str]:
    return [line.removeprefix(PREFIX).strip() for line in stderr.splitlines() if line.startswith(PREFIX)]


# How many graphs are staged, and what is said of one.
STAGED = {
    "csv_tables": (1, "from IteratorGetNext"),
    "two_graphs": (2, "from batch"),
}


@pytest.mark.parametrize("name", STAGED)
def test_a_staged_program_prints_the_same(name: str, staging_run: Run, legacy_run: Run) -> None:
    plain, staged = legacy_run(AUTO / f"{name}.py"), staging_run("--auto-stage", AUTO / f"{name}.py")
    assert staged.returncode == 0, staged.stderr[-3000:]
    graphs, words = STAGED[name]
    lines = said(staged.stderr)
    assert sum("ops run ahead of the step" in line for line in lines) == graphs, lines
    assert any(words in line for line in lines), lines
    assert staged.stdout == plain.stdout


ESTIMATORS = ["text_columns", *(pytest.param(name, marks=pytest.mark.slow) for name in ("iris_premade", "warm_start"))]


@pytest.mark.parametrize("name", ESTIMATORS)
def test_an_estimator_is_staged_and_gives_the_numbers_of_tensorflow_1(name: str, staging_run: Run) -> None:
    ran = staging_run("--auto-stage", PROGRAMS / "estimator" / f"{name}.py")
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert any("ops run ahead of the step, from IteratorGetNext" in line for line in said(ran.stderr))
    assert_same_numbers(ran.stdout, goldens("estimator")[name], rel=1e-3)


@pytest.mark.slow
def test_with_deterministic_ops_there_are_no_figures(staging_run: Run, legacy_run: Run) -> None:
    plain = legacy_run(AUTO / "csv_tables.py")
    ran = staging_run("--auto-stage", AUTO / "csv_tables.py", env={"TF_DETERMINISTIC_OPS": "1"})
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert ran.stdout == plain.stdout
    assert [line for line in said(ran.stderr) if "ops run ahead" not in line] == []


def test_a_report_changes_nothing(staging_run: Run, legacy_run: Run) -> None:
    plain, reported = legacy_run(AUTO / "csv_tables.py"), staging_run("--auto-stage=report", AUTO / "csv_tables.py")
    assert reported.returncode == 0, reported.stderr[-3000:]
    assert reported.stdout == plain.stdout
    assert "ops would run ahead of the step" in reported.stderr
    assert "IteratorGetNext:0 string (?,)" in reported.stderr
    assert not any("ops run ahead" in line for line in said(reported.stderr))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("runner_endless", "nothing is worth moving"),
        pytest.param("layers_model", "the step uses the graph's own staging area", marks=pytest.mark.slow),
    ],
)
def test_a_program_that_is_refused_runs_as_it_was(
    name: str, words: str, staging_run: Run, tmp_path: Path, try_contrib: str
) -> None:
    if try_contrib and needs_contrib(PROGRAMS / f"{name}.py"):
        pytest.skip(try_contrib)
    # Feeders that are not joined: at the end of the interpreter, a thread that returns from TensorFlow may abort it.
    program = tmp_path / f"{name}.py"
    text = (PROGRAMS / f"{name}.py").read_text(encoding="utf-8")
    program.write_text(f"{text}\nimport os, sys\nsys.stdout.flush()\nos._exit(0)\n", encoding="utf-8")
    ran = staging_run("--auto-stage", program)
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert_same_numbers(ran.stdout, goldens()[name])
    lines = said(ran.stderr)
    assert len(lines) == 1 and lines[0].startswith("not staged: ") and words in lines[0]


def test_where_the_input_waits_a_step_takes_less(staging_run: Run) -> None:
    """20 ms of waiting for the input, beside a step that waits as long."""
    took, printed = [], []
    for flags in ([], ["--auto-stage"]):
        ran = staging_run(*flags, AUTO / "waiting_input.py", 60)
        assert ran.returncode == 0, ran.stderr[-3000:]
        found = re.search(r"([\d.]+) ms a step", ran.stderr)
        assert found is not None
        took.append(float(found.group(1)))
        printed.append(ran.stdout)
    assert printed[0] == printed[1]
    gained = [line for line in said(ran.stderr) if "Unstaged it would take at most about" in line]
    assert len(gained) == 1
    # On an idle machine 1.8 times as fast. Both wait most of the time, so load matters little.
    assert took[0] / took[1] > (1.5 if slowdown() < 1.5 else 1.2), took
