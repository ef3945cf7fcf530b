"""Disables the search for garbage, a fifth of TensorFlow's import. The module that imports this enables it again."""

from __future__ import annotations

import gc

gc.disable()
