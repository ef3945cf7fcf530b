"""`staging-tf1 contrib`: fetches, shows and removes the genuine files of `tf.contrib`."""

from __future__ import annotations

import argparse

from staging_tf1.arguments import CACHE_ENVIRONMENT
from staging_tf1.cli.arguments import OneLineParser, complain
from staging_tf1.legacy.contrib import store

_PROG = "staging-tf1 contrib"
_EPILOG = f"""
examples:
  staging-tf1 contrib fetch
  staging-tf1 contrib fetch --wheel tensorflow-1.15.5-cp37-cp37m-manylinux2010_x86_64.whl

Fetches the Python files of tf.contrib from the wheel of TensorFlow 1.15.5 (110 MB, with pip), keeps them (8 MB) in the
folder that {CACHE_ENVIRONMENT} names, by default ~/.cache/staging_tf1, and deletes the wheel. Programs under
`staging-tf1 run` then find tf.contrib there. The files are TensorFlow's, under its license (Apache-2.0).
"""


def main(argv: list[str]) -> int:
    """Run the command. Return 1 if the files cannot be fetched, or there are none to show or remove."""
    options = make_parser().parse_args(argv)
    try:
        return {"fetch": _fetch, "show": _show, "remove": _remove}[options.action](options)
    except (store.ContribError, OSError, ValueError) as error:
        complain(_PROG, error)
        return 1


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of `contrib`."""
    parser = OneLineParser(
        prog=_PROG,
        usage=f"{_PROG} fetch [--wheel FILE]\n       {_PROG} show\n       {_PROG} remove",
        description="Lends tf.contrib of TensorFlow 1.15.5 to programs under staging-tf1 run.",
        epilog=_EPILOG,
    )
    actions = parser.add_subparsers(
        dest="action", metavar="ACTION", required=True, prog=_PROG, parser_class=OneLineParser
    )
    fetch = actions.add_parser("fetch", help="fetch the files, unless they are there")
    fetch.add_argument("--wheel", metavar="FILE", help="TensorFlow 1.15.5's wheel, to download nothing")
    actions.add_parser("show", help="print the folder of the files and their size")
    actions.add_parser("remove", help="remove the files")
    return parser


def _fetch(options: argparse.Namespace) -> int:
    if store.fetch(options.wheel):
        print(f"fetched {_summary()}")
    else:
        print(f"already there: {_summary()}")
    return 0


def _show(options: argparse.Namespace) -> int:
    if store.fetched() is None:
        return _nothing()
    print(_summary())
    return 0


def _remove(options: argparse.Namespace) -> int:
    if not store.remove():
        return _nothing()
    print(f"removed {store.folder()}")
    return 0


def _nothing() -> int:
    complain(_PROG, f"{store.folder()} does not exist. Fetch it: {store.FETCH}")
    return 1


def _summary() -> str:
    files, size = store.contents()
    return f"{store.folder()}: tf.contrib of TensorFlow 1.15.5, {files} files, {size / (1 << 20):.1f} MiB"
