"""Which tests are `slow`: the default run leaves them out, because it tests the same promises with fewer cases.

`.ci/run` has them, with half of the random examples. It leaves out those that are also of the `matrix`: only `make
test-all` and `make matrix`, which are `pytest -m ""`, run these. Marks beside the test say so, and a comment there says
what tests the same in the default run:

    @pytest.mark.slow               all cases of the test
    @pytest.mark.slow_cases("2|3")  the cases whose id, as a whole, matches one of these regular expressions
    @pytest.mark.matrix             like `slow`, and of the matrix
    @pytest.mark.matrix_cases("4")  like `slow_cases`, and of the matrix
    @pytest.mark.thinned            of the other cases, all but a few that have each value of each parameter once are
                                    of the matrix

A test that is `thinned` and has three parameters or more has only some of its cases in the matrix, too: each value of a
parameter meets each value of the others. STAGING_TF1_SOAK_SECS, as in `make soak`, selects all cases.
"""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from itertools import combinations
from typing import Any

import pytest

# The marks of a case of the matrix.
_MATRIX = (pytest.mark.slow, pytest.mark.matrix)

# The expression of marks that selects the tests of this run.
_selected = "not slow"


def read_selection(config: pytest.Config) -> None:
    """Note which tests this run selects, for `with_slow` and `examples`."""
    global _selected
    _selected = config.option.markexpr


def with_slow() -> bool:
    """Return whether this run includes the slow tests: then others try more examples, and measure more often."""
    return _selected != "not slow"


def with_all() -> bool:
    """Return whether this run takes as long as it must: then no test leaves out a case."""
    return "STAGING_TF1_SOAK_SECS" in os.environ


def examples(most: int) -> int:
    """Return how many random examples a test tries: `most` in a run of all tests."""
    fewer = {"not slow": 5, "not matrix": 2}.get(_selected, 1)
    return min(most, max(4, most // fewer))


def mark_slow(items: list[pytest.Item]) -> list[pytest.Item]:
    """Give the mark `slow` to the cases that `slow_cases` and `thinned` leave out.

    Return the cases that only a run `with_all` has, and remove them from `items`.
    """
    thinned: dict[Any, list[Any]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("matrix") or _fits(item, "matrix_cases"):
            _add(_MATRIX, item)
        elif _fits(item, "slow_cases"):
            item.add_marker(pytest.mark.slow)
        elif item.get_closest_marker("thinned"):
            thinned[item.path, item.originalname].append(item)  # type: ignore[attr-defined]
    dropped: list[pytest.Item] = []
    for group in thinned.values():
        usual, slow = _thin([rows(item) for item in group])
        for index in slow:
            _add(_MATRIX, group[index])
        dropped += [item for index, item in enumerate(group) if index not in {*usual, *slow}]
    left_out = {*map(id, dropped)}
    items[:] = [item for item in items if id(item) not in left_out]
    return dropped


def some_of(cases: list[tuple[str, ...]]) -> list[Any]:
    """Return parameters of these cases, thinned. The mark cannot: it takes a tuple of parameters for one value."""
    usual, slow = _thin([{*case} for case in cases])
    marks = {index: _MATRIX if index in slow else () for index in sorted([*usual, *slow])}
    return [pytest.param(*cases[index], id="-".join(cases[index]), marks=marked) for index, marked in marks.items()]


def _thin(cases: list[set[Any]]) -> tuple[list[int], list[int]]:
    """Return the indexes of the cases of the default run, and of those that a run with the slow tests adds."""
    repeated = set() if with_all() else {*redundant(cases, 2)}
    kept = [index for index in range(len(cases)) if index not in repeated]
    slow = [kept[place] for place in redundant([cases[index] for index in kept])]
    return [index for index in kept if index not in slow], slow


def _add(marks: tuple[pytest.MarkDecorator, ...], item: pytest.Item) -> None:
    for mark in marks:
        item.add_marker(mark)


def _fits(item: pytest.Item, mark: str) -> bool:
    return any(re.fullmatch(pattern, id_of(item)) for pattern in patterns(item, mark))


def patterns(item: pytest.Item, mark: str) -> list[str]:
    """Return the patterns of cases that the marks of this name leave out."""
    return [pattern for each in item.iter_markers(mark) for pattern in each.args]


def id_of(item: Any) -> str:
    """Return the id of a case: the text in brackets in the name of the test."""
    return str(item.callspec.id)


def rows(item: Any) -> set[Any]:
    """Return what identifies the row of each `parametrize`, and of each fixture with parameters, in this case."""
    params = dict(item.callspec.params)
    together = [mark.args[0] for mark in item.iter_markers("parametrize")]
    groups = [names.replace(" ", "").split(",") if isinstance(names, str) else names for names in together]
    alone = [[name] for name in params if not any(name in names for names in groups)]
    return {tuple((name, id(params[name])) for name in names) for names in [*groups, *alone]}


def redundant(cases: list[set[Any]], together: int = 1) -> list[int]:
    """Return the indexes of the cases whose values are all among those of the others.

    With `together=2`, those whose pairs of values are. Each case that is kept adds most values, and of equal ones those
    that the fewest have.
    """
    parts = [{*map(frozenset, combinations(case, min(together, len(case))))} for case in cases]
    left, used = list(range(len(cases))), Counter[Any]()

    def worth(index: int) -> tuple[int, int]:
        counts = [used[part] for part in parts[index]]
        return counts.count(0), -sum(counts)

    while left:
        best = max(left, key=worth)
        if worth(best)[0] == 0:
            break
        used.update(parts[best])
        left.remove(best)
    return left
