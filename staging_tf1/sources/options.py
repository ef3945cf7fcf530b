"""The options that all record sources share."""

from __future__ import annotations

import dataclasses
from typing import Any

from staging_tf1 import arguments
from staging_tf1.arguments import INT32_MAX, INT64_MAX
from staging_tf1.sources.transform import Transform, wants_rng

__all__ = ["KEPT", "Options"]


class _Kept:
    """Keeps an option as it is. Not None, which is a value of some options."""

    def __repr__(self) -> str:
        return "<as before>"


KEPT: Any = _Kept()


@dataclasses.dataclass(frozen=True)
class Options:
    """The options that all record sources share. See `RecordSource`."""

    batch_size: int
    shuffle: bool = False
    seed: int | None = None
    epochs: int | None = None
    shard: tuple[int, int] | None = None
    drop_remainder: bool = False
    across_epochs: bool = False
    transform: Transform | None = None

    def checked(self, owner: str) -> Options:
        """Check and normalize the options. Called before any file is opened."""
        wants_rng(owner, self.transform)
        return Options(
            arguments.whole(owner, "batch_size", self.batch_size, 1, INT32_MAX, "records in a batch"),
            arguments.flag(owner, "shuffle", self.shuffle),
            None if self.seed is None else arguments.seed(owner, self.seed),
            None
            if self.epochs is None
            else arguments.whole(owner, "epochs", self.epochs, 1, INT64_MAX, "None is endless"),
            arguments.shard(owner, self.shard, INT64_MAX),
            arguments.flag(owner, "drop_remainder", self.drop_remainder),
            arguments.flag(owner, "across_epochs", self.across_epochs),
            self.transform,
        )
