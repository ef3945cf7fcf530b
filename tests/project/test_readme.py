"""The Python on the pages runs and fits its column, their commands parse, and their links lead to files."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from forked import ForkServer
from slow import with_slow

from staging_tf1.cli import train

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
# Pages whose Python has tests of its own: mistakes for `staging-tf1 check`, and TensorFlow 1 programs.
OTHERWISE_TESTED = [
    *(ROOT / "docs" / "rules").glob("*.md"),
    ROOT / "docs" / "migrating.md",
    ROOT / "docs" / "estimator.md",
]

_BLOCK = re.compile(r"^ *```(\w+)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
# Where a page has 750 pixels for code, as it has beside the navigation.
_MOST_COLUMNS = 80
# How a typed line begins, and one that continues it, in a block that also shows what is printed.
_PROMPTS = (("$ ", "  "), (">>> ", "... "))
# Runs the programs in a file, all in one process because TensorFlow takes seconds to load.
_RUN_BLOCKS = """
import json
import sys
import tensorflow.compat.v1 as tf
for name, block in json.load(open(sys.argv[1])):
    tf.reset_default_graph()
    exec(compile(block, name, "exec"), {"__name__": "__main__"})
"""


def _blocks(page: Path, language: str) -> list[str]:
    return [text for found, text in _BLOCK.findall(page.read_text(encoding="utf-8")) if found == language]


_PAGES_WITH_PYTHON = [page for page in PAGES if _blocks(page, "python") and page not in OTHERWISE_TESTED]


def _id(page: Path) -> str:
    return str(page.relative_to(ROOT))


# In the default run, all pages share a process, too: the first session of a process takes longer than the others.
_TOGETHER = [[page] for page in _PAGES_WITH_PYTHON] if with_slow() else [_PAGES_WITH_PYTHON]


@pytest.mark.parametrize("pages", _TOGETHER, ids=lambda pages: ",".join(map(_id, pages)))
def test_the_python_on_the_page_runs(pages: list[Path], fork_server: ForkServer, tmp_path: Path) -> None:
    blocks = [(page, number, text) for page in pages for number, text in enumerate(_blocks(page, "python"), start=1)]
    named = [(f"block {number} of {_id(page)}", text) for page, number, text in blocks]
    (tmp_path / "blocks.json").write_text(json.dumps(named), encoding="utf-8")
    done = fork_server.run("-W", "error::UserWarning", "-c", _RUN_BLOCKS, tmp_path / "blocks.json")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=_id)
def test_the_code_on_the_page_fits_its_column(page: Path) -> None:
    """What is printed, or drawn with characters, has a width of its own."""
    wide = []
    for language, block in _BLOCK.findall(page.read_text(encoding="utf-8")):
        prompts = next((prompts for prompts in _PROMPTS if f"\n{prompts[0]}" in f"\n{block}"), "")
        typed = [line for line in block.splitlines() if line.startswith(prompts) and language != "text"]
        wide += [line for line in typed if len(line) > _MOST_COLUMNS]
    assert wide == []


@pytest.mark.parametrize("page", PAGES, ids=_id)
def test_the_links_lead_to_files(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8"))
    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_the_training_commands_are_understood() -> None:
    pages = ROOT / "README.md", ROOT / "docs" / "get_started.md"
    lines = [line for page in pages for block in _blocks(page, "console") for line in block.splitlines()]
    commands = [line.split("staging-tf1 train")[1] for line in lines if "staging-tf1 train" in line]
    assert len(commands) == 4
    for command in commands:
        train.make_parser().parse_args(shlex.split(command))


def test_the_readme_says_what_ci_runs() -> None:
    install, test = "pip install -c constraints.txt '.[test]'", "pytest -n auto --dist loadfile"
    assert f"{install} && {test}" in _blocks(ROOT / "README.md", "console")[1]
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    installs = [line for line in script if line.startswith("pip install")]
    expected = install.replace("-c constraints.txt", '--quiet -c "$constraints"')
    assert installs == [expected, expected.replace("test", "site")]  # the second for the documentation site
    assert script[-1].startswith(test)


@pytest.mark.parametrize("page", PAGES, ids=_id)
def test_the_names_on_the_page_exist(page: Path) -> None:
    import staging_tf1
    from staging_tf1 import sources

    inline = re.findall(
        r"(?<!`)`([^`\n]+)`(?!`)", re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    )
    for module, owner in (("staging", staging_tf1), ("sources", sources)):
        names = {name for text in inline for name in re.findall(rf"(?<![\w./]){module}\.(\w+)", text)}
        assert [name for name in sorted(names) if not hasattr(owner, name)] == []


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8")) <= 5000
