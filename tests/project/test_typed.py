"""A user's program that mypy --strict accepts, and mistakes that it finds: the package ships its types."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import staging_tf1

PACKAGE = Path(staging_tf1.__file__).parent
PROGRAM = '''"""A program of a user."""

from __future__ import annotations

from typing import Any

import numpy as np

import staging_tf1 as staging
from staging_tf1 import PipelineStats, errors, sources
from staging_tf1.sources import ArraySource, GeneratorSource, MapSource, Source, mix


def even(batch: dict[str, Any]) -> dict[str, Any]:
    return {"x": batch["x"][::2]}


def feed(source: Source) -> Any:
    return staging.staged(source, name="train", capacity=2, num_threads=2, devices=["/cpu:0"])


train = ArraySource({"x": np.zeros((10, 3))}, batch_size=2, shuffle=True, seed=1, epochs=2, transform=even)
part, rest = train.split(0.5, seed=1)
both = mix([train, MapSource([1, 2, 3], batch_size=2)], [0.5, 0.5])
drawn = train.balanced(np.arange(10) % 2).weighted(np.ones(10)).by_length(np.arange(10))
rows = MapSource([[1]], batch_size=1).packed(8, np.ones(1, int))
stream = GeneratorSource(lambda: iter([np.zeros(3)]))
length: int | None = train.num_batches
for batch in train:
    print(batch)
runner = staging.CustomRunner(train, capacity=4, num_threads=2)
area = staging.StagingArea([np.float32], [[3]], capacity=1)
try:
    with staging.StagingSession(checkpoint_dir="logs", stall_secs=10.0) as sess:
        while not sess.should_stop():
            sess.run(feed(train))
        stats: list[PipelineStats] = sess.stats()
        print(stats[0].verdict, stats[0].batches + 1)
except errors.StallError as error:
    print(error.report)
print(sources.TFRecordSource)
'''
MISTAKES = """import numpy as np
from staging_tf1 import sources, staged

source = sources.ArraySource(np.arange(4), batch_size="2")
staged(source, capcity=2)
source.num_batches + 1
sources.ArraySorce
"""


@pytest.mark.slow  # mypy reads the whole package: `make check` does that, too
def test_a_program_of_a_user_is_typed_and_its_mistakes_are_found(tmp_path: Path) -> None:
    """Both in one run, which takes most of its time for numpy."""
    assert (PACKAGE / "py.typed").is_file()
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "mistakes.py").write_text(MISTAKES)
    # What mypy says of the package itself, which is checked with its own configuration, is not the user's affair.
    options = ["--strict", "--config-file", "", "--no-error-summary", "--follow-imports", "silent"]
    environment = dict(os.environ)
    if PACKAGE.parent.name != "site-packages":  # an editable installation, which mypy does not find
        environment["MYPYPATH"] = str(PACKAGE.parent)
    command = [sys.executable, "-m", "mypy", *options, "program.py", "mistakes.py"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment)
    errors = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert all(line.startswith("mistakes.py:") for line in errors), done.stdout
    found = [line.rpartition("[")[2].rstrip("]") for line in errors]
    assert found == ["arg-type", "call-arg", "operator", "attr-defined"], done.stdout + done.stderr
