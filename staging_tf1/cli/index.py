"""`staging-tf1 index`: indexes, checks or writes record files."""

from __future__ import annotations

import argparse

import numpy as np

from staging_tf1.cli.arguments import OneLineParser, complain, local_path, whole_number
from staging_tf1.data import read_npz
from staging_tf1.errors import SpecError, StagingError
from staging_tf1.progress import is_terminal, progress_bar
from staging_tf1.sources.files.arrayrecord_read import ArrayRecordFiles, is_array_record
from staging_tf1.sources.files.arrayrecord_write import ARRAY_RECORD_SUFFIXES, write_array_records
from staging_tf1.sources.files.example_proto import feature_text
from staging_tf1.sources.files.many_files import SerializedFiles
from staging_tf1.sources.files.record_paths import matching_files
from staging_tf1.sources.files.remote import RemoteFile
from staging_tf1.sources.files.tfrecord_index import open_index
from staging_tf1.sources.files.tfrecord_read import RecordFiles
from staging_tf1.sources.files.tfrecord_write import write_tfrecords

_PROG = "staging-tf1 index"
_EPILOG = """
examples:
  staging-tf1 index train/*.tfrecord
  staging-tf1 index --check train/*.tfrecord
  staging-tf1 index --write digits.tfrecord --from digits.npz --shards 4
  staging-tf1 index --write digits.array_record --from digits.npz

ArrayRecord files (pip install 'staging-tf1[arrayrecord]') contain their own index; --check also reads them.
"""
_CHECKED_PER_READ = 256


def main(argv: list[str]) -> int:
    """Run the command. Return 1 if a file is corrupt or could not be indexed or written."""
    options = _parse(argv)
    try:
        if options.write is not None:
            return _write(options)
        paths = list(dict.fromkeys(matching_files(_PROG, options.files)))
    except (StagingError, ImportError, OSError, ValueError) as error:
        _complain(error)
        return 1
    return max([_look_at(path, options) for path in paths])


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of `index`."""
    parser = OneLineParser(
        prog=_PROG,
        usage=f"{_PROG} [--check] [--force] [--skip-corrupt] FILE...\n"
        f"       {_PROG} --write OUT --from DATA.npz [--shards N]",
        description="Indexes TFRecord files for reading their records in any order.",
        epilog=_EPILOG,
    )
    add = parser.add_argument
    add("files", metavar="FILE", nargs="*", help="TFRecord files or globs; may be gzip, zlib or zstd files")
    add("--check", action="store_true", help="read every record and compare its checksum")
    add("--force", action="store_true", help="rebuild the index even if it seems up to date")
    add("--skip-corrupt", action="store_true", help="index a corrupt file up to the corrupt place")
    add("--write", metavar="OUT", help="write a TFRecord file with its index, or NAME.array_record")
    add("--from", type=local_path, metavar="DATA.npz", dest="data", help="the arrays to write, one record per row")
    add("--shards", type=whole_number(1, 99_999), default=1, metavar="N", help="number of files to write (default: 1)")
    return parser


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = make_parser()
    options = parser.parse_args(argv)
    if (options.write is None) != (options.data is None):
        parser.error("--write OUT and --from DATA.npz must be used together")
    if options.write is not None and options.files:
        parser.error(f"--write takes its records from --from: remove {options.files[0]}")
    if options.write is None and not options.files:
        parser.error("got no file, expected at least one FILE to index")
    return options


def _write(options: argparse.Namespace) -> int:
    arrays = read_npz(options.data, options.data, SpecError)
    is_array = options.write.endswith(ARRAY_RECORD_SUFFIXES)
    write = write_array_records if is_array else write_tfrecords
    names = write(arrays, options.write, shards=options.shards, progress=is_terminal())
    total = len(next(iter(arrays.values())))
    written = names[0] if len(names) == 1 else f"{len(names)} files, {names[0]} to {names[-1]}"
    print(f"wrote {total} records to {written}")
    source = "ArrayRecordSource" if is_array else "TFRecordSource"
    print(f"to read them: staging.sources.{source}(files, batch_size=..., features={{")
    for name, array in sorted(arrays.items()):
        line = feature_text(name, array)
        print(f"    {line}" if "#" in line else f"    {line},")
    print("})")
    return 0


def _look_at(path: str | RemoteFile, options: argparse.Namespace) -> int:
    try:
        index, files = _array_record(path) if is_array_record(path) else _index(path, options)
        corrupt = _corrupt_records(str(path), files) if options.check else []
    except (StagingError, ImportError, OSError, ValueError) as error:
        _complain(error)
        return 1
    for problem in corrupt:
        _complain(problem)
    checked = f", {len(corrupt)} corrupt" if options.check else ""
    print(f"{path}: {files.num_records} records{checked}{index}")
    return 1 if corrupt else 0


def _complain(error: Exception) -> None:
    """Print an error in one line, with the flag where the message names the argument of a source."""
    complain(_PROG, str(error).replace("skip_corrupt=True", "--skip-corrupt"))


def _array_record(path: str | RemoteFile) -> tuple[str, SerializedFiles]:
    return ", an ArrayRecord file with its own index", ArrayRecordFiles([path], _PROG)


def _index(path: str | RemoteFile, options: argparse.Namespace) -> tuple[str, SerializedFiles]:
    index = open_index(path, skip_corrupt=options.skip_corrupt, force=options.force, delay_secs=0)
    lost = f", {index.lost_bytes} bytes lost after them" if index.lost_bytes else ""
    return f"{lost}, index {index.location or 'not written'}", RecordFiles([index])


def _corrupt_records(path: str, files: SerializedFiles) -> list[StagingError]:
    errors: list[StagingError] = []
    with progress_bar(f"check {path}", files.num_records, " records") as bar:
        for start in range(0, files.num_records, _CHECKED_PER_READ):
            numbers = np.arange(start, min(start + _CHECKED_PER_READ, files.num_records))
            errors += files.read(numbers)[1].values()
            bar.update(len(numbers))
    return errors
