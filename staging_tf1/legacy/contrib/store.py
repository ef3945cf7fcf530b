"""The genuine files of `tf.contrib`: fetched from TensorFlow 1.15.5's wheel into a cache folder, found, and removed.

Nothing here imports TensorFlow.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager

from staging_tf1.arguments import CACHE_ENVIRONMENT, cache_dir
from staging_tf1.errors import StagingError
from staging_tf1.legacy.shim.tensorflow_names import LENT_FILES
from staging_tf1.progress import is_terminal, progress_bar

FETCH = "staging-tf1 contrib fetch"
_WHEEL = "tensorflow-1.15.5-cp37-cp37m-manylinux2010_x86_64.whl"
_SHA256 = "29831dda98d668067de75403b2fca0d06a2f026ef6f217fa2ca873c20b4ee4d3"
_PIP = (
    *("-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--python-version", "3.7"),
    *("--implementation", "cp", "--abi", "cp37m", "--platform", "manylinux2010_x86_64", "tensorflow==1.15.5"),
)
_ROOT = "tensorflow_core/"
_KEPT = (
    *(f"{_ROOT}{folder}/" for folder in ("contrib", "examples/tutorials")),
    *(f"{_ROOT}{module.partition('.')[2].replace('.', '/')}.py" for module in LENT_FILES),
)
# The wheel has the text of its own license, Apache-2.0, only as that of a library, and names it in its metadata.
_LICENSES = {
    f"{_ROOT}include/external/com_google_absl/LICENSE": "LICENSE",
    "tensorflow-1.15.5.dist-info/METADATA": "METADATA",
}
_CHUNK_BYTES = 1 << 20


class ContribError(StagingError):
    """The files of `tf.contrib` cannot be fetched; the message says why, and what to do."""


def folder() -> str:
    """Return the folder of the files, whether it exists or not.

    It is in `staging_tf1.arguments.cache_dir()`.
    """
    return os.path.join(cache_dir(), "contrib-1.15.5")


def fetched() -> str | None:
    """Return the folder of the files; None if they were not fetched."""
    path = folder()
    return path if os.path.isdir(path) else None


def fetch(wheel: str | None = None) -> bool:
    """Fetch the files unless they are there. Return whether anything had to be done.

    They are complete or absent: they are unpacked into a hidden folder, which is then renamed. Two processes may fetch
    at once.

    Args:
      wheel: TensorFlow 1.15.5's wheel; by default pip downloads it, with the indexes and proxies of its configuration.

    Raises ContribError if the wheel cannot be had, or is another file.
    """
    path = folder()
    if os.path.isdir(path):
        return False
    try:
        with _hidden_folder(os.path.dirname(path)) as hidden:
            unpacked = os.path.join(hidden, "unpacked")
            _unpack(wheel or _download(hidden), unpacked)
            try:
                os.rename(unpacked, path)
            except OSError:
                if not os.path.isdir(path):  # another process was faster
                    raise
    except OSError as error:
        raise ContribError(f"{path} cannot be written: {error}. {CACHE_ENVIRONMENT} names another folder.") from error
    return True


def remove() -> bool:
    """Remove the files. Return whether there were any."""
    path = folder()
    if not os.path.isdir(path):
        return False
    with _hidden_folder(os.path.dirname(path)) as hidden:
        os.rename(path, os.path.join(hidden, "removed"))
    return True


def contents() -> tuple[int, int]:
    """Return how many files there are, without compiled ones, and how many bytes these have."""
    sizes = [
        os.path.getsize(os.path.join(parent, name))
        for parent, _, names in os.walk(folder())
        if os.path.basename(parent) != "__pycache__"
        for name in names
    ]
    return len(sizes), sum(sizes)


@contextmanager
def _hidden_folder(parent: str) -> Iterator[str]:
    os.makedirs(parent, exist_ok=True)
    hidden = tempfile.mkdtemp(prefix=".contrib-", dir=parent)
    try:
        yield hidden
    finally:
        shutil.rmtree(hidden, ignore_errors=True)


def _download(target: str) -> str:
    shown = is_terminal()
    # A constraint on the installed TensorFlow is no constraint on this file, which is not installed.
    environment = {**os.environ, "PIP_CONSTRAINT": os.devnull, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    quiet = () if shown else ("--quiet",)
    command = [sys.executable, *_PIP, "--dest", target, *quiet]
    ran = subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True, errors="replace", check=False)
    path = os.path.join(target, _WHEEL)
    if ran.returncode == 0 and os.path.isfile(path):
        return path
    lines = [line.strip() for line in ran.stderr.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")] or lines or [f"exit code {ran.returncode}"]
    reason = errors[-1].removeprefix("ERROR: ").rstrip(".")
    raise ContribError(
        f"pip cannot download {_WHEEL}: {reason}. Connect to a package index, or download the file elsewhere and pass "
        f"it: {FETCH} --wheel {_WHEEL}"
    )


def _unpack(wheel: str, target: str) -> None:
    _check(wheel)
    with zipfile.ZipFile(wheel) as archive:
        members = {name: _LICENSES.get(name) or _place(name) for name in archive.namelist()}
        kept = {name: place for name, place in members.items() if place is not None}
        with progress_bar("unpack", len(kept), " files") as bar:
            for name, place in kept.items():
                path = os.path.join(target, *place.split("/"))
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "wb") as file:
                    file.write(archive.read(name))
                bar.update()


def _place(name: str) -> str | None:
    return name.removeprefix(_ROOT) if name.startswith(_KEPT) and name.endswith(".py") else None


def _check(wheel: str) -> None:
    digest = hashlib.sha256()
    try:
        with open(wheel, "rb") as file, progress_bar("check", os.path.getsize(wheel), "B") as bar:
            while chunk := file.read(_CHUNK_BYTES):
                digest.update(chunk)
                bar.update(len(chunk))
    except OSError as error:
        raise ContribError(f"{wheel} cannot be read: {error.strerror}. --wheel takes the file {_WHEEL}") from error
    if digest.hexdigest() != _SHA256:
        raise ContribError(
            f"{wheel} has the sha256 {digest.hexdigest()}, expected {_SHA256}. It is damaged, or not {_WHEEL}"
        )
