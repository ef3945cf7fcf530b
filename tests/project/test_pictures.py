"""The pictures of the documentation show the code as it is."""

from __future__ import annotations

import json
import re
import statistics
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from processes import RunPython

ROOT = Path(__file__).parents[2]
PICTURES = sorted((ROOT / "docs" / "pictures").glob("*.svg"))
SCREENSHOTS = sorted((ROOT / "docs" / "pictures").glob("*.png"))


def test_the_pictures_are_up_to_date(run_python: RunPython) -> None:
    done = run_python(ROOT / "tools" / "pictures" / "draw.py", "--check")
    assert done.stdout == ""
    assert done.returncode == 0, done.stderr


def test_the_bars_show_the_figures_of_the_page() -> None:
    answers = json.loads((ROOT / "benchmarks" / "loops.json").read_text(encoding="utf-8"))
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    table = page.partition("## Loops on small steps")[2].partition("\n\nPrototypes")[0]
    shown = re.findall(r"^\| [^|]+ \| (0\.\d\d) \|", table, re.MULTILINE)
    assert shown == [f"{statistics.median(us) / 1000:.2f}" for name, us in answers.items() if name != "machine"]


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.stem)
def test_a_picture_is_small_and_complete(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    root = ElementTree.fromstring(text)
    assert len(text) < 20_000
    # Readers who do not see it hear the title; dark pages get dark colors; nothing is loaded from elsewhere.
    assert root.find("{http://www.w3.org/2000/svg}title") is not None
    assert "prefers-color-scheme: dark" in text
    assert "http" not in text.replace('xmlns="http://www.w3.org/2000/svg"', "")


@pytest.mark.parametrize("path", SCREENSHOTS, ids=lambda path: path.stem)
def test_a_screenshot_is_small_and_sharp(path: Path) -> None:
    content = path.read_bytes()
    assert content.startswith(b"\x89PNG\r\n")
    assert len(content) < 200_000
    # The text column of the pages is about 750 pixels wide; dense screens show two pixels for each.
    assert int.from_bytes(content[16:20], "big") >= 1500


def test_the_pages_show_every_picture() -> None:
    pages = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs").rglob("*.md"))
    assert [path.name for path in [*PICTURES, *SCREENSHOTS] if f"(pictures/{path.name})" not in pages] == []
