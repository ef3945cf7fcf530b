"""The default run leaves out cases, but no kind of case."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from itertools import combinations, product
from pathlib import Path
from typing import Any

import pytest
from order import DURATIONS
from slow import id_of, patterns, redundant


def test_what_is_left_out_has_no_value_that_the_others_lack() -> None:
    cases = [{("row", row), ("column", column)} for row in "abcd" for column in "xyz"]
    kept = [case for index, case in enumerate(cases) if index not in redundant(cases)]
    assert set().union(*kept) == set().union(*cases)
    assert len(kept) == 4
    assert redundant([{"a"}, {"b"}]) == []


def test_what_only_a_soak_has_brings_no_values_together_that_the_others_do_not() -> None:
    def pairs(cases: list[set[str]]) -> set[frozenset[str]]:
        return {frozenset(pair) for case in cases for pair in combinations(case, 2)}

    cases = [{*case} for case in product("abcd", "xyz", "123")]
    kept = [case for index, case in enumerate(cases) if index not in redundant(cases, 2)]
    assert pairs(kept) == pairs(cases)
    assert 12 <= len(kept) < 20
    # Two parameters or one leave nothing out.
    assert redundant([{*case} for case in product("abcd", "xyz")], 2) == redundant([{"a"}, {"b"}], 2) == []


def test_each_pattern_leaves_out_some_cases_of_its_test(request: pytest.FixtureRequest) -> None:
    if request.config.option.markexpr:
        pytest.skip("only a run of all tests has those that are left out")
    cases: dict[Any, set[str]] = defaultdict(set)
    for item in request.session.items:
        for pattern in [*patterns(item, "slow_cases"), *patterns(item, "matrix_cases")]:
            cases[item.nodeid.partition("[")[0], pattern].add(id_of(item))
    for (test, pattern), names in cases.items():
        found = {name for name in names if re.fullmatch(pattern, name)}
        assert found and found != names, f"{test}: {pattern}"


def test_the_recorded_files_exist() -> None:
    files = {path.name for path in Path(__file__).parents[1].rglob("test_*.py")}
    assert set(json.loads(DURATIONS.read_text(encoding="utf-8"))) <= files
