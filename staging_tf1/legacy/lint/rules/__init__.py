"""The rules. Each is a function that finds one kind of mistake in one file, with a page in docs/rules/."""

from __future__ import annotations

from staging_tf1.legacy.lint.rule import Rule
from staging_tf1.legacy.lint.rules import arrays, building, data, flow, initializers, names, placement, threads

_MODULES = (building, flow, threads, data, placement, names, initializers, arrays)
RULES: dict[str, Rule] = {rule.code: rule for module in _MODULES for rule in module.RULES}
