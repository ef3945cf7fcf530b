"""Each example in docs/datasets.md runs with the real library, if it is installed."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
from forked import ForkServer

PAGE = (Path(__file__).parents[2] / "docs" / "datasets.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## ([^\n]*)\n(.*?)(?=^## |\Z)", "## Start\n" + PAGE, re.MULTILINE | re.DOTALL))
BLOCK = re.compile(r"^```py\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXAMPLES = {title: found[0] for title, text in SECTIONS.items() if (found := BLOCK.findall(text))}
# Runs each argument as a program of its own, all in one process: TensorFlow takes seconds to load.
RUN = """
import sys
for number, block in enumerate(sys.argv[1:]):
    exec(compile(block, f"example {number}", "exec"), {"__name__": "__main__"})
"""


def missing(example: str) -> list[str]:
    """The libraries that an example imports and that are not installed."""
    imported = re.findall(r"^import (\w+)", example, re.MULTILINE)
    return [name for name in imported if importlib.util.find_spec(name) is None]


def test_the_examples_run(fork_server: ForkServer) -> None:
    there = [example for example in EXAMPLES.values() if not missing(example)]
    assert len(there) >= 6
    done = fork_server.run("-c", RUN, *there)
    assert done.returncode == 0, done.stderr


def test_each_kind_of_dataset_has_an_example() -> None:
    kinds = ["A list of files", "torch", "pandas", "HDF5", "Zarr", "Hugging Face"]
    kinds += ["Parquet and Arrow", "WebDataset", "SQLite", "Keras"]
    others = ["Start", "What a record may be", "Cache any dataset"]
    assert list(EXAMPLES) == [*others, kinds[0], "Text of different lengths", *kinds[1:]]


@pytest.mark.parametrize("title", EXAMPLES)
def test_the_library_of_the_example_is_installed(title: str) -> None:
    for name in missing(EXAMPLES[title]):
        pytest.skip(f"{name} is not installed: its example did not run")
