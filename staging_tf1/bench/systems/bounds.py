"""The systems from which the bounds are computed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from staging_tf1._tf import tf
from staging_tf1.bench.case import Case, Step, open_session


@contextmanager
def const(case: Case) -> Iterator[Step]:
    """Take no input. The batch is a variable, because TensorFlow would fold constants into the step."""
    batch = next(case.workload.batches(case.data, case.seed))
    tensors = {name: tf.Variable(array, trainable=False).value() for name, array in batch.items()}
    fetches = case.model(tensors)
    with open_session(case) as session:
        yield session.make_callable(fetches)


@contextmanager
def source(case: Case) -> Iterator[Step]:
    """Only make the batches."""
    batches = case.workload.batches(case.data, case.seed)

    def step() -> None:
        next(batches)

    yield step


@contextmanager
def memcpy(case: Case) -> Iterator[Step]:
    """Only copy one batch, again and again, to memory that is in use already."""
    batch = list(next(case.workload.batches(case.data, case.seed)).values())
    copies = [np.array(array) for array in batch]

    def step() -> None:
        for copy, array in zip(copies, batch):
            np.copyto(copy, array)

    yield step
