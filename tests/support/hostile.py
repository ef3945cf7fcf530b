"""Values that few arguments accept: common mistakes, and values passed on purpose."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np


class Thing:
    """An object of an unknown type."""

    def __repr__(self) -> str:
        return "<a thing>"


class Unprintable:
    """An object whose repr fails."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")


# By name, so that a row of a table can name the values that it accepts.
HOSTILE: dict[str, Any] = {
    "none": None,
    "true": True,
    "false": False,
    "np_true": np.bool_(True),
    "zero": 0,
    "one": 1,
    "three": 3,
    "minus_one": -1,
    "half": 1.5,
    "two_point_zero": 2.0,
    "nan": float("nan"),
    "inf": float("inf"),
    "minus_inf": -float("inf"),
    "2**31": 2**31,
    "2**63": 2**63,
    "2**70": 2**70,
    "-2**70": -(2**70),
    "10**5000": 10**5000,
    "10**400": 10**400,
    "fraction": Fraction(1, 3),
    "huge_fraction": Fraction(10**400, 3),
    "decimal": Decimal("0.5"),
    "np_inf": np.float64("inf"),
    "np_uint64": np.uint64(2**64 - 1),
    "np_int": np.int64(3),
    "np_negative": np.int32(-1),
    "np_half": np.float32(1.5),
    "np_nan": np.float64("nan"),
    "np_0d": np.array(3),
    "np_1d": np.array([1, 2]),
    "np_empty": np.zeros(0),
    "digit": "3",
    "word": "x y",
    "blank": "",
    "nul": "a\0b",
    "surrogate": "\ud800",
    "bytes": b"x",
    "list": [1, 2],
    "empty_list": [],
    "tuple": (1.5, "x"),
    "dict": {"x": 1},
    "set": {1},
    "complex": 1j,
    "datetime": np.datetime64("2020-01-01"),
    "class": Thing,
    "thing": Thing(),
    "unprintable": Unprintable(),
}
