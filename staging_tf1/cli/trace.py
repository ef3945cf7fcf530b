"""`staging-tf1 trace`: prints what a timeline says."""

from __future__ import annotations

import argparse
import json

from staging_tf1.cli.arguments import OneLineParser, complain, local_path, whole_number
from staging_tf1.watch.trace_report import TraceFormatError, as_text, read_trace, report_on

_PROG = "staging-tf1 trace"
_EPILOG = """
Write a timeline with trace_file= of StagingSession or StagingHook. To look at it, open
it in https://ui.perfetto.dev or chrome://tracing.

examples:
  staging-tf1 trace trace.json
  staging-tf1 trace trace.json --slowest 20
  staging-tf1 trace trace.json --json
"""


def parser() -> argparse.ArgumentParser:
    """Return the parser of `trace`."""
    parser = OneLineParser(
        prog=_PROG,
        description="Prints what a timeline says: the time by part, who waited for whom, and the slowest steps.",
        epilog=_EPILOG,
    )
    parser.add_argument("file", type=local_path, metavar="FILE", help="a file that trace_file= has written")
    parser.add_argument(
        "--slowest",
        type=whole_number(0, 1_000_000),
        default=5,
        metavar="N",
        help="how many of the slowest steps to list (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def main(argv: list[str]) -> int:
    """Print the report. Return 1 if the file cannot be read, or is not a timeline."""
    options = parser().parse_args(argv)
    try:
        report = report_on(read_trace(options.file), options.slowest)
    except OSError as error:
        complain(_PROG, f"{options.file!r} cannot be read: {error.strerror}. Check the path and its permissions.")
        return 1
    except TraceFormatError as error:
        complain(_PROG, f"{options.file!r} {error}.")
        return 1
    print(json.dumps(report.as_dict(), indent=1) if options.json else as_text(report))
    return 0
