"""``# noqa`` comments on the line of a finding, with or without codes."""

from __future__ import annotations

import re

from staging_tf1.legacy.lint.rule import Finding

_NOQA = re.compile(r"#\s*noqa(?P<codes>\s*:\s*(?P<list>[A-Za-z]+[0-9]+(?:[\s,]+[A-Za-z]+[0-9]+)*))?", re.IGNORECASE)


def is_suppressed(finding: Finding, lines: list[str]) -> bool:
    """Whether a comment on the line of the finding suppresses it."""
    if not 0 < finding.line <= len(lines):
        return False
    match = _NOQA.search(lines[finding.line - 1])
    if match is None:
        return False
    if match.group("codes") is None:
        return True
    return finding.code in {code.upper() for code in re.split(r"[\s,]+", match.group("list"))}
