"""``staging-tf1 check``: finds code that makes a staging pipeline hang, leak memory or slow down."""

from __future__ import annotations

import argparse
import os
import sys

from staging_tf1.cli.arguments import complain, parser_for_python_files
from staging_tf1.legacy.lint import checker, configuration, report
from staging_tf1.legacy.lint.rule import Finding
from staging_tf1.legacy.source_files import counted

_PROG = "staging-tf1 check"
_EPILOG = """
exit code: 0 no findings, 1 findings, 2 a file or the configuration could not be read.
A comment `# noqa: STG101` suppresses a rule on its line. Configuration: [tool.staging-tf1.check] in pyproject.toml,
with select, ignore and exclude. Each rule has a page in docs/rules/.

example:
  staging-tf1 check train.py models/
  staging-tf1 check --format github --ignore STG117 .
  staging-tf1 check --format sarif . > findings.sarif
"""


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of ``check``."""
    parser = parser_for_python_files(
        _PROG,
        "Finds mistakes in code that uses staging areas, queues and feed threads.",
        _EPILOG,
    )
    parser.add_argument("--format", choices=tuple(report.FORMS), default="text")
    parser.add_argument("--select", metavar="CODES", help="run only these rules, such as STG101,STG103 or STG1")
    parser.add_argument("--ignore", metavar="CODES", help="skip these rules")
    return parser


def main(argv: list[str]) -> int:
    """Check the given files and folders. The exit code is as in `_EPILOG`."""
    options = make_parser().parse_args(argv)
    first = options.paths[0]
    try:
        rules = configuration.load(first if os.path.isdir(first) else os.path.dirname(first) or os.curdir)
    except configuration.ConfigurationError as error:
        complain(_PROG, error)
        return 2
    rules = configuration.overridden(rules, options.select, options.ignore)
    if unknown := configuration.unknown_codes(rules, report.CODES):
        complain(_PROG, f"unknown rule {unknown!r}; the rules are {report.CODES[0]} to {report.CODES[-1]}")
        return 2
    findings: list[Finding] = []
    unreadable, checked = False, 0
    for result in checker.check_all(options.paths, rules):
        if isinstance(result, str):
            unreadable = True
            complain(_PROG, result)
        else:
            checked += 1
            findings.extend(result)
    text = report.FORMS[options.format](findings)
    if text:
        print(text)
    elif checked and not unreadable and sys.stdout is not None and sys.stdout.isatty():
        print(f"no findings in {counted(checked, 'file')}")
    return 2 if unreadable else int(bool(findings))
