"""A MapSource with a collate function where its records are read one by one: padded, ragged, and in other sources."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from staging_tf1.errors import SpecError
from staging_tf1.sources import MapSource, concatenate
from staging_tf1.spec.ragged import RaggedValue


def _tenfold(records: list[Any]) -> Any:
    return np.array([[record * 10] for record in records])


def test_records_that_are_laid_out_are_those_that_collate_makes() -> None:
    source = MapSource([1, 2, 3], batch_size=3, collate=_tenfold, epochs=1)
    for each in (source, source.shard(0, 1), concatenate([source, source]).take(3)):
        assert each.pad(to=2).batch(0).tolist() == [[10, 0], [20, 0], [30, 0]]
        assert each.ragged().batch(0).to_list() == [[10], [20], [30]]


def test_rows_of_ragged_batches_are_no_records() -> None:
    def collate(records: list[Any]) -> Any:
        return {"x": RaggedValue.from_rows([[record] for record in records])}

    message = r"component 'x' of a batch is a .*RaggedValue, expected an array.* without collate=\."
    with pytest.raises(SpecError, match=message):
        MapSource([1, 2], batch_size=2, collate=collate).pad().batch(0)
