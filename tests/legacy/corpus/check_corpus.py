"""Checks public TensorFlow 1 code with `staging-tf1 check`, and compares each finding with its verdict.

The code is fetched, not kept here: files.tsv lists project, commit and path. findings.tsv holds the verdicts, one line
per finding: project, path, line, code, verdict ("right" or "false") and the reason. A finding without a verdict is
printed as "new", a verdict without its finding as "gone".

    python tests/legacy/corpus/check_corpus.py --folder /tmp/corpus
    python tests/legacy/corpus/check_corpus.py --folder /tmp/corpus --mirror /data/mirrors --quiet

A mirror holds bare repositories by name: owner+name/repo or owner+name/repo/.git.

exit code: 0 every finding has a verdict and 95 % are right, 1 otherwise, 2 the code could not be fetched.
"""

from __future__ import annotations

import argparse
import collections
import csv
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from staging_tf1.legacy.lint import checker
from staging_tf1.legacy.lint.rule import Finding

HERE = Path(__file__).parent
LEAST_RIGHT = 0.95
# Its findings follow from a table of names, which test_legacy_promises.py tests.
NOT_JUDGED = {"STG117"}


class Source(NamedTuple):
    """One file of the corpus."""

    project: str  # owner/name on GitHub
    commit: str
    path: str


class Key(NamedTuple):
    """What identifies a finding: commits are fixed, so lines are, too."""

    project: str
    path: str
    line: int
    code: str


def sources() -> list[Source]:
    """Return the files of the corpus."""
    return [Source(*row) for row in _rows("files.tsv")]


def verdicts() -> dict[Key, tuple[str, str]]:
    """Return the verdict and its reason, by finding."""
    return {
        Key(project, path, int(line), code): (verdict, reason)
        for project, path, line, code, verdict, reason in _rows("findings.tsv")
    }


def _rows(name: str) -> Iterator[list[str]]:
    with open(HERE / name, encoding="utf-8", newline="") as file:
        rows = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        next(rows)  # the header
        yield from rows


# ---- fetching


def fetch(folder: Path, mirror: Path | None) -> None:
    """Write the files of the corpus below `folder`, in a folder for each project."""
    by_project: dict[tuple[str, str], list[str]] = collections.defaultdict(list)
    for source in sources():
        if not (folder / source.project / source.path).exists():
            by_project[source.project, source.commit].append(source.path)
    for (project, commit), paths in by_project.items():
        repository = _mirrored(project, mirror) if mirror else _cloned(project, commit, folder)
        for path in paths:
            content = _git(repository, "show", f"{commit}:{path}")
            target = folder / project / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)


def _mirrored(project: str, mirror: Path) -> Path:
    repository = mirror / project.replace("/", "+") / "repo"
    return repository / ".git" if (repository / ".git").is_dir() else repository


def _cloned(project: str, commit: str, folder: Path) -> Path:
    repository = folder / ".git" / project.replace("/", "+")
    repository.mkdir(parents=True, exist_ok=True)
    _git(repository, "init", "--bare", "--quiet")
    _git(repository, "fetch", "--quiet", "--depth", "1", f"https://github.com/{project}.git", commit)
    return repository


def _git(repository: Path, *words: str) -> bytes:
    return subprocess.run(["git", f"--git-dir={repository}", *words], check=True, stdout=subprocess.PIPE).stdout


# ---- judging


def findings(folder: Path) -> tuple[list[tuple[Key, Finding]], list[str]]:
    """Return the findings in the corpus, and why files could not be read: many are Python 2."""
    found: list[tuple[Key, Finding]] = []
    unreadable = []
    for source in sources():
        result = checker.check_file(str(folder / source.project / source.path))
        if isinstance(result, str):
            unreadable.append(result)
        else:
            judged = [finding for finding in result if finding.code not in NOT_JUDGED]
            found.extend((Key(source.project, source.path, finding.line, finding.code), finding) for finding in judged)
    return found, unreadable


def main() -> int:
    """Fetch, check, compare and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where the corpus is, or is fetched to")
    parser.add_argument("--mirror", type=Path, help="read bare repositories in this folder instead of GitHub")
    parser.add_argument("--quiet", action="store_true", help="print only what is false, new or gone")
    options = parser.parse_args()
    try:
        fetch(options.folder, options.mirror)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"the corpus cannot be fetched: {error}", file=sys.stderr)
        return 2
    start = time.process_time()
    found, unreadable = findings(options.folder)
    secs = time.process_time() - start
    known = verdicts()
    counts: collections.Counter[str] = collections.Counter()
    for key, finding in found:
        verdict, reason = known.pop(key, ("new", ""))
        counts[verdict] += 1
        if verdict != "right" or not options.quiet:
            print(f"{verdict:5} {key.project} {key.path}:{key.line} {key.code} {finding.message} [{reason}]")
    for key in known:
        print("gone ", *key)
    lines = sum(_lines(options.folder / source.project / source.path) for source in sources())
    projects = {source.project for source in sources()}
    print(
        f"{len(sources())} files of {len(projects)} projects, {lines} lines in {secs:.1f} s "
        f"({lines / secs:.0f} lines/s); {len(unreadable)} files are not Python 3\n"
        f"{len(found)} findings: {counts['right']} right, {counts['false']} false, {counts['new']} without a verdict"
    )
    complete = not counts["new"] and not known
    return 0 if complete and counts["right"] >= LEAST_RIGHT * len(found) else 1


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n")


if __name__ == "__main__":
    sys.exit(main())
