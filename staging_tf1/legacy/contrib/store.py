"""The genuine files of `tf.contrib` and Keras: fetched from their wheels into a cache folder, found, and removed.

Nothing here imports TensorFlow.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, SourceFileLoader
from typing import NamedTuple

from staging_tf1.arguments import CACHE_ENVIRONMENT, cache_dir
from staging_tf1.errors import StagingError
from staging_tf1.legacy.shim.origin import LENT_FILES
from staging_tf1.progress import is_terminal, progress_bar

FETCH = "staging-tf1 contrib fetch"
_LOADER = "staging_tf1.legacy.contrib.loader"  # loaded with the first genuine file
_PIP = (
    *("-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--python-version", "3.7"),
    *("--implementation", "cp", "--abi", "cp37m", "--platform", "manylinux2010_x86_64"),
)
_CHUNK_BYTES = 1 << 20
# The wheel of TensorFlow has the text of its own license, Apache-2.0, only as that of a library, and names it in its
# metadata.
_LICENSES = {".dist-info/LICENSE": "LICENSE", ".dist-info/METADATA": "METADATA", "_absl/LICENSE": "LICENSE"}


class Wheel(NamedTuple):
    """A wheel, and which of its Python files are kept."""

    release: str
    file: str
    sha256: str
    folder: str  # where they are kept, below the cache folder
    kept: tuple[str, ...]  # what their paths begin with
    root: str = ""  # what is left out of their paths


_ROOT = "tensorflow_core/"
CONTRIB = Wheel(
    "tensorflow==1.15.5",
    "tensorflow-1.15.5-cp37-cp37m-manylinux2010_x86_64.whl",
    "29831dda98d668067de75403b2fca0d06a2f026ef6f217fa2ca873c20b4ee4d3",
    "contrib-1.15.5",
    (
        *(f"{_ROOT}{folder}/" for folder in ("contrib", "examples/tutorials")),
        *(f"{_ROOT}{module.partition('.')[2].replace('.', '/')}.py" for module in LENT_FILES),
    ),
    _ROOT,
)


def _of_keras(name: str, sha256: str) -> Wheel:
    package, version, _ = name.lower().split("-")
    return Wheel(f"{package}=={version}", f"{name}-none-any.whl", sha256, f"{package}-{version}", (f"{package}/",))


_OF_KERAS = {
    "Keras-2.2.5-py2.py3": "5a75cfdf69c6cb9de81a82aa19542ac69a5c2e78a48a58c1649fc5cdb55c917c",
    "Keras_Applications-1.0.8-py3": "df4323692b8c1174af821bf906f1e442e63fa7589bf0f1230a0b6bdc5a810c95",
    "Keras_Preprocessing-1.1.2-py2.py3": "7b82029b130ff61cc99b55f3bd27427df4838576838c5b2f65940e4fcec99a7b",
}
# By the package that each has.
KERAS = {name.lower().partition("-")[0]: _of_keras(name, sha256) for name, sha256 in _OF_KERAS.items()}
WHEELS = (*KERAS.values(), CONTRIB)


class ContribError(StagingError):
    """The files cannot be fetched; the message says why, and what to do."""


def folder(wheel: Wheel = CONTRIB) -> str:
    """Return the folder of the files of a wheel, whether it exists or not.

    It is in `staging_tf1.arguments.cache_dir()`.
    """
    return os.path.join(cache_dir(), wheel.folder)


def fetched(wheel: Wheel = CONTRIB) -> str | None:
    """Return the folder of the files of a wheel; None if they were not fetched."""
    path = folder(wheel)
    return path if os.path.isdir(path) else None


def fetch(files: Sequence[str] = ()) -> list[str]:
    """Fetch the files of each wheel unless they are there. Return the new folders.

    Those of a wheel are complete or absent: they are unpacked into a hidden folder, which is then renamed. Two
    processes may fetch at once.

    Args:
      files: the wheels; by default pip downloads them, with the indexes and proxies of its configuration.

    Raises ContribError if a wheel cannot be had, or is another file.
    """
    missing = [wheel for wheel in WHEELS if fetched(wheel) is None]
    made = []
    try:
        with _hidden_folder() as hidden:
            for path in (files if missing else ()) or (_download(hidden, wheel) for wheel in missing):
                if (wheel := _recognized(path)) not in missing:
                    continue
                _unpack(path, wheel, unpacked := os.path.join(hidden, wheel.folder))
                try:
                    os.rename(unpacked, folder(wheel))
                except OSError:
                    if fetched(wheel) is None:  # else another process was faster
                        raise
                made.append(folder(wheel))
    except OSError as error:
        where = cache_dir()
        raise ContribError(f"{where} cannot be written: {error}. {CACHE_ENVIRONMENT} names another folder.") from error
    return made


def remove() -> list[str]:
    """Remove the files. Return the folders that there were."""
    there = [path for wheel in WHEELS if (path := fetched(wheel)) is not None]
    for path in there:
        with _hidden_folder() as hidden:
            os.rename(path, os.path.join(hidden, "removed"))
    return there


def contents(wheel: Wheel) -> tuple[int, int]:
    """Return how many files of a wheel there are, without compiled ones, and how many bytes these have."""
    sizes = [
        os.path.getsize(os.path.join(parent, name))
        for parent, _, names in os.walk(folder(wheel))
        if os.path.basename(parent) != "__pycache__"
        for name in names
    ]
    return len(sizes), sum(sizes)


def genuine(spec: ModuleSpec) -> ModuleSpec:
    """Let the file of a `spec` be loaded as a genuine one. A folder without an __init__.py has none."""
    if isinstance(spec.loader, SourceFileLoader):
        spec.loader = importlib.import_module(_LOADER).GenuineLoader(spec.name, spec.loader.path)
    return spec


@contextmanager
def _hidden_folder() -> Iterator[str]:
    os.makedirs(cache_dir(), exist_ok=True)
    hidden = tempfile.mkdtemp(prefix=".contrib-", dir=cache_dir())
    try:
        yield hidden
    finally:
        shutil.rmtree(hidden, ignore_errors=True)


def _download(target: str, wheel: Wheel) -> str:
    shown = is_terminal()
    # A constraint on the installed TensorFlow is no constraint on this file, which is not installed.
    environment = {**os.environ, "PIP_CONSTRAINT": os.devnull, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    command = [sys.executable, *_PIP, wheel.release, "--dest", target, *(() if shown else ("--quiet",))]
    ran = subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True, errors="replace", check=False)
    path = os.path.join(target, wheel.file)
    if ran.returncode == 0 and os.path.isfile(path):
        return path
    lines = [line.strip() for line in ran.stderr.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")] or lines or [f"exit code {ran.returncode}"]
    reason = errors[-1].removeprefix("ERROR: ").rstrip(".")
    raise ContribError(
        f"pip cannot download {wheel.file}: {reason}. Connect to a package index, or download the file elsewhere and "
        f"pass it: {FETCH} --wheel {wheel.file}"
    )


def _unpack(path: str, wheel: Wheel, target: str) -> None:
    with zipfile.ZipFile(path) as archive:
        kept = {name: place for name in archive.namelist() if (place := _place(name, wheel)) is not None}
        with progress_bar("unpack", len(kept), " files") as bar:
            for name, place in kept.items():
                path = os.path.join(target, *place.split("/"))
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "wb") as file:
                    file.write(archive.read(name))
                bar.update()


def _place(name: str, wheel: Wheel) -> str | None:
    if name.startswith(wheel.kept) and name.endswith(".py"):
        return name.removeprefix(wheel.root)
    return next((place for end, place in _LICENSES.items() if name.endswith(end)), None)


def _recognized(path: str) -> Wheel:
    files = ", ".join(wheel.file for wheel in WHEELS)
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as file, progress_bar("check", os.path.getsize(path), "B") as bar:
            while chunk := file.read(_CHUNK_BYTES):
                digest.update(chunk)
                bar.update(len(chunk))
    except OSError as error:
        raise ContribError(f"{path} cannot be read: {error.strerror}. --wheel takes one of {files}") from error
    for wheel in WHEELS:
        if wheel.sha256 == digest.hexdigest():
            return wheel
    raise ContribError(f"{path} has the sha256 {digest.hexdigest()}. It is damaged, or not one of {files}")
