"""The rules. Each is a function that finds one kind of mistake in the facts of a file, with a page in docs/rules/."""

from __future__ import annotations

from staging_tf1.legacy.lint.rule import Rule
from staging_tf1.legacy.lint.rules import building, data, flow, names, placement, threads

RULES: dict[str, Rule] = {
    rule.code: rule for module in (building, flow, threads, data, placement, names) for rule in module.RULES
}
