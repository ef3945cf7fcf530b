"""Says below the traceback that ends a program of `staging-tf1 run` what to do about an error of old programs."""

from __future__ import annotations

import atexit
import linecache
import re
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType, ModuleType
from typing import Any

from staging_tf1.legacy.shim import old_names
from staging_tf1.legacy.shim.origin import Origin
from staging_tf1.legacy.shim.settings import Settings

_COMMAND = "staging-tf1 run"
_VERSION = re.compile(r"(?:assert|if|Version|int)\b.*\b(?:tf|tensorflow)\b.*(?:__version__|VERSION)")
# How many lines above the one that fails may read the version.
_LINES_ABOVE = 3
_TYPES = re.compile(r"\b(?:float|int)(?:16|32|64)\b")
_BY_POSITION = re.compile(r"takes \d+ positional arguments? but")
_TENSORFLOW = ("tensorflow", "keras", "tf_keras", "tensorflow_estimator")
_NO_SCALAR = "only 0-dimensional arrays can be converted"  # of numpy 2


def install(origin: Origin, settings: Settings) -> None:
    """Print advice when the program ends with an error, and when one of its threads does."""
    # Programs find sys.excepthook as it is in plain Python. The interpreter notes what it has printed.
    atexit.register(lambda: _say(origin, settings, getattr(sys, "last_value", None)))
    genuine = threading.excepthook

    def excepthook(args: Any) -> None:
        genuine(args)
        _say(origin, settings, args.exc_value)

    threading.excepthook = excepthook


def _say(origin: Origin, settings: Settings, error: BaseException | None) -> None:
    frames = [(frame, line) for frame, line in _frames(error) if not origin.is_transparent(frame)]
    if error is None or not frames:
        return
    for rule in _RULES:
        if (text := rule(error, *frames[-1], origin, settings)) is not None:
            print(f"{_COMMAND}: {text}", file=sys.stderr, flush=True)
            return


def _frames(error: BaseException | None) -> Iterator[tuple[FrameType, int]]:
    tb = error.__traceback__ if error is not None else None
    while tb is not None:
        yield tb.tb_frame, tb.tb_lineno
        tb = tb.tb_next


def _version(error: BaseException, frame: FrameType, line: int, origin: Origin, settings: Settings) -> str | None:
    lines = [linecache.getline(frame.f_code.co_filename, line - above) for above in range(_LINES_ABOVE + 1)]
    if settings.claim_version or not any(map(_VERSION.search, lines)):
        return None
    package = "" if origin.is_user(frame) else f" --package {_package(frame)}"
    return (
        f"{frame.f_code.co_filename}:{line} compares versions. Let it see 1.15.5: {_COMMAND}{package} --claim-version"
    )


def _library(error: BaseException, frame: FrameType, line: int, origin: Origin, settings: Settings) -> str | None:
    """Explain a library that needs what only user code sees."""
    name, owner = getattr(error, "name", None) or "", getattr(error, "obj", None)
    module = owner.__name__ if isinstance(owner, ModuleType) else ""
    is_gone = isinstance(error, ImportError) and (name in old_names.GONE_MODULES or name.startswith("tensorflow."))
    package = _package(frame)
    is_old = is_gone or module == "tensorflow" or name in old_names.MODULES.get(module, ())
    if origin.is_user(frame) or package in _TENSORFLOW or not is_old:
        return None
    return (
        f"The package {package} needs {f'{module}.' if module else ''}{name}, which was removed. Let it see what the "
        f"program sees: {_COMMAND} --package {package}"
    )


def _numpy_two(error: BaseException, frame: FrameType, line: int, origin: Origin, settings: Settings) -> str | None:
    numpy: Any = sys.modules.get("numpy")
    if numpy is None or int(numpy.__version__.partition(".")[0]) < 2:
        return None
    text = str(error)
    found = set(_TYPES.findall(text))
    if _NO_SCALAR in f"{text} {error.__cause__}":
        cause = "numpy 2 converts no array with one element to a number"
    elif any(
        f"{kind}64" in found and len(found) > 1 and _has_constant(error, f"{kind}64") for kind in ("float", "int")
    ):
        cause = "In numpy 2, np.sqrt(2.0) times a float32 array is float64, and np.int64(2) times an int32 array int64"
    else:
        return None
    if sys.version_info < (3, 13):
        return f"{cause}. numpy 1 does as the program expects: pip install 'numpy<2'"
    return f"{cause}. Convert the value, or use Python 3.12 with numpy 1, which does as the program expects."


def _has_constant(error: BaseException, dtype: str) -> bool:
    """Whether values of a dtype that come from numpy are in the graph of the op that fails."""
    if "pyfunc" in str(error):
        return True
    values = [value for frame, _ in _frames(error) for value in list(frame.f_locals.values())]
    graphs = {id(graph): graph for graph in (getattr(value, "graph", None) for value in values) if graph is not None}
    # What Python computes is float32.
    ops = (op for graph in graphs.values() if hasattr(graph, "get_operations") for op in graph.get_operations())
    return any(op.type in ("Const", "PyFunc") and op.outputs[0].dtype.name == dtype for op in ops)


def _release(error: BaseException, frame: FrameType, line: int, origin: Origin, settings: Settings) -> str | None:
    if type(error).__name__ == "ExpiredDeprecationError":
        return "nibabel 4 is the last release that has it: pip install 'nibabel<5'"
    source = linecache.getline(frame.f_code.co_filename, line)
    if isinstance(error, TypeError) and "librosa" in source and _BY_POSITION.search(str(error)):
        return "librosa 0.9 is the last release that takes these arguments by position: pip install 'librosa<0.10'"
    return None


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__")).partition(".")[0]


_RULES: tuple[Callable[..., str | None], ...] = (_version, _library, _numpy_two, _release)
