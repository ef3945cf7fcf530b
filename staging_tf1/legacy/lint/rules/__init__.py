"""The rules. Each is a function that finds one kind of mistake in one file, with a page in docs/rules/."""

from __future__ import annotations

from staging_tf1.legacy.lint.rule import Rule
from staging_tf1.legacy.lint.rules import building, data, flow, names, placement, start

_MODULES = (building, flow, start, data, placement, names)
RULES: dict[str, Rule] = {rule.code: rule for module in _MODULES for rule in module.RULES}
