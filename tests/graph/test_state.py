"""The records that the package keeps per graph and session say the type of each field, and explain it."""

from __future__ import annotations

import dataclasses
import re

import pytest

from staging_tf1.graph import state

# Without a class that type checkers know.
_TENSORFLOWS = {"monitored", "root"}
_RECORDS = [record for record in vars(state).values() if dataclasses.is_dataclass(record)]


@pytest.mark.parametrize("record", _RECORDS, ids=lambda record: record.__name__)
def test_each_field_has_a_type_of_its_own(record: type) -> None:
    vague = {field.name for field in dataclasses.fields(record) if re.match(r"Any$|(list|set)\[Any\]", str(field.type))}
    assert vague <= _TENSORFLOWS
