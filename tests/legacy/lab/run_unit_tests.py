"""Runs TensorFlow's own unit tests of `tf.contrib` under TensorFlow 1.15.5 and under `staging-tf1 run`.

The tests are not kept here: they are those of a checkout of tensorflow/tensorflow at the tag v1.15.5 or the branch
r1.15, unmodified. Tests that fail under 1.15.5 do not count.

    python tests/legacy/lab/run_unit_tests.py --checkout ~/tensorflow --oracle ~/tf115/bin/python
    python tests/legacy/lab/run_unit_tests.py --checkout ~/tensorflow --only crf layers.layers_test
    python tests/legacy/lab/run_unit_tests.py --page docs/compatibility.md

Without --oracle, the results of 1.15.5 are those in unit_tests.json. New results are added to that file, and --page
writes its tables into the page.

exit code: 0 each test passes or fails for a reason in causes.py, 1 otherwise, 2 there are no tests.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from causes import CAUSES
from run_lab import ORACLE, replace_block, version_of

from staging_tf1.arguments import CACHE_ENVIRONMENT
from staging_tf1.legacy.contrib import store

HERE = Path(__file__).parent
RESULTS = HERE / "unit_tests.json"
PARTS = "crf framework layers legacy_seq2seq lookup metrics opt rnn seq2seq training".split()
LIMIT_SECS = 900
RESTARTS = 5  # of a file in which a test ended the process

# Version -> part.file -> for 1.15.5, the tests that pass; for others, those of them that do not, and their errors.
Results = dict[str, dict[str, Any]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tests; return the exit code."""
    options = _options(arguments)
    results = read_results()
    if options.page:
        write_page(options.page, results)
        return 0
    files = files_of(options.checkout, options.only)
    if not files:
        print(f"{options.checkout} has no unit tests of tf.contrib. Check out tag v1.15.5 of tensorflow/tensorflow.")
        return 2
    interpreters = {version_of(options.python): [options.python, "-W", "ignore", "-m", "staging_tf1", "run"]}
    if options.oracle:
        interpreters = {ORACLE: [options.oracle, "-W", "ignore"], **interpreters}
    unexplained = 0
    for name, file in files.items():
        for version, command in interpreters.items():
            add(results, version, name, run_file(command, file, options, f"{version}/{name}"))
            RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
        failed = results[list(interpreters)[-1]][name]
        counted = len(results.get(ORACLE, {}).get(name, ()))
        print(f"{name}: {counted - len(failed)} of {counted} pass", flush=True)
        for test, error in failed.items():
            if cause_of(test, error) is None:
                unexplained += 1
                print(f"  UNEXPECTED: {test}: {error}", flush=True)
    return int(unexplained > 0)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--checkout", type=Path, default=Path("tensorflow"), help="folder of TensorFlow's sources")
    parser.add_argument("--work", type=Path, default=Path("build/unit_tests"), help="folder for output")
    parser.add_argument("--oracle", help="interpreter with TensorFlow 1.15.5; default: its recorded results")
    parser.add_argument("--python", default=sys.executable, help="interpreter for staging-tf1 run; default: this one")
    parser.add_argument("--only", nargs="*", metavar="NAME", help="parts or part.file to run; default: all")
    parser.add_argument("--page", type=Path, help="write the tables into this page, and run nothing")
    return parser.parse_args(arguments)


def files_of(checkout: Path, only: Sequence[str] | None) -> dict[str, Path]:
    """Return the files of tests, by part and name."""
    contrib = checkout.resolve() / "tensorflow" / "contrib"
    files = {f"{part}.{path.stem}": path for part in PARTS for path in sorted((contrib / part).rglob("*_test.py"))}
    return {name: path for name, path in files.items() if not only or {name, name.partition(".")[0]} & set(only)}


def run_file(how: Sequence[str], file: Path, options: argparse.Namespace, label: str) -> dict[str, str]:
    """Run the tests of a file; return what became of each."""
    folder = options.work.resolve() / label
    folder.mkdir(parents=True, exist_ok=True)
    results = folder / "results.jsonl"
    results.unlink(missing_ok=True)
    checkout = options.checkout.resolve()
    environment = {
        **os.environ,
        "CUDA_VISIBLE_DEVICES": "",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "TEST_SRCDIR": str(checkout.parent),  # where tests look for their data
        "TEST_WORKSPACE": checkout.name,
        "TEST_TMPDIR": str(folder),
        CACHE_ENVIRONMENT: os.path.dirname(store.folder()),
    }
    with (folder / "output.txt").open("w") as log:
        for _ in range(RESTARTS):
            started = subprocess.Popen(
                [*how, str(HERE / "unit_file.py"), str(file), str(results)],
                cwd=folder,
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                if started.wait(LIMIT_SECS) == 0:
                    break
            except subprocess.TimeoutExpired:
                os.killpg(started.pid, signal.SIGKILL)
                started.wait()
    return read_outcomes(results)


def read_outcomes(results: Path) -> dict[str, str]:
    """Return what became of each test, from the lines that unit_file.py writes."""
    outcomes: dict[str, str] = {}
    failed = set()
    for line in results.read_text().splitlines() if results.exists() else ():
        read = json.loads(line)
        if read["test"] not in failed:
            outcomes[read["test"]] = "skipped" if read["outcome"] == "skipped" else read["error"]
        if read["outcome"] == "failed":
            failed.add(read["test"])
    return outcomes


def add(results: Results, version: str, name: str, outcomes: Mapping[str, str]) -> None:
    """Add what became of the tests of a file. Those of 1.15.5 come first: only what passes there counts."""
    if version == ORACLE:
        kept: Any = sorted(test for test, error in outcomes.items() if not error)
    else:
        found = {test: outcomes.get(test, "not found") for test in results.get(ORACLE, {}).get(name, ())}
        kept = {test: error for test, error in found.items() if error}
    results.setdefault(version, {})[name] = kept


def cause_of(test: str, error: str) -> str | None:
    """Return why a test fails, as a sentence."""
    return next((cause.why for cause in CAUSES if cause.fits(test, error)), None)


def read_results() -> Results:
    """Return what was found."""
    read: Results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    return read


# The page

BEGIN, END = "<!-- unit tests: begin -->", "<!-- unit tests: end -->"


def write_page(page: Path, results: Results) -> None:
    """Replace the tables between the two marks of a page."""
    replace_block(page, BEGIN, END, tables(results))


def tables(results: Results) -> str:
    """Return the tables of the page: how many tests of each part pass, and why the others do not."""
    versions = sorted(set(results) - {ORACLE})
    return "\n".join([*_parts(results, versions), "", *_causes(results, versions)]) + "\n"


def _parts(results: Results, versions: Sequence[str]) -> list[str]:
    lines = [
        f"| part | files | pass under 1.15.5 | {' | '.join(f'of these under {each}' for each in versions)} |",
        f"|---|---|---|{'---|' * len(versions)}",
    ]
    totals: Counter[str] = Counter()
    for part in PARTS:
        passing = {name: len(tests) for name, tests in results[ORACLE].items() if name.startswith(f"{part}.")}
        row = Counter(files=len(passing), oracle=sum(passing.values()))
        for version in versions:
            row[version] = sum(
                passing[name] - len(results[version][name]) for name in passing if name in results[version]
            )
        totals += row
        lines.append(_line(f"`{part}`", row, versions))
    return [*lines, _line("all", totals, versions)]


def _line(part: str, row: Mapping[str, int], versions: Sequence[str]) -> str:
    return "| " + " | ".join([part, *(f"{row[column]:,}" for column in ("files", "oracle", *versions))]) + " |"


def _causes(results: Results, versions: Sequence[str]) -> list[str]:
    found: Counter[tuple[str, str]] = Counter()
    for version in versions:
        for errors in results[version].values():
            found.update((cause_of(test, error) or f"{test}: {error}", version) for test, error in errors.items())
    whys = sorted({why for why, _ in found}, key=lambda why: (-max(found[why, each] for each in versions), why))
    return [
        f"| why the others fail | {' | '.join(versions)} |",
        f"|---|{'---|' * len(versions)}",
        *(f"| {why} | {' | '.join(str(found[why, version]) for version in versions)} |" for why in whys),
    ]


if __name__ == "__main__":
    sys.exit(main())
