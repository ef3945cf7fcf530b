"""Runs the rules on one parsed file."""

from __future__ import annotations

from staging_tf1.legacy.lint.collect import collect
from staging_tf1.legacy.lint.configuration import Configuration
from staging_tf1.legacy.lint.rule import Finding
from staging_tf1.legacy.lint.rules import RULES
from staging_tf1.legacy.lint.suppress import is_suppressed
from staging_tf1.legacy.source_files import SourceFile


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
        if not is_suppressed(finding, facts.lines)
    }
    return sorted(found)
