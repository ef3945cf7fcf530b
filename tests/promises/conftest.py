"""Promises are tested with blocks of batches from the second batch on, because the runs are short."""

from __future__ import annotations

import pytest

from staging_tf1.feed import readers


@pytest.fixture(autouse=True)
def _early_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "_FIRST_BATCHES", 1)
