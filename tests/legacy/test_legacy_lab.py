"""The lab's table, its page, and its runner on a program of ours; the programs themselves need clones."""

from __future__ import annotations

import argparse
import dataclasses
import gzip
import re
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).with_name("lab")))

import run_lab
import run_unit_tests
import unit_file
from jobs import Job, mnist
from table import ROWS, Row

PAGE = Path(__file__).parents[2] / "docs" / "compatibility.md"
LINE = "for step in range(9):\n    print(f'step {step}, loss {0.5 + step:.3f}', flush=True)\n"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_row_is_complete(row: Row) -> None:
    assert re.fullmatch(r"[\w.-]+/[\w.-]+", row.repository)
    assert re.fullmatch(r"[0-9a-f]{40}", row.commit), "a branch moves"
    assert re.compile(row.figures).groups >= 1
    assert row.steps > 0 or row.to_the_end
    assert row.deterministic or row.note or row.known, "say why its figures are not compared"
    assert {flag.partition("=")[0] for flag in row.flags} <= {"--claim-version", "--no-old-names", "--package"}


def test_the_table_names_each_program_once() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS) >= 20


def test_the_page_has_the_table_of_the_results(tmp_path: Path) -> None:
    copy = tmp_path / "page.md"
    copy.write_text(PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    run_lab.write_page(copy, run_lab.read_results())
    assert copy.read_text(encoding="utf-8") == PAGE.read_text(encoding="utf-8"), (
        "run_lab.py --page docs/compatibility.md"
    )


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_program_that_stops_or_differs_has_a_reason(row: Row) -> None:
    known = run_lab.read_results().get(row.name, {})
    states = {version: run_lab.state_of(row, known, version) for version in known if version != run_lab.ORACLE}
    assert not set(states.values()) & {"stops", "differs"} or row.known, states


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> argparse.Namespace:
    """Options for a lab with one clone, whose program prints losses and needs no TensorFlow."""
    clone = tmp_path / "clones" / "program"
    clone.mkdir(parents=True)
    (clone / "train.py").write_text(LINE)
    for arguments in (
        ["init", "-q"],
        ["add", "."],
        ["-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "x"],
    ):
        subprocess.run(["git", "-C", clone, *arguments], check=True)
    (tmp_path / "seeded.py").write_text("import runpy, sys\nsys.argv.pop(0)\nrunpy.run_path(sys.argv[0])\n")
    monkeypatch.setattr(run_lab, "HERE", tmp_path)
    return argparse.Namespace(
        clones=clone.parent, work=tmp_path / "work", oracle=sys.executable, python=sys.executable, only=None, page=None
    )


def small_row(**changes: object) -> Row:
    def driver(clone: Path, data: Path) -> Job:
        return Job(["train.py"])

    row = Row("small", "us/program", "", "train.py", driver, "nothing", 3, r"loss ([\d.]+)")
    return dataclasses.replace(row, **changes)  # type: ignore[arg-type]


def change(lab: argparse.Namespace, text: str) -> None:
    (lab.clones / "program" / "train.py").write_text(text)


def run(lab: argparse.Namespace, row: Row) -> tuple[str, dict[str, dict[str, object]]]:
    known: dict[str, dict[str, object]] = {}
    return run_lab.run_row(row, lab, known), known


def test_equal_figures(lab: argparse.Namespace) -> None:
    said, known = run(lab, small_row())
    assert said == "equal, 3 figures"
    assert known[run_lab.ORACLE]["figures"] == ("0.500", "1.500", "2.500")


def test_a_program_without_end_is_stopped_after_its_figures(lab: argparse.Namespace) -> None:
    change(lab, LINE + "import threading\nthreading.Event().wait()\n")
    assert run(lab, small_row())[0] == "equal, 3 figures"


def test_another_figure_is_found(lab: argparse.Namespace) -> None:
    change(lab, "import sys\nus = 'staging_tf1' in sys.modules\n" + LINE.replace("0.5 +", "0.5 + us +"))
    assert run(lab, small_row())[0].startswith("UNEXPECTED: differs: ('0.500', '1.500', '2.500') and ('1.500', ")
    assert run(lab, small_row(known="it counts modules"))[0].startswith("differs")
    assert run(lab, small_row(deterministic=False))[0] == "runs"


def test_the_first_error_is_told(lab: argparse.Namespace) -> None:
    change(lab, "raise ValueError('a bad batch')\n")
    assert run(lab, small_row())[0] == "UNEXPECTED: stops: ValueError: a bad batch"


def test_data_that_the_oracle_made_is_kept(lab: argparse.Namespace) -> None:
    change(lab, "import sys\nprint('loss', 1.5 if open(sys.argv[1]).read() == 'False' else 2.5)\n")
    make = "import sys\nopen(sys.argv[1], 'w').write(str('staging_tf1' in sys.modules))\n"
    (lab.clones / "program" / "make.py").write_text(make)

    def driver(clone: Path, data: Path) -> Job:
        return Job(["train.py", "{data}/made"], prepare=[["make.py", "{data}/made"]])

    row = small_row(driver=driver, steps=1)
    assert run(lab, row)[0] == "equal, 1 figures"
    lab.oracle = None
    said, known = run(lab, row)
    assert said == "runs" and [result["figures"] for result in known.values()] == [("1.5",)]


def test_a_clone_at_another_commit_is_refused(lab: argparse.Namespace) -> None:
    said, _ = run(lab, small_row(commit="0" * 40))
    assert said.startswith("UNEXPECTED: ") and said.endswith(f"checkout {'0' * 40}")


def test_files_of_somebody_else_are_left_alone(tmp_path: Path) -> None:
    for _ in range(2):
        mnist(tmp_path, 8, 4)
    labels = tmp_path / "t10k-labels-idx1-ubyte.gz"
    assert gzip.decompress(labels.read_bytes())[:8] == b"\0\0\x08\x01\0\0\0\x04"
    labels.write_bytes(gzip.compress(b"others"))
    with pytest.raises(FileExistsError, match="Move it away"):
        mnist(tmp_path, 8, 4)
    assert gzip.decompress(labels.read_bytes()) == b"others"


@pytest.mark.parametrize(
    ("theirs", "ours", "expected"),
    [
        (["1.0000"], ["1.0009"], True),
        (["1.0000"], ["1.0020"], False),
        (["0.5"], ["0.6"], True),  # the last digit
        (["nan"], ["nan"], True),
        (["12<|end|>3"], ["12<|end|>4"], False),
        ([], [], False),
    ],
)
def test_what_counts_as_the_same(theirs: list[str], ours: list[str], expected: bool) -> None:
    assert run_lab.same(theirs, ours) == expected


# TensorFlow's own unit tests

UNIT_TESTS = """
import os, unittest
class Cases(unittest.TestCase):
    def test_equal(self):
        self.assertEqual(1, 1)
    def test_other(self):
        self.assertEqual(1, 2)
    def test_parts(self):
        for part in range(3):
            with self.subTest(part):
                self.assertNotEqual(part, 1, "bad part")
    def test_later(self):
        self.skipTest("not here")
    def test_dies(self):
        os._exit(3)
"""


def test_the_page_has_the_tables_of_the_unit_tests(tmp_path: Path) -> None:
    copy = tmp_path / "page.md"
    copy.write_text(PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    run_unit_tests.write_page(copy, run_unit_tests.read_results())
    assert copy.read_text(encoding="utf-8") == PAGE.read_text(encoding="utf-8"), (
        "run_unit_tests.py --page docs/compatibility.md"
    )


def test_every_unit_test_that_fails_has_a_cause() -> None:
    results = run_unit_tests.read_results()
    assert sum(map(len, results[run_unit_tests.ORACLE].values())) > 1500
    failed = [
        (test, error)
        for version, files in results.items()
        if version != run_unit_tests.ORACLE
        for errors in files.values()
        for test, error in errors.items()
    ]
    assert failed and [each for each in failed if run_unit_tests.cause_of(*each) is None] == []


def test_unit_tests_are_recorded_also_behind_one_that_ends_the_process(tmp_path: Path) -> None:
    file = tmp_path / "tensorflow" / "contrib" / "crf" / "small_test.py"
    file.parent.mkdir(parents=True)
    file.write_text(UNIT_TESTS)
    assert (
        run_unit_tests.files_of(tmp_path, ["crf"])
        == run_unit_tests.files_of(tmp_path, None)
        == {"crf.small_test": file}
    )
    options = argparse.Namespace(work=tmp_path / "work", checkout=tmp_path)
    outcomes = run_unit_tests.run_file([sys.executable], file, options, "here")
    assert {name.rpartition(".")[2]: outcome for name, outcome in outcomes.items()} == {
        "test_dies": "the process ended",
        "test_equal": "",
        "test_later": "skipped",
        "test_other": "AssertionError: 1 != 2",
        "test_parts": "AssertionError: 1 == 1 : bad part",
    }
    results: run_unit_tests.Results = {}
    run_unit_tests.add(results, run_unit_tests.ORACLE, "crf.small_test", {"a": "", "b": "", "c": "skipped"})
    run_unit_tests.add(results, "2.21.0", "crf.small_test", {"a": "ValueError: x"})
    assert results["2.21.0"]["crf.small_test"] == {"a": "ValueError: x", "b": "not found"}
    assert "| `crf` | 1 | 2 | 0 |" in run_unit_tests.tables(results)


def test_errors_of_unit_tests_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError:
        assert unit_file.said(sys.exc_info()) == "ValueError: two lines"
    assert "Traceback" in capsys.readouterr().err
