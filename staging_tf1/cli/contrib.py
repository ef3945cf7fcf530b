"""`staging-tf1 contrib`: fetches, shows and removes the genuine files of `tf.contrib` and Keras."""

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

Fetches the Python files of tf.contrib from the wheel of TensorFlow 1.15.5 (110 MB, with pip), and Keras 2.2.5 with
keras_applications and keras_preprocessing (430 KB). Keeps them (10 MB) in the folder that {CACHE_ENVIRONMENT} names, by
default ~/.cache/staging_tf1, and deletes the wheels. Programs under `staging-tf1 run` then find tf.contrib and keras
there. The files are those of TensorFlow and Keras, under their licenses (Apache-2.0 and MIT).
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
        usage=f"{_PROG} fetch [--wheel FILE]...\n       {_PROG} show\n       {_PROG} remove",
        description="Lends tf.contrib of TensorFlow 1.15.5 and Keras 2.2.5 to programs under staging-tf1 run.",
        epilog=_EPILOG,
    )
    actions = parser.add_subparsers(
        dest="action", metavar="ACTION", required=True, prog=_PROG, parser_class=OneLineParser
    )
    fetch = actions.add_parser("fetch", help="fetch the files, unless they are there")
    fetch.add_argument(
        "--wheel", metavar="FILE", action="append", default=[], help="a wheel that is already here, to download nothing"
    )
    actions.add_parser("show", help="print the folder of the files and their size")
    actions.add_parser("remove", help="remove the files")
    return parser


def _fetch(options: argparse.Namespace) -> int:
    made = store.fetch(options.wheel)
    for wheel in store.WHEELS:
        if store.fetched(wheel) is not None:
            print(f"{'fetched' if store.folder(wheel) in made else 'already there:'} {_line(wheel)}")
    return 0


def _show(options: argparse.Namespace) -> int:
    missing = [wheel for wheel in store.WHEELS if store.fetched(wheel) is None]
    if len(missing) == len(store.WHEELS):
        return _nothing()
    for wheel in store.WHEELS:
        print(f"{store.folder(wheel)}: not fetched ({store.FETCH})" if wheel in missing else _line(wheel))
    return 0


def _remove(options: argparse.Namespace) -> int:
    removed = store.remove()
    for folder in removed:
        print(f"removed {folder}")
    return 0 if removed else _nothing()


def _nothing() -> int:
    complain(_PROG, f"{store.folder()} does not exist. Fetch it: {store.FETCH}")
    return 1


def _line(wheel: store.Wheel) -> str:
    files, size = store.contents(wheel)
    what = "tf.contrib of TensorFlow 1.15.5" if wheel is store.CONTRIB else wheel.release.replace("==", " ")
    return f"{store.folder(wheel)}: {what}, {files} files, {size / (1 << 20):.1f} MiB"
