"""Renders findings for people, editors and CI."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict

from staging_tf1.legacy.lint.report.sarif import sarif
from staging_tf1.legacy.lint.rule import Finding
from staging_tf1.legacy.lint.rules import RULES
from staging_tf1.legacy.source_files import shown_place

CODES = tuple(sorted(RULES))


def render(findings: Sequence[Finding], form: str) -> str:
    """Return the findings in one of `FORMS`."""
    return FORMS[form](findings)


def _text(findings: Sequence[Finding]) -> str:
    lines = [f"{shown_place(f.path, f.cell, f.line)}:{f.column}: {f.code} {f.message}" for f in findings]
    if findings:
        files = len({finding.path for finding in findings})
        lines.append(f"found {_counted(len(findings), 'mistake')} in {_counted(files, 'file')}")
    return "\n".join(lines)


def _json(findings: Sequence[Finding]) -> str:
    return json.dumps([asdict(finding) | {"rule": RULES[finding.code].name} for finding in findings], indent=1)


def _github(findings: Sequence[Finding]) -> str:
    return "\n".join(_annotation(finding) for finding in findings)


def _annotation(finding: Finding) -> str:
    # GitHub requires this encoding of % and line ends.
    message = finding.message.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    path = finding.path.replace("%", "%25").replace(",", "%2C").replace(":", "%3A")
    line, column = finding.line, finding.column
    if finding.cell is not None:  # GitHub counts the lines of the JSON
        message, line, column = f"cell {finding.cell}:{line}:{column}: {message}", 1, 1
    return f"::error file={path},line={line},col={column},title={finding.code}::{message}"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


FORMS: dict[str, Callable[[Sequence[Finding]], str]] = {
    "text": _text,
    "json": _json,
    "github": _github,
    "sarif": sarif,
}
