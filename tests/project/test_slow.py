"""The default run leaves out cases, but no kind of case, and the tables of `slow.py` and `order.py` name real tests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from order import LONG
from slow import LEFT_OUT, THINNED, redundant

FILES = {path.name: path for path in Path(__file__).parents[1].rglob("test_*.py")}


def test_what_is_left_out_has_no_value_that_the_others_lack() -> None:
    cases = [{("row", row), ("column", column)} for row in "abcd" for column in "xyz"]
    kept = [case for index, case in enumerate(cases) if index not in redundant(cases)]
    assert set().union(*kept) == set().union(*cases)
    assert len(kept) == 4
    assert redundant([{"a"}, {"b"}]) == []


@pytest.mark.parametrize("name", THINNED)
def test_the_thinned_tests_exist_and_have_parameters(name: str) -> None:
    text = FILES[name].read_text(encoding="utf-8")
    for test in THINNED[name]:
        assert re.search(rf"^@pytest\.mark\.parametrize(?:(?!^def ).)*^def {test}\(", text, re.MULTILINE | re.DOTALL), (
            test
        )


@pytest.mark.parametrize("name", LEFT_OUT)
def test_each_pattern_leaves_out_some_tests_of_its_file(name: str, request: pytest.FixtureRequest) -> None:
    names = [item.name for item in request.session.items if item.path == FILES[name]]
    if request.config.option.markexpr or not names:
        pytest.skip("only a run of all tests has those that are left out")
    for pattern in LEFT_OUT[name]:
        found = [item for item in names if re.search(pattern, item)]
        assert found and len(found) < len(names), pattern


def test_the_files_that_take_long_exist() -> None:
    assert set(LONG) <= set(FILES)
    assert len(set(LONG)) == len(LONG)
