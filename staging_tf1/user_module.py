"""`user_module`: the module of a MODULE:NAME that a command was given."""

from __future__ import annotations

import importlib
import os
import sys
from types import ModuleType


class NoSuchModule(LookupError):
    """There is no module of that name."""


def user_module(name: str) -> ModuleType:
    """Import a module, which may be in the current folder.

    Raises:
      NoSuchModule: there is no module of that name.
      ModuleNotFoundError: the module imports another one that does not exist.
    """
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name not in (name, name.partition(".")[0]):
            raise
        raise NoSuchModule(f"found no module {name!r} in {os.getcwd()} or in the installed packages.") from None
