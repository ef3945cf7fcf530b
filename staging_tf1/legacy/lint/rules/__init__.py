"""The rules, a function each: from the facts of a file to what is wrong in it. One page of docs/rules/ for each."""

from __future__ import annotations

from staging_tf1.legacy.lint.rule import Rule
from staging_tf1.legacy.lint.rules import building, data, flow, names, placement, threads

RULES: dict[str, Rule] = {
    rule.code: rule for module in (building, flow, threads, data, placement, names) for rule in module.RULES
}
