"""Parses a file for rewriting, with LibCST, which keeps comments and formatting."""

from __future__ import annotations

import libcst as cst

from staging_tf1.legacy.source_files import SourceFile, UnreadableError, why_invalid


def parsed(source: SourceFile) -> cst.Module:
    """Return the syntax tree of a file, or raise UnreadableError with the reason: often it is Python 2."""
    try:
        return cst.parse_module(source.text)
    except cst.ParserSyntaxError as error:
        otherwise = f":{error.raw_line}: LibCST cannot read it: {error.message.splitlines()[0]}"
        raise UnreadableError(why_invalid(source, otherwise)) from error
