"""Which tests are `slow`: the default run leaves them out, because it tests the same promises with fewer cases.

`pytest -m ""` and `make test-all` run them, too. Marks beside the test say so, and a comment there says what tests the
same in the default run:

    @pytest.mark.slow               all cases of the test
    @pytest.mark.slow_cases("2|3")  the cases whose id, as a whole, matches one of these regular expressions
    @pytest.mark.thinned            of the other cases, all but a few that have each value of each parameter once
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from typing import Any

import pytest

_with_slow = False


def read_selection(config: pytest.Config) -> None:
    """Note which tests this run selects, for `with_slow`."""
    global _with_slow
    _with_slow = config.option.markexpr != "not slow"


def with_slow() -> bool:
    """Return whether this run includes the slow tests: then others try more examples, and measure more often."""
    return _with_slow


def examples(most: int) -> int:
    """Return how many random examples a test tries: `most` in a run that includes the slow tests."""
    return most if _with_slow else max(4, most // 5)


def mark_slow(items: list[pytest.Item]) -> None:
    """Give the mark `slow` to the cases that `slow_cases` and `thinned` leave out."""
    thinned: dict[Any, list[Any]] = defaultdict(list)
    for item in items:
        if any(re.fullmatch(pattern, id_of(item)) for pattern in patterns(item)):
            item.add_marker(pytest.mark.slow)
        elif item.get_closest_marker("thinned"):
            thinned[item.path, item.originalname].append(item)  # type: ignore[attr-defined]
    for group in thinned.values():
        for index in redundant([rows(item) for item in group]):
            group[index].add_marker(pytest.mark.slow)


def patterns(item: pytest.Item) -> list[str]:
    """Return the patterns of the cases that are slow."""
    return [pattern for mark in item.iter_markers("slow_cases") for pattern in mark.args]


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


def redundant(cases: list[set[Any]]) -> list[int]:
    """Return the indexes of the cases whose values are all among those of the others.

    Each case that is kept adds most values, and of equal ones those that the fewest have.
    """
    left, used = list(range(len(cases))), Counter[Any]()

    def worth(index: int) -> tuple[int, int]:
        counts = [used[value] for value in cases[index]]
        return counts.count(0), -sum(counts)

    while left:
        best = max(left, key=worth)
        if worth(best)[0] == 0:
            break
        used.update(cases[best])
        left.remove(best)
    return left
