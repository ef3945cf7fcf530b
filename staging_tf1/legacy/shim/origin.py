"""Distinguishes user code, which sees TF1, from libraries, which see TensorFlow 2."""

from __future__ import annotations

import dis
import enum
import os
import sysconfig
from collections.abc import Iterable
from types import FrameType
from typing import Any

# Modules of TensorFlow 1.15.5 outside tf.contrib that are gone, and that are lent with it.
LENT_FILES = ("tensorflow.python.ops.distributions.transformed_distribution",)
_INSTALLED_FOLDERS = frozenset({"site-packages", "dist-packages"})
_LEGACY = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
_OWN_FOLDER = os.path.dirname(_LEGACY)
# The genuine files of TensorFlow 1.15.5, wherever they are, see TensorFlow 1, and so does what serves them.
_LENT = ("tensorflow.contrib", "tensorflow.examples", "staging_tf1.contrib", *LENT_FILES)
# In a function that AutoGraph has converted, it makes each call: also those of hasattr(tf, name), which have no frame.
# Modules of the public API read names through module_wrapper, up to TensorFlow 2.15. The others replace attributes of
# modules for their caller, as unittest.mock of the standard library does.
_FOR_THEIR_CALLER = (
    "tensorflow.python.autograph",
    "tensorflow.python.util.module_wrapper",
    "mock",
    "_pytest.monkeypatch",
)


class Kind(enum.Enum):
    """The kind of code that a frame's module belongs to."""

    USER = "user"
    LENT = "lent"  # a genuine module of TensorFlow 1.15.5, which always sees TF1
    LIBRARY = "library"
    TRANSPARENT = "transparent"  # the standard library, AutoGraph, mock and this package act for their caller


class Origin:
    """Classifies stack frames by the module that they run in, and decides what they see of TF1.

    Lent modules see all of it. What user code sees, `admit` says; before, it sees nothing.
    """

    def __init__(self) -> None:
        self._packages: frozenset[str] = frozenset()
        self._only: frozenset[str] | None = frozenset()
        self._old_names = False
        self._lent_folders: tuple[str, ...] = ()
        self._kinds: dict[tuple[Any, Any], Kind] = {}
        paths = sysconfig.get_paths()
        self._stdlib = tuple(
            {os.path.realpath(paths[name]) + os.sep for name in ("stdlib", "platstdlib") if name in paths}
        )

    def admit(self, packages: Iterable[str], only: Iterable[str], old_names: bool) -> None:
        """Let user code see TF1: all of it, or `only` some names of `tf`. The installed `packages` are user code, too.

        `old_names` are those that numpy, Python and TensorFlow's private modules removed.
        """
        self._packages = frozenset(packages)
        self._only = frozenset(only) or None
        self._old_names = old_names
        self._kinds.clear()

    def lend(self, folder: str) -> None:
        """Let the modules of a folder see all of TF1, as those of TensorFlow 1.15.5 do."""
        if (below := os.path.realpath(folder) + os.sep) not in self._lent_folders:
            self._lent_folders += (below,)
            self._kinds.clear()

    def sees_all(self, file: str) -> bool:
        """Whether the code in a file is the program's own, or lent."""
        return self._kind(None, file) in (Kind.USER, Kind.LENT)

    def is_user(self, frame: FrameType | None) -> bool:
        """Whether all of TF1 is for the nearest frame outside the standard library; if there is none, for user code."""
        return self.sees(frame, None)

    def sees(self, frame: FrameType | None, name: str | None) -> bool:
        """Whether the nearest frame outside the standard library sees `name` of `tf` as in TF1."""
        kind = self._nearest(frame)[0]
        return kind is Kind.LENT or (kind is Kind.USER and (self._only is None or name in self._only))

    def sees_old_names(self, frame: FrameType | None) -> bool:
        """Whether removed names are for the nearest frame outside the standard library."""
        kind = self._nearest(frame)[0]
        return kind is Kind.LENT or (kind is Kind.USER and self._old_names)

    def is_lent(self, frame: FrameType | None) -> bool:
        """Whether a genuine module of TensorFlow 1.15.5 runs in the nearest frame outside the standard library."""
        return self._nearest(frame)[0] is Kind.LENT

    def is_transparent(self, frame: FrameType) -> bool:
        """Whether the code of a frame acts for its caller."""
        return self._kind_of(frame) is Kind.TRANSPARENT

    def user_frame(self, frame: FrameType | None) -> FrameType | None:
        """Return the nearest frame outside the standard library if it is user code or a lent module, else None."""
        kind, nearest = self._nearest(frame)
        return nearest if kind in (Kind.USER, Kind.LENT) else None

    def _nearest(self, frame: FrameType | None) -> tuple[Kind, FrameType | None]:
        while frame is not None:
            kind = self._kind_of(frame)
            if kind is not Kind.TRANSPARENT:
                return kind, frame
            frame = frame.f_back
        return Kind.USER, None

    def _kind_of(self, frame: FrameType) -> Kind:
        namespace = frame.f_globals
        key = (namespace.get("__name__"), namespace.get("__file__"))
        kind = self._kinds.get(key)
        if kind is None:
            kind = self._kinds[key] = self._kind(*key)
        return kind

    def _kind(self, name: Any, file: Any) -> Kind:
        # multiprocessing names the program's module __mp_main__ in a spawned child.
        if name in ("__main__", "__mp_main__"):
            return Kind.USER
        if isinstance(name, str) and is_lent(name):
            return Kind.LENT
        if isinstance(name, str) and _is_below(name, _FOR_THEIR_CALLER):
            return Kind.TRANSPARENT
        if isinstance(name, str) and name.partition(".")[0] in self._packages:
            return Kind.USER
        if not isinstance(file, str):
            return Kind.TRANSPARENT  # frozen importlib, or exec() in a plain dictionary
        path = os.path.realpath(file)
        if path.startswith(self._lent_folders):
            return Kind.LENT
        if path.startswith(_LEGACY + os.sep):
            return Kind.TRANSPARENT
        if not _INSTALLED_FOLDERS.isdisjoint(path.split(os.sep)):
            return Kind.LIBRARY
        if path.startswith(_OWN_FOLDER + os.sep):
            return Kind.LIBRARY
        if path.startswith(self._stdlib):
            return Kind.TRANSPARENT
        return Kind.USER


def is_at_import_statement(frame: FrameType | None) -> bool:
    """Whether `frame` is executing an import statement rather than calling ``__import__``."""
    return frame is not None and dis.opname[frame.f_code.co_code[frame.f_lasti]] == "IMPORT_NAME"


def is_lent(name: str) -> bool:
    """Whether a module is a genuine one of TensorFlow 1.15.5, by its full name."""
    return _is_below(name, _LENT)


def _is_below(name: str, packages: Iterable[str]) -> bool:
    return f"{name}.".startswith(tuple(f"{package}." for package in packages))
