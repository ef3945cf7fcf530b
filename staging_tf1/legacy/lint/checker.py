"""Runs the rules on one parsed file."""

from __future__ import annotations

import re

from staging_tf1.legacy.lint.collect import collect
from staging_tf1.legacy.lint.configuration import Configuration
from staging_tf1.legacy.lint.rule import Finding
from staging_tf1.legacy.lint.rules import RULES
from staging_tf1.legacy.source_files import SourceFile

_NOQA = re.compile(r"#\s*noqa(?P<codes>\s*:\s*(?P<list>[A-Za-z]+[0-9]+(?:[\s,]+[A-Za-z]+[0-9]+)*))?", re.IGNORECASE)


def check(source: SourceFile, configuration: Configuration) -> list[Finding]:
    """Return the findings of a file, sorted by line, without those that comments or the configuration suppress."""
    facts = collect(source.path, source.text, source.module)
    if not (facts.imports.uses("tensorflow") or facts.imports.uses("staging_tf1")):
        return []
    found = {
        finding
        for rule in RULES.values()
        if configuration.wants(rule.code)
        for finding in rule.findings(facts)
        if not _is_suppressed(finding, facts.lines)
    }
    return sorted(found)


def _is_suppressed(finding: Finding, lines: list[str]) -> bool:
    """Whether a ``# noqa`` comment, with or without codes, on the line of the finding suppresses it."""
    if not 0 < finding.line <= len(lines):
        return False
    match = _NOQA.search(lines[finding.line - 1])
    if match is None:
        return False
    if match.group("codes") is None:
        return True
    return finding.code in {code.upper() for code in re.split(r"[\s,]+", match.group("list"))}
