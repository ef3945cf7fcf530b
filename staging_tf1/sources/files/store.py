"""`Store`: requests to the store of a URL, by the package `fsspec`. They have a time limit, and are tried again.

All requests run in fsspec's own thread, so those of a batch are under way at the same time. Drivers without coroutines
run in threads of that loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import random
import tempfile
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import Future
from typing import Any, TypeVar

from staging_tf1 import arguments
from staging_tf1.errors import RecordFileError

# How long a request may take, unless it reads much.
TIMEOUT_SECS = 60.0
# Seconds before each further try. Most drivers try several times themselves; that of HTTP does not.
_WAITS = (0.25, 0.5, 1.0, 2.0)
# Of the statuses from 400 to 499, those that may pass: a time limit, a lock, too many requests.
_TEMPORARY = (408, 423, 425, 429)
_FINAL = (FileNotFoundError, PermissionError, IsADirectoryError, ImportError, NotImplementedError, RecordFileError)
# Not the generator of the user's program, which may have a seed.
_random = random.Random()

_Result = TypeVar("_Result")


class SlowError(OSError):
    """A failure that takes long each time, so that only one more try is made. Its message has the cure."""


class Store:
    """The file system of a URL, for the thread that makes this object. `timeout_secs` is for each request.

    It is not made in fsspec's own thread, because some drivers connect at once and wait for that thread.
    """

    def __init__(self, url: str, timeout_secs: float | None) -> None:
        self._url, self.timeout_secs = url, timeout_secs
        self.files, self.path = _file_system(url)

    async def call(self, method: str, *args: Any, secs: float = 0.0, **options: Any) -> Any:
        """Call a method of the driver: a coroutine, or in a thread, which has a file system of its own.

        `secs` is how much longer it may take than other calls. Raises SlowError if it takes longer.
        """
        if self.files.async_impl:
            request = getattr(self.files, f"_{method}")(*args, **options)
        else:
            request = asyncio.to_thread(lambda: getattr(_file_system(self._url)[0], method)(*args, **options))
        limit = None if self.timeout_secs is None else self.timeout_secs + secs
        task = asyncio.ensure_future(request)
        try:
            # Not wait_for, which waits until the driver has noticed, and raises what the driver may raise, too.
            done, _ = await asyncio.wait({task}, timeout=limit)
        finally:
            task.cancel()
        if not done:
            raise SlowError(
                f"the server did not finish its answer within {limit:.4g} s. Check the server and the network. If they "
                f"are slow, give the source more time: timeout_secs=."
            )
        return task.result()

    async def info(self, path: str) -> dict[str, Any]:
        """Return what the store knows about a file now."""
        self.files.invalidate_cache(path)
        info: dict[str, Any] = await self.call("info", path)
        return info


def submitted(requests: Coroutine[Any, Any, _Result]) -> Future[_Result]:
    """Run a coroutine in fsspec's thread."""
    return asyncio.run_coroutine_threadsafe(requests, importlib.import_module("fsspec.asyn").get_loop())


async def retried(call: Callable[..., Awaitable[_Result]], *args: Any, **options: Any) -> _Result:
    """Call until it succeeds, or fails for good: several times in a few seconds, after a `SlowError` only once more."""
    failed = False
    for wait in _WAITS:
        try:
            return await call(*args, **options)
        except Exception as error:
            if _is_final(error) or (failed and isinstance(error, SlowError)):
                raise
            failed = isinstance(error, SlowError)
        # Many requests that failed together are not repeated together.
        await asyncio.sleep(wait * _random.uniform(0.5, 1))
    return await call(*args, **options)


def _is_final(error: Exception) -> bool:
    status = _status(error)
    if status is not None:
        return 400 <= status < 500 and status not in _TEMPORARY
    return isinstance(error, _FINAL)


def _status(error: BaseException | None) -> int | None:
    """Return the HTTP status of an answer that became an exception of a driver; None if there is none."""
    while error is not None:
        for name in ("status", "code", "status_code"):
            if isinstance(found := getattr(error, name, None), int):
                return found
        # Drivers turn an answer into an OSError. The cause of another exception may be about one of the driver's parts.
        error = error.__cause__ if type(error).__module__ == "builtins" else None
    return None


def reason_of(error: Exception) -> str:
    """Describe an error of a driver in one line, without a full stop."""
    lines = str(error).split("\n")
    return f"{type(error).__name__}: {lines[0]}".rstrip(": .")


def failure(url: str, error: Exception) -> RecordFileError:
    """Return the error of a URL that cannot be read, with its cure."""
    if isinstance(error, RecordFileError):
        return error
    if isinstance(error, SlowError):
        return RecordFileError(f"cannot read {url}, tried 2 times: {error}")
    status = _status(error)
    if status in (401, 403) or isinstance(error, PermissionError):
        return RecordFileError(
            f"no permission to read {url} ({reason_of(error)}). Check the URL, and the credentials that its driver "
            f"finds."
        )
    if status in (404, 410) or (isinstance(error, FileNotFoundError) and status is None):
        return RecordFileError(f"record file {url} does not exist. Check the URL.")
    tried = "" if _is_final(error) else f", tried {len(_WAITS) + 1} times"
    return RecordFileError(f"cannot read {url}{tried}: {reason_of(error)}.")


@contextlib.contextmanager
def uploaded(owner: str, url: str) -> Iterator[str]:
    """Yield a path for a new local file, which is uploaded to `url` on success. It appears there complete."""
    with tempfile.TemporaryDirectory(prefix="staging_tf1-") as folder:
        yield (path := os.path.join(folder, "upload"))
        try:
            store = Store(url, None)
            submitted(retried(store.call, "put_file", path, store.path)).result()
        except Exception as error:
            raise RecordFileError(f"{owner} cannot write to out={url!r}: {reason_of(error)}.") from error


def open_driver(owner: str, argument: str, url: str) -> None:
    """Check that the driver of a URL is there. Raises ImportError with what to install, or ValueError."""
    try:
        importlib.import_module("fsspec")
    except ImportError as error:
        raise ImportError(
            f"{owner} got {argument}={url!r}, and URLs need fsspec. Install it: pip install 'staging-tf1[remote]', and "
            f"the driver of the store, such as s3fs, gcsfs or adlfs."
        ) from error
    try:
        _file_system(url)
    except ImportError as error:
        raise ImportError(
            f"{owner} got {argument}={url!r}, whose driver is not installed. {str(error).rstrip('.')}."
        ) from error
    except ValueError as error:
        expected = f"a path of this machine, or a URL that fsspec opens ({error})"
        arguments.refuse(owner, argument, url, expected, ValueError)
    except Exception as error:  # some drivers connect at once
        raise RecordFileError(f"{owner} cannot open {argument}={url!r}: {reason_of(error)}.") from error


def checked_timeout(owner: str, timeout_secs: Any) -> float | None:
    """Check the argument `timeout_secs`."""
    if timeout_secs is None:
        return None
    secs = arguments.seconds(owner, "timeout_secs", timeout_secs)
    if not secs:
        arguments.refuse(owner, "timeout_secs", timeout_secs, "more than 0 seconds, or None for no limit", ValueError)
    return secs


def _file_system(url: str) -> tuple[Any, str]:
    # fsspec keeps file systems for each process and thread, because those of some drivers cannot be shared.
    found: tuple[Any, str] = importlib.import_module("fsspec.core").url_to_fs(url)
    return found
