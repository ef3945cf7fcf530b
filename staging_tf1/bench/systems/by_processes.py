"""Worker processes of other projects, whose batches are fed between two steps: Grain and PyTorch.

Both start their processes by spawn. They get our source, which makes batch k for any k, so the order of their batches
is ours, too.
"""

from __future__ import annotations

import importlib
import importlib.util
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from staging_tf1.bench import NotApplicable
from staging_tf1.bench.case import Case, Step
from staging_tf1.bench.systems.by_hand import feeding
from staging_tf1.bench.systems.numbered import Numbered
from staging_tf1.bench.workloads import FACTS

# Batches that each worker process has ready. With larger buffers, most batches could be made before the measurement.
AHEAD = 2


@contextmanager
def grain_mp(case: Case) -> Iterator[Step]:
    """Use Grain's `mp_prefetch`. Each process reads with one thread: the default of 16 would share one GIL."""
    for_processes(case)
    grain = import_named("grain")
    source = Numbered(case.workload.maker(case.data, case.seed))
    reading = grain.ReadOptions(num_threads=1, prefetch_buffer_size=AHEAD)
    workers = grain.MultiprocessingOptions(num_workers=case.threads, per_worker_buffer_size=AHEAD)
    numbers = grain.MapDataset.range(len(source))
    batches = iter(numbers.map(source.__getitem__).to_iter_dataset(reading).mp_prefetch(workers))
    try:
        with feeding(case, batches) as step:
            yield step
    finally:
        batches.close()


@contextmanager
def torch_loader(case: Case) -> Iterator[Step]:
    """Use PyTorch's `DataLoader`. Its tensors are fed as numpy arrays on the same memory."""
    for_processes(case)
    torch = import_named("torch")
    loader = torch.utils.data.DataLoader(
        Numbered(case.workload.maker(case.data, case.seed)),
        batch_size=None,  # the elements are batches
        sampler=itertools.count(),
        num_workers=case.threads,
        prefetch_factor=AHEAD,
        multiprocessing_context="spawn",  # a fork would copy the locks of TensorFlow's threads
    )
    with feeding(case, ({name: tensor.numpy() for name, tensor in batch.items()} for batch in loader)) as step:
        yield step


def import_named(module: str) -> Any:
    """Return a package, or raise NotApplicable if it is not installed."""
    if importlib.util.find_spec(module) is None:
        raise NotApplicable(f"{module} is not installed (pip install {module})")
    return importlib.import_module(module)


def for_processes(case: Case) -> None:
    """Raise NotApplicable if a batch takes too little work for the processes of others."""
    facts: Any = FACTS.get(case.workload.name)
    if facts is None or not facts.for_processes:
        suited = ", ".join(name for name, other in FACTS.items() if other.for_processes)
        raise NotApplicable(f"its worker processes are measured on {suited}, where they may help")
