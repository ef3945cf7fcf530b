"""`Costs`: how long ops take, and what it costs to carry their results to the step."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from staging_tf1._tf import tf
from staging_tf1.auto import kinds

# Nanoseconds for one run of an op that handles one record. The time of others is estimated from what they return.
_TIMES = (
    (re.compile(r"Decode(Jpeg|AndCropJpeg|Png|Image|Bmp|Gif|Webp)$"), 2_000_000),
    (kinds.PYTHON, 1_000_000),
    (re.compile(r"Resize\w+|CropAndResize|NonMaxSuppression\w*|SampleDistorted\w+|AdjustHue|AdjustSaturation|"
                r"AdjustContrast\w*|RGBToHSV|HSVToRGB|AudioSpectrogram|Mfcc|DecodeWav|RFFT\w*"), 500_000),
    (re.compile(r"ReadFile|ParseExample\w*|ParseSingle\w+|DecodeCSV|DecodeRaw|DecodeCompressed|ParseSequence\w+|"
                r"ParseTensor|DecodeProto\w*"), 200_000),
    (re.compile(r"Regex\w+|String\w+|LookupTable\w+|Unique\w*|AsString|Substr|SparseFill\w+"), 50_000),
)  # fmt: skip
_OTHER_NS = 2_000
# How many bytes an arithmetic op computes in a nanosecond.
_BYTES_PER_NS = 1
# How often a loop runs, and how large an unknown dimension is.
ROUNDS = _UNKNOWN_DIM = 32
_STRING_BYTES = 64
_MOST_BYTES = 1 << 40
_STAGING_NS, _STAGED_BYTES_PER_NS = 5_000, 10


@dataclass(frozen=True)
class Costs:
    """Measured costs; those that were not measured are estimated by the type of the op."""

    # Nanoseconds of one step, by the name of an op: all rounds of a loop.
    times: Mapping[str, int] = field(default_factory=dict)
    # Bytes, by the name of a tensor.
    sizes: Mapping[str, int] = field(default_factory=dict)

    def time_of(self, op: Any, rounds: int = 1) -> int:
        """Return how many nanoseconds an op takes in one step; `rounds` is how often an estimate counts."""
        measured = self.times.get(op.name)
        if measured is not None:
            return measured
        fixed = _fixed_time(op.type)
        if fixed is not None:
            return rounds * fixed
        return rounds * (_OTHER_NS + sum(map(self.size_of, op.outputs)) // _BYTES_PER_NS)

    def size_of(self, tensor: Any) -> int:
        """Return the bytes of a tensor. If estimated, an unknown dimension counts as 32 and a string as 64 bytes."""
        measured = self.sizes.get(tensor.name)
        if measured is not None:
            return measured
        dtype = tensor.dtype.base_dtype
        item = _STRING_BYTES if dtype == tf.string else (dtype.size or 8)
        # An unknown shape counts as two unknown dimensions.
        shape = [None, None] if tensor.shape.rank is None else tensor.shape.as_list()
        return min(item * math.prod(_UNKNOWN_DIM if dim is None else int(dim) for dim in shape), _MOST_BYTES)

    def carrying_time(self, tensor: Any) -> int:
        """Return how many nanoseconds it costs to carry a tensor across the boundary."""
        return _STAGING_NS + self.size_of(tensor) // _STAGED_BYTES_PER_NS


@cache
def _fixed_time(kind: str) -> int | None:
    for types, time in _TIMES:
        if kind in types if isinstance(types, frozenset) else types.match(kind):
            return time
    return None
