"""`staging-tf1 cache`: shows, builds and removes the caches of `sources.cached`."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from typing import Any

from staging_tf1.arguments import INT64_MAX, MOST_THREADS
from staging_tf1.cli.arguments import OneLineParser, complain, whole_number
from staging_tf1.errors import StagingError
from staging_tf1.progress import progress_bar
from staging_tf1.sources.cached import cached
from staging_tf1.sources.columns.files import dtype_named
from staging_tf1.sources.columns.folder import cache_path, opened, remove, verified
from staging_tf1.sources.columns.manifest import Manifest
from staging_tf1.spec.arrays import describe

_PROG = "staging-tf1 cache"
_EPILOG = """
examples:
  staging-tf1 cache build my_module:train_data out/train --version 2
  staging-tf1 cache show --verify out/train
  staging-tf1 cache remove out/train

MODULE:NAME is what cached() takes: a dataset, a generator function, or a function that returns a dataset. The module
may be in the current folder. A program that calls cached(train_data, "out/train", version=2, ...) then uses the cache.
"""


def main(argv: list[str]) -> int:
    """Run the command. Return 1 if a cache is missing, damaged, or cannot be built or removed."""
    options = make_parser().parse_args(argv)
    if options.action == "build":
        return _build(options)
    act = _show if options.action == "show" else _remove
    return max([_reported(act, path, options) for path in dict.fromkeys(options.paths)])


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of `cache`."""
    parser = OneLineParser(
        prog=_PROG,
        usage=f"{_PROG} show [--verify] PATH...\n"
        f"       {_PROG} build [options] MODULE:NAME PATH\n"
        f"       {_PROG} remove PATH...",
        description="Shows, builds and removes the caches of staging.sources.cached().",
        epilog=_EPILOG,
    )
    actions = parser.add_subparsers(
        dest="action", metavar="ACTION", required=True, prog=_PROG, parser_class=OneLineParser
    )
    show = actions.add_parser("show", help="print what caches hold, their sizes, and when they were built")
    show.add_argument("paths", metavar="PATH", nargs="+", help="the folder of a cache")
    show.add_argument("--verify", action="store_true", help="read all files and compare their checksums")
    remove_it = actions.add_parser("remove", help="remove caches; refuses other folders")
    remove_it.add_argument("paths", metavar="PATH", nargs="+", help="the folder of a cache")
    _add_build(actions.add_parser("build", help="build a cache unless it is there and up to date"))
    return parser


def _add_build(build: argparse.ArgumentParser) -> None:
    build.add_argument("data", metavar="MODULE:NAME", help="the data, as for cached()")
    build.add_argument("path", metavar="PATH", help="the folder of the cache")
    build.add_argument("--batched", action="store_true", help="the elements of the data are batches")
    build.add_argument("--limit", type=whole_number(1, INT64_MAX), metavar="N", help="the most records to store")
    build.add_argument("--version", metavar="TEXT", help="a version of the data; another one builds the cache again")
    build.add_argument("--files", metavar="FILE", nargs="+", help="files or globs that the data comes from")
    build.add_argument(
        "--if-changed", choices=("rebuild", "error"), default="rebuild", help="if it is out of date (default: rebuild)"
    )
    build.add_argument(
        "--threads",
        type=whole_number(1, MOST_THREADS),
        default=1,
        metavar="N",
        help="how many threads read the data, if it has random access (default: 1)",
    )


def _reported(act: Any, path: str, options: argparse.Namespace) -> int:
    try:
        return int(act(cache_path(options.action, "PATH", path), options))
    except (StagingError, OSError, ValueError) as error:
        complain(_PROG, error)
        return 1


def _build(options: argparse.Namespace) -> int:
    chosen = ("batched", "limit", "version", "files", "if_changed", "threads")
    try:
        data = _named(options.data)
        source = cached(data, options.path, batch_size=1, **{name: getattr(options, name) for name in chosen})
    except (StagingError, ValueError, TypeError) as error:
        # Exceptions of the user's module need their traceback.
        if not isinstance(error, StagingError) and not str(error).startswith("cached()"):
            raise
        complain(f"{_PROG} build", error)
        return 1
    print(_summary(options.path, opened(source.path)[1]))
    return 0


def _named(name: str) -> Any:
    """Import the data that MODULE:NAME names."""
    module, colon, attributes = name.partition(":")
    if not (module and colon and attributes) or module.startswith("."):
        raise StagingError(f"got {name!r}, expected MODULE:NAME, such as my_module:train_data.")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        value: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name not in (module, module.partition(".")[0]):
            raise
        raise StagingError(
            f"found no module {module!r} in {os.getcwd()} or in the installed packages. Check the name."
        ) from None
    for attribute in attributes.split("."):
        if not hasattr(value, attribute):
            raise StagingError(f"module {module!r} has no {attributes!r}. Check the name in {name!r}.")
        value = getattr(value, attribute)
    return value


def _show(path: str, options: argparse.Namespace) -> int:
    (_, manifest), problems = opened(path), list[str]()
    if options.verify:
        with progress_bar(path, manifest.size, "B") as bar:
            manifest, problems = verified(path, bar.update)
    print(_summary(path, manifest))
    for component in manifest.components:
        names = ", ".join(file.name for file in component.files.values())
        spec = describe(dtype_named(component.dtype), component.shape)
        print(f"  {component.path or '(record)'}  {spec}  {_size(component.size)}  {names}")
    known = {name: value for name, value in manifest.key.items() if value not in (None, False)}
    for name, value in known.items():
        print(f"  key: {name} = {f'{len(value)} files' if name == 'files' else value}")
    for problem in problems:
        complain(_PROG, problem)
    if options.verify:
        print(f"  verified {len(manifest.files)} files: {len(problems)} damaged")
    return 1 if problems else 0


def _remove(path: str, options: argparse.Namespace) -> int:
    removed = remove(path)
    if isinstance(removed, Manifest):
        print(f"removed {path} ({removed.num_records} records, {_size(removed.size)})")
    elif removed is not None:
        print(f"removed {path} (version {removed})")
    else:
        print(f"removed the unfinished cache {path}")
    return 0


def _summary(path: str, manifest: Manifest) -> str:
    return f"{path}: {manifest.num_records} records, {_size(manifest.size)}, built {manifest.built}"


def _size(count: float) -> str:
    units = ["bytes", "KiB", "MiB", "GiB", "TiB"]
    while count >= 1024 and len(units) > 1:
        count /= 1024
        units.pop(0)
    return f"{count:.1f} {units[0]}".replace(".0 bytes", " bytes")
