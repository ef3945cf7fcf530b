"""SARIF 2.1.0, which GitHub code scanning, GitLab, VS Code and Azure DevOps read."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from staging_tf1 import __version__
from staging_tf1.legacy.lint.rule import Finding
from staging_tf1.legacy.lint.rules import RULES

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def sarif(findings: Sequence[Finding]) -> str:
    """Return the findings as one SARIF log with one run."""
    codes = sorted(RULES)
    driver = {
        "name": "staging-tf1 check",
        "version": __version__,
        "rules": [{"id": code, "name": RULES[code].name, "shortDescription": {"text": _title(code)}} for code in codes],
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_result(finding, codes.index(finding.code)) for finding in findings],
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
        "level": "error",
        "message": {"text": message},
        "locations": [{"physicalLocation": location}],
    }


def _uri(path: str) -> str:
    """Return a path as a URI: relative to the current folder if it is given so, as code scanning expects."""
    if os.path.isabs(path):
        return Path(path).as_uri()
    return quote(os.path.normpath(path).replace(os.sep, "/"))


def _title(code: str) -> str:
    return RULES[code].name.replace("-", " ")
