"""Renders findings as text, JSON or GitHub annotations."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

from staging_tf1.legacy.lint.rule import Finding
from staging_tf1.legacy.lint.rules import RULES

CODES = tuple(sorted(RULES))


def render(findings: Sequence[Finding], form: str) -> str:
    """Return the findings in one form: "text", "json" or "github"."""
    if form == "json":
        return json.dumps([asdict(finding) | {"rule": RULES[finding.code].name} for finding in findings], indent=1)
    if form == "github":
        return "\n".join(_annotation(finding) for finding in findings)
    lines = [f"{f.path}:{f.line}:{f.column}: {f.code} {f.message}" for f in findings]
    if findings:
        files = len({finding.path for finding in findings})
        lines.append(f"found {_counted(len(findings), 'mistake')} in {_counted(files, 'file')}")
    return "\n".join(lines)


def _annotation(finding: Finding) -> str:
    # GitHub requires this encoding of % and line ends.
    message = finding.message.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    path = finding.path.replace("%", "%25").replace(",", "%2C").replace(":", "%3A")
    return f"::error file={path},line={finding.line},col={finding.column},title={finding.code}::{message}"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
