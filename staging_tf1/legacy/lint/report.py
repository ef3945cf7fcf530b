"""Renders findings for people, editors and CI."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import quote

from staging_tf1 import __version__
from staging_tf1.legacy.lint.rule import Finding
from staging_tf1.legacy.lint.rules import RULES
from staging_tf1.legacy.source_files import counted, shown_place

CODES = tuple(sorted(RULES))
# SARIF 2.1.0, which GitHub code scanning, GitLab, VS Code and Azure DevOps read.
_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def _text(findings: Sequence[Finding]) -> str:
    lines = [f"{shown_place(f.path, f.cell, f.line)}:{f.column}: {f.code} {f.message}" for f in findings]
    if findings:
        files = len({finding.path for finding in findings})
        restored = sum(not finding.is_mistake for finding in findings)
        found = counted(len(findings) - restored, "mistake")
        if restored:
            found += f" and {counted(restored, 'name')} that only staging-tf1 run restores"
        lines.append(f"found {found} in {counted(files, 'file')}")
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
    level = "error" if finding.is_mistake else "warning"
    return f"::{level} file={path},line={line},col={column},title={finding.code}::{message}"


def _sarif(findings: Sequence[Finding]) -> str:
    driver = {
        "name": "staging-tf1 check",
        "version": __version__,
        "rules": [
            {"id": code, "name": RULES[code].name, "shortDescription": {"text": RULES[code].name.replace("-", " ")}}
            for code in CODES
        ],
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_result(finding, CODES.index(finding.code)) for finding in findings],
    }
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1)


def _result(finding: Finding, index: int) -> dict[str, Any]:
    region, message = {"startLine": finding.line, "startColumn": finding.column}, finding.message
    if finding.cell is not None:  # a viewer counts the lines of the JSON
        region, message = {"startLine": 1}, f"cell {finding.cell}:{finding.line}:{finding.column}: {message}"
    location = {"artifactLocation": {"uri": _uri(finding.path)}, "region": region}
    return {
        "ruleId": finding.code,
        "ruleIndex": index,
        "level": "error" if finding.is_mistake else "warning",
        "message": {"text": message},
        "locations": [{"physicalLocation": location}],
    }


def _uri(path: str) -> str:
    """Return a path as a URI: relative to the current folder if it is given so, as code scanning expects."""
    if os.path.isabs(path):
        return Path(path).as_uri()
    return quote(os.path.normpath(path).replace(os.sep, "/"))


# What renders the findings, by the value of --format.
FORMS: dict[str, Callable[[Sequence[Finding]], str]] = {
    "text": _text,
    "json": _json,
    "github": _github,
    "sarif": _sarif,
}
