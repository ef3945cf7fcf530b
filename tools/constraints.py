"""Writes constraints.txt: the newest releases for each supported Python, and which of them TensorFlow decides.

    make constraints

uv computes what pip would install, without the interpreters and in seconds. Run `.ci/run` before you commit the file.
"""

from __future__ import annotations

import ast
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
TARGET = ROOT / "constraints.txt"

HEAD = """\
# Tested releases of what the extras `test` and `site` install. `make constraints` writes this file.
"""
# .ci/run and noxfile.py read the file up to this line, because they choose another TensorFlow.
TENSORFLOW_HEAD = """
# TensorFlow, and what depends on its version
"""

# Releases by the names of the packages.
Releases = dict[str, str]


def main() -> None:
    pairs = pairs_of_nox()
    newest = max((tensorflow for _, tensorflow in pairs), key=as_numbers)
    pythons = sorted({python for python, _ in pairs}, key=as_numbers)
    found = {python: resolved(python, newest) for python in pythons}
    older = [pair for pair in pairs if pair[1] != newest]
    decided = {
        name
        for python, tensorflow in older
        for name, release in resolved(python, tensorflow).items()
        if found[python].get(name, release) != release
    } | {"tensorflow"}
    lines = {
        name: lines_for(name, found) for name in sorted({name for releases in found.values() for name in releases})
    }
    common = [line for name in lines if name not in decided for line in lines[name]]
    for python, tensorflow in older:
        # Fails if they do not fit this TensorFlow.
        resolved(python, tensorflow, common)
    own = [line for name in lines if name in decided for line in lines[name]]
    text = HEAD + "\n".join(common) + "\n" + TENSORFLOW_HEAD + "\n".join(own) + "\n"
    TARGET.write_text(text, encoding="utf-8")


def pairs_of_nox() -> list[tuple[str, str]]:
    """Return the pairs of Python and TensorFlow in noxfile.py."""
    tree = ast.parse((ROOT / "noxfile.py").read_text(encoding="utf-8"))
    assigned = [statement for statement in tree.body if isinstance(statement, ast.Assign)]
    (found,) = [statement.value for statement in assigned if ast.unparse(statement.targets) == "PAIRS"]
    return list(ast.literal_eval(found))


def as_numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def resolved(python: str, tensorflow: str, constraints: list[str] | None = None) -> Releases:
    """Return the newest releases that fit together."""
    print(f"Python {python}, TensorFlow {tensorflow}", file=sys.stderr)
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        print(f"tensorflow=={tensorflow}.*", *(constraints or ()), sep="\n", file=file, flush=True)
        command = ["uv", "pip", "compile", "--quiet", "--no-header", "--no-annotate", "--python-version", python]
        extras = ["--extra", "test", "--extra", "site", "--constraints", file.name, "pyproject.toml"]
        done = subprocess.run(
            [sys.executable, "-m", *command, *extras], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
        )
    pinned = [line.partition(";")[0].strip().partition("==") for line in done.stdout.splitlines() if "==" in line]
    return {name: release for name, _, release in pinned}


def lines_for(name: str, found: dict[str, Releases]) -> list[str]:
    """Return the lines that pin a package: one for all Pythons, or one for each release, with a marker."""
    lines = []
    for release in dict.fromkeys(releases[name] for releases in found.values() if name in releases):
        pythons = [python for python, releases in found.items() if releases.get(name) == release]
        if pythons == list(found)[-len(pythons) :]:
            marker = f"python_version >= '{pythons[0]}'"
        else:
            marker = " or ".join(f"python_version == '{python}'" for python in pythons)
        lines.append(f"{name}=={release}" + (f"; {marker}" if len(pythons) < len(found) else ""))
    return lines


if __name__ == "__main__":
    main()
