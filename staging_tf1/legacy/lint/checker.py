"""Runs the rules on files, with a progress bar when it takes long."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from staging_tf1.legacy import source_files
from staging_tf1.legacy.lint import areas, names, runners
from staging_tf1.legacy.lint.module import Module
from staging_tf1.legacy.lint.rule import Finding, Rule
from staging_tf1.legacy.source_files import SourceFile, UnreadableError, parsed
from staging_tf1.progress import with_progress

# The rules, with a page in docs/rules/ each.
RULES: dict[str, Rule] = {rule.code: rule for rule in (*areas.RULES, *runners.RULES, *names.RULES)}
_NOQA = re.compile(r"#\s*noqa(?P<codes>\s*:\s*(?P<list>[A-Za-z]+[0-9]+(?:[\s,]+[A-Za-z]+[0-9]+)*))?", re.IGNORECASE)
# A file that contains neither word cannot use either package.
_OURS = ("tensorflow", "staging_tf1")
# As in Python's parser: the lines of a syntax tree end only here.
_LINE_END = re.compile(r"\r\n|\r|\n")
# What one file yields: its findings, or the message why it cannot be checked.
Result = list[Finding] | str


def check_all(paths: Sequence[str]) -> Iterator[Result]:
    """Yield the result of each file at and below `paths`, in order."""
    entries = list(source_files.find(paths))
    files = [entry for entry in entries if isinstance(entry, str)]
    results: Iterator[Result] = map(check_file, files)
    if len(files) > 1:
        results = with_progress(results, len(files), "check")
    for entry in entries:
        yield str(entry) if isinstance(entry, UnreadableError) else next(results)


def check_file(path: str) -> Result:
    """Return the findings of one file, or the message why it cannot be checked."""
    try:
        return check(source_files.read(path))
    except UnreadableError as error:
        return str(error)


def check(source: SourceFile) -> list[Finding]:
    """Return the findings of a file, sorted by line, without those that comments suppress.

    Raises UnreadableError if the file is not Python of this version.
    """
    tree = parsed(source)
    if not any(word in source.text for word in _OURS):
        return []
    try:
        return _findings(source, tree)
    except RecursionError as error:
        raise UnreadableError(f"{source.path}: is too deeply nested to be checked") from error


def _findings(source: SourceFile, tree: ast.Module) -> list[Finding]:
    module = Module(tree, source.path)
    if not any(map(module.imports, _OURS)):
        return []
    lines = _LINE_END.split(source.text)
    findings = {
        _finding(source.path, lines, rule.code, node, message)
        for rule in RULES.values()
        for node, message in rule.check(module)
    }
    return [finding for finding in sorted(findings) if not _is_suppressed(finding, lines)]


def _finding(path: str, lines: list[str], code: str, node: ast.AST, message: str) -> Finding:
    line: int = getattr(node, "lineno", 1)
    text = lines[line - 1] if line <= len(lines) else ""
    # Python counts bytes, editors count characters.
    before = text.encode()[: getattr(node, "col_offset", 0)].decode(errors="replace")
    return Finding(path, line, len(before) + 1, code, message)


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
