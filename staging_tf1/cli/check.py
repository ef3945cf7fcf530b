"""``staging-tf1 check``: finds code that makes a staging pipeline hang, leak memory or slow down."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from staging_tf1.cli.arguments import complain, parser_for_python_files
from staging_tf1.legacy.lint import checker
from staging_tf1.legacy.lint.rule import Finding
from staging_tf1.legacy.source_files import counted

_PROG = "staging-tf1 check"
_EPILOG = """
exit code: 0 no findings, 1 findings, 2 a file could not be read.
A comment `# noqa: STG101` suppresses a rule on its line. Each rule has a page in docs/rules/.

example:
  staging-tf1 check train.py models/
"""


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of ``check``."""
    return parser_for_python_files(
        _PROG,
        "Finds mistakes in code that uses staging areas, queues and feed threads.",
        _EPILOG,
    )


def main(argv: list[str]) -> int:
    """Check the given files and folders. The exit code is as in `_EPILOG`."""
    options = make_parser().parse_args(argv)
    findings: list[Finding] = []
    unreadable, checked = False, 0
    for result in checker.check_all(options.paths):
        if isinstance(result, str):
            unreadable = True
            complain(_PROG, result)
        else:
            checked += 1
            findings.extend(result)
    if findings:
        print(_text(findings))
    elif checked and not unreadable:
        print(f"no findings in {counted(checked, 'file')}")
    return 2 if unreadable else int(bool(findings))


def _text(findings: Sequence[Finding]) -> str:
    lines = [f"{f.path}:{f.line}:{f.column}: {f.code} {f.message}" for f in findings]
    files = len({finding.path for finding in findings})
    restored = sum(not finding.is_mistake for finding in findings)
    found = counted(len(findings) - restored, "mistake")
    if restored:
        found += f" and {counted(restored, 'name')} that only staging-tf1 run restores"
    return "\n".join([*lines, f"found {found} in {counted(files, 'file')}"])
