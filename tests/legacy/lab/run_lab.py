"""Runs real TensorFlow 1 programs, unmodified, under TensorFlow 1.15.5 and under `staging-tf1 run`, and compares them.

The programs are not kept here: table.py lists their repositories and commits. A folder of clones holds each under the
name of its row's `clone`, as `git clone` and `git checkout` make them. A driver writes a little data in the
program's own format and says how to start it. What the programs print is compared figure by figure.

    python tests/legacy/lab/run_lab.py --clones ~/lab --oracle ~/tf115/bin/python
    python tests/legacy/lab/run_lab.py --clones ~/lab --python ~/tf215/bin/python --only bert_classifier nmt
    python tests/legacy/lab/run_lab.py --page docs/compatibility.md

Without --oracle, the figures of 1.15.5 are those in results.json, and the data is that of the last run. New results are
added to that file, and --page writes its table into the page.

exit code: 0 every program does what results.json and the table say, 1 otherwise, 2 a clone is missing.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from table import ROWS, Row

from staging_tf1.arguments import CACHE_ENVIRONMENT
from staging_tf1.legacy.contrib import store

HERE = Path(__file__).parent
RESULTS = HERE / "results.json"
ORACLE = "1.15.5"
# TensorFlow's kernels round differently from release to release.
TOLERANCE = 1e-3
# The first line of an error as Python prints it, possibly behind the prefix of a log.
ERROR = re.compile(r"^(?:[\w.]*\.)?(\w*(?:Error|Exception|Interrupt|Exit)\b.*)$")
VERSION = "import importlib.metadata as m; print(m.version('tensorflow'))"


@dataclass(frozen=True)
class Result:
    """What a program printed: the figures that are compared, and the first error if it stopped."""

    figures: tuple[str, ...]
    error: str = ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the lab; return the exit code."""
    options = _options(arguments)
    results = read_results()
    if options.page:
        write_page(options.page, results)
        return 0
    rows = [row for row in ROWS if not options.only or row.name in options.only]
    if missing := sorted({row.clone for row in rows if not (options.clones / row.clone).is_dir()}):
        print(f"{options.clones} lacks {', '.join(missing)}. See the repositories and commits in {HERE / 'table.py'}.")
        return 2
    failed = 0
    for row in rows:
        outcome = run_row(row, options, results.setdefault(row.name, {}))
        failed += outcome.startswith("UNEXPECTED")
        print(f"{row.name}: {outcome}", flush=True)
        RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
    return int(failed > 0)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--clones", type=Path, default=Path("clones"), help="folder of the clones")
    parser.add_argument("--work", type=Path, default=Path("build/lab"), help="folder for data and output")
    parser.add_argument("--oracle", help="interpreter with TensorFlow 1.15.5; default: its recorded figures")
    parser.add_argument("--python", default=sys.executable, help="interpreter for staging-tf1 run; default: this one")
    parser.add_argument("--only", nargs="*", metavar="NAME", help="rows to run; default: all")
    parser.add_argument("--page", type=Path, help="write the table into this page, and run nothing")
    return parser.parse_args(arguments)


def run_row(row: Row, options: argparse.Namespace, known: dict[str, Any]) -> str:
    """Run one program under both; add the results to `known`; return the outcome in words."""
    work = options.work.resolve() / row.name
    clone = (options.clones / row.clone).resolve()
    head = subprocess.run(["git", "-C", clone, "rev-parse", "HEAD"], capture_output=True, text=True)
    if row.commit and head.stdout.strip() != row.commit:
        return f"UNEXPECTED: {clone} is at {head.stdout.strip()[:9]}; git -C {clone} checkout {row.commit}"
    ours = [options.python, "-W", "ignore", "-m", "staging_tf1", "run", *row.flags]
    theirs = [options.oracle, "-W", "ignore"] if options.oracle else None
    # All must read the same data. What programs make differs with the release of Python and its packages, so without an
    # oracle the data of the last run is kept.
    made = work / "data.made"
    keep = theirs is None and made.exists()
    data = work / ("unused" if keep else "data")
    shutil.rmtree(data, ignore_errors=True)
    data.mkdir(parents=True)
    job = row.driver(clone, data)
    if not keep:
        made.unlink(missing_ok=True)
        silent = replace(row, figures="(?!)", steps=0, to_the_end=True)
        for command in job.prepare:
            found = _start(silent, theirs or ours, command, clone, work, "prepared")
            if found.error:
                return f"UNEXPECTED: its data could not be made: {found.error}"
        made.touch()
    if theirs:
        known[ORACLE] = asdict(_start(row, theirs, job.command, clone, work, ORACLE))
    version = version_of(options.python)
    known[version] = asdict(_start(row, ours, job.command, clone, work, version))
    return outcome(row, known, version)


def version_of(python: str) -> str:
    """Return the TensorFlow version of an interpreter without importing it, which takes seconds."""
    found = subprocess.run([python, "-c", VERSION], capture_output=True, text=True)
    return found.stdout.strip()


def _start(row: Row, how: Sequence[str], command: Sequence[str], clone: Path, work: Path, label: str) -> Result:
    work.mkdir(parents=True, exist_ok=True)
    with (work / f"{label}.txt").open("w") as log:
        return start(row, how, command, clone, work, label, log)


def start(
    row: Row, how: Sequence[str], command: Sequence[str], clone: Path, work: Path, label: str, log: Any
) -> Result:
    """Run a command in a copy of the clone, which programs write into; what it prints goes to `log`, line by line."""
    folder = work / label
    shutil.rmtree(folder, ignore_errors=True)
    program = folder / clone.name
    shutil.copytree(clone, program, ignore=shutil.ignore_patterns(".git"))
    (folder / "out").mkdir()
    overlay = work / "data" / "overlay"  # data that the program expects at a fixed place of its own folder
    if overlay.is_dir():
        shutil.copytree(overlay, program, dirs_exist_ok=True)
    places = {"{data}": str(work / "data"), "{out}": str(folder / "out"), "{clones}": str(clone.parent)}
    words = [_placed(word, places) for word in command]
    environment = {
        **os.environ,
        "CUDA_VISIBLE_DEVICES": "",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "PYTHONHASHSEED": "0",
        "PYTHONUNBUFFERED": "1",
        "MPLBACKEND": "Agg",
        "HOME": str(folder / "out"),
        CACHE_ENVIRONMENT: os.path.dirname(store.folder()),
        **{name: _placed(value, places) for name, value in row.environment.items()},
    }
    # -m: the program is a module
    arguments = [*how, str(HERE / "seeded.py"), *words]
    return follow(arguments, row, environment, program / row.folder, log)


def _placed(word: str, places: Mapping[str, str]) -> str:
    for name, path in places.items():
        word = word.replace(name, path)
    return word


def follow(command: Sequence[str], row: Row, environment: Mapping[str, str], folder: Path, log: Any) -> Result:
    """Read what a program prints until it ends, or until it has printed `row.steps` figures if it does not end."""
    figures: list[str] = []
    error = ""
    stopped = False
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        text=True, errors="replace",
    ) as started:  # fmt: skip
        limit = threading.Timer(row.limit_secs, os.killpg, (started.pid, signal.SIGKILL))
        limit.start()
        try:
            for line in started.stdout or ():
                log.write(line)
                figures += [next(filter(None, match.groups())) for match in re.finditer(row.figures, line)]
                if found := ERROR.match(line.strip()):
                    error = found.group(1)
                if len(figures) >= row.steps and not row.to_the_end:
                    stopped = True
                    os.killpg(started.pid, signal.SIGKILL)
                    break
            code = started.wait()
        finally:
            limit.cancel()
            limit.join()
    if stopped or (code == 0 and len(figures) >= row.steps):
        return Result(tuple(figures[: row.steps]))
    if code == -signal.SIGKILL:
        error = f"still running after {row.limit_secs} s, {len(figures)} figures"
    return Result(tuple(figures[: row.steps]), error or f"exit code {code}, {len(figures)} figures")


def outcome(row: Row, known: Mapping[str, Any], version: str) -> str:
    """Return what became of a program: equal, runs, differs or stops; UNEXPECTED if the table does not say so."""
    state = state_of(row, known, version)
    expected = state in ("equal", "runs") or row.known
    text = {
        "equal": f"equal, {len(known[version]['figures'])} figures",
        "runs": "runs",
        "differs": f"differs: {known.get(ORACLE, {}).get('figures')} and {known[version]['figures']}",
        "stops": f"stops: {known[version]['error']}",
    }[state]
    return text if expected else f"UNEXPECTED: {text}"


def state_of(row: Row, known: Mapping[str, Any], version: str) -> str:
    """Return one word for a result."""
    ours = known[version]
    if ours["error"]:
        return "stops"
    if not row.deterministic:
        return "runs"
    oracle = known.get(ORACLE)
    if oracle is None or oracle["error"]:
        return "runs"
    return "equal" if same(oracle["figures"], ours["figures"]) else "differs"


def same(theirs: Sequence[str], ours: Sequence[str]) -> bool:
    """Whether all figures agree to a part of `TOLERANCE`, or to the last digit that was printed."""
    return len(theirs) == len(ours) > 0 and all(_close(*pair) for pair in zip(theirs, ours))


def _close(first: str, second: str) -> bool:
    try:
        left, right = float(first), float(second)
    except ValueError:
        return first == second
    digits = len(first.partition(".")[2].partition("e")[0])
    last_digit = 1.01 * 10.0**-digits if "e" not in first else 0.0
    return math.isclose(left, right, rel_tol=TOLERANCE, abs_tol=last_digit) or (math.isnan(left) and math.isnan(right))


def read_results() -> dict[str, dict[str, Any]]:
    """Return what was found, by row and version."""
    read: dict[str, dict[str, Any]] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    return read


# The page

BEGIN, END = "<!-- lab: begin -->", "<!-- lab: end -->"


def write_page(page: Path, results: Mapping[str, Mapping[str, Any]]) -> None:
    """Replace the table between the two marks of a page."""
    replace_block(page, BEGIN, END, table(results))


def replace_block(page: Path, begin: str, end: str, block: str) -> None:
    """Replace what is between two marks of a page."""
    text = page.read_text(encoding="utf-8")
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    page.write_text(f"{before}{begin}\n\n{block}\n{end}{after}", encoding="utf-8")


def table(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the table of the page, from the rows and their results."""
    versions = sorted({version for known in results.values() for version in known} - {ORACLE})
    lines = [
        f"| program | input | steps | 1.15.5 | {' | '.join(versions)} | remarks |",
        f"|---|---|---|---|{'---|' * len(versions)}---|",
    ]
    lines += [_line(row, results.get(row.name, {}), versions) for row in ROWS]
    return "\n".join(lines) + "\n"


def _line(row: Row, known: Mapping[str, Any], versions: Sequence[str]) -> str:
    oracle = known.get(ORACLE)
    cells = [
        f"{row.repository} `{row.commit[:7]}`<br>{row.program}",
        row.input,
        str(row.steps),
        "" if oracle is None else oracle["error"] or _last(oracle),
        *(_cell(row, known, version) for version in versions),
        " ".join(filter(None, [_flags(row), row.note, row.known])),
    ]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _last(result: Mapping[str, Any]) -> str:
    return result["figures"][-1] if result["figures"] else "ends"


def _cell(row: Row, known: Mapping[str, Any], version: str) -> str:
    if version not in known:
        return ""
    state = state_of(row, known, version)
    shown = known[version]["error"] if state == "stops" else _last(known[version])
    return f"{state}: {shown[:120]}" if state == "stops" else f"{shown}, {state}"


def _flags(row: Row) -> str:
    parts = [f"`run {' '.join(row.flags)}`."] if row.flags else []
    if row.packages:
        parts.append(f"Needs {', '.join(row.packages)}.")
    return " ".join(parts)


if __name__ == "__main__":
    sys.exit(main())
