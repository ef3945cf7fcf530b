"""The rules. Each is a function that finds one kind of mistake in one module, with a page in docs/rules/."""

from __future__ import annotations

from staging_tf1.legacy.lint import areas, names, runners
from staging_tf1.legacy.lint.rule import Rule

RULES: dict[str, Rule] = {rule.code: rule for rule in (*areas.RULES, *runners.RULES, *names.RULES)}
