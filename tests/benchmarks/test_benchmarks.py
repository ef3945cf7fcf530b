"""The benchmarks: the batches that each system delivers, the figures of the tables, and what the programs print."""

from __future__ import annotations

import doctest
import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bench
import common
import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from forked import ForkServer
from measure import Request, config_of, cpu_secs, measured
from peers import SYSTEMS
from systems import BOUNDS, Case
from transforms import TOKENS, vocabulary
from workloads import WORKLOADS, NotApplicable

# Users run none of these programs.
pytestmark = pytest.mark.matrix

BENCHMARKS = Path(bench.__file__).parent
PAGE = (BENCHMARKS.parent / "docs" / "results.md").read_text(encoding="utf-8")
# Systems whose threads, processes or queues shuffle on their own: a record may come twice before another comes once.
ON_THEIR_OWN = {"classic", "hand_classic", "tf_data_shuffled", "tensorpack_zmq"}


def look(batch: dict[str, Any]) -> dict[str, Any]:
    """A stand-in for the model: the step fetches the batch itself."""
    return {name: tf.identity(tensor) for name, tensor in batch.items()}


def check_images(data: Any, batch: Any) -> list[int]:
    """W1 and W7: each image is its record, scaled if it is not bytes."""
    expected = data["image"][batch["label"]]
    scale = 1 if batch["image"].dtype == np.uint8 else 255
    np.testing.assert_allclose(batch["image"], expected / scale, atol=1e-6)
    return batch["label"].tolist()


def check_records(data: Any, batch: Any) -> list[int]:
    """W5: each record is complete and starts with its number."""
    records = [record if isinstance(record, bytes) else record.tobytes() for record in batch["record"]]
    assert all(record[8:] == np.random.default_rng(0).bytes(1016) for record in records)
    return [int.from_bytes(record[:8], "little") for record in records]


def check_tokens(data: Any, batch: Any) -> list[int]:
    """W6: the pieces of each row are the letters of its text, which may be cut."""
    names = {number: piece for piece, number in vocabulary().items()}
    for row, record in zip(batch["tokens"].tolist(), batch["label"]):
        pieces = "".join(names[number] for number in row if number)
        letters = data["text"][record].decode().replace(" ", "")
        assert letters.startswith(pieces) and (np.count_nonzero(row) == TOKENS or letters == pieces)
    return batch["label"].tolist()


CHECKS: dict[str, Callable[[Any, Any], list[int]]] = {
    "W1": check_images,
    "W5": check_records,
    "W6": check_tokens,
    "W7": check_images,
}


# Systems on arrays, as on W1; W5 and W6 have the systems that read files, and those with worker processes.
@pytest.mark.slow_cases(".*-W7", "(?!(staged|tf_data|staged_processes|grain_mp)-).*-W[56]", "staged_processes-W5")
@pytest.mark.parametrize("name", CHECKS)
@pytest.mark.parametrize("system", SYSTEMS)
def test_a_system_delivers_each_record_once_per_epoch(
    system: str, name: str, graph: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAGING_TF1_CACHE", str(tmp_path))
    workload = WORKLOADS[name]
    data = workload.open(workload.records[1])
    if isinstance(data, dict):
        data["label"] = np.arange(workload.records[1], dtype=np.int32)
    # Several hand-written threads deliver every record in an order of each.
    case = Case(workload, data, look, threads=1 if system == "hand_area" else 2)
    numbers: list[int] = []
    try:
        with SYSTEMS[system].feed(case) as step:
            for _ in range(workload.records[1] // workload.batch_size):
                numbers += CHECKS[name](data, step())
    except NotApplicable as reason:
        pytest.skip(str(reason))
    if system in ON_THEIR_OWN:
        assert set(numbers) <= set(range(workload.records[1]))
    else:
        assert sorted(numbers) == list(range(workload.records[1]))


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_model_of_each_workload_steps_on_a_constant_batch(
    name: str, graph: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAGING_TF1_CACHE", str(tmp_path))
    workload = WORKLOADS[name]
    assert workload.records[0] % workload.batch_size == workload.records[1] % workload.batch_size == 0
    data = workload.open(workload.records[1])
    found = {
        component: (array.shape[1:], array.dtype) for component, array in next(workload.batches(data, seed=1)).items()
    }
    assert found == {component: (shape, np.dtype(dtype)) for component, (shape, dtype) in workload.spec.items()}
    for bound in ("const", "memcpy"):
        with BOUNDS[bound].feed(Case(workload, data, workload.model)) as step:
            figures = measured(step, secs=1, steps=1)
        assert figures["steps"] == 1 and figures["wall_ms"] > 0 and figures["cpu_ms"] > 0


def test_as_many_steps_are_measured_as_fit_into_the_time() -> None:
    calls: list[int] = []
    assert 0 < measured(lambda: calls.append(1), secs=0.05)["steps"] < len(calls)
    assert cpu_secs() > 0


def answered(*wall_ms: float, cpu_ms: float = 0.0) -> list[Any]:
    return [{"measured": {"wall_ms": wall, "cpu_ms": cpu_ms}} for wall in wall_ms]


def test_the_rounds_ask_each_once_a_round_and_never_again_what_is_skipped() -> None:
    asked: list[tuple[str, int]] = []

    def ask(request: Request) -> Any:
        asked.append((request.system, request.seed))
        return {"skipped": "not here"} if request.system == "b" else answered(len(asked))[0]

    answers = bench.play_rounds({name: Request("W1", name) for name in "abc"}, 3, ask)
    assert asked == [("a", 1), ("b", 1), ("c", 1), ("c", 2), ("a", 2), ("c", 3), ("a", 3)]
    assert answers["a"] == answered(1, 5, 7) and answers["b"] == [{"skipped": "not here"}]


def test_a_row_has_the_median_the_spread_and_the_ratio_within_the_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "usable_cores", lambda: 2)
    # The machine is twice as slow in the second round and four times in the third.
    table = bench.Table(
        "W1",
        {
            "const": answered(1.0, 2.0, 4.0, cpu_ms=0.5),
            "source": answered(9.0, 9.0, 9.0, cpu_ms=2.5),
            "staged:4": answered(2.0, 4.0, 5.0, cpu_ms=1.0),
            "torch": [{"skipped": "not installed"}],
            "odd": [{"failed": "no answer in 3 s"}],
        },
    )
    # The larger of const and the CPU time on all cores.
    assert table.bound_ms == [1.5, 2.0, 4.0]
    lines = str(table).splitlines()
    assert lines[2:6] == [
        "system    ms per step      min to max  of bound  records/s  CPU ms",
        "const           2.000  1.000 to 4.000      1.00     64,000   0.500",
        "source          9.000  9.000 to 9.000         -     14,222   2.500",
        "staged:4        4.000  2.000 to 5.000      0.75     32,000   1.000",
    ]
    assert lines[7].startswith("bound: the larger of const and")
    assert lines[8:] == ["torch skipped: not installed", "odd failed: no answer in 3 s"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["W9"], "got workload W9, expected some of W1, W2, W3, W4, W5, W6, W7, W8"),
        (["--systems", "stage"], f"got system 'stage', expected one of {', '.join(SYSTEMS)}"),
        (["--systems", "feed_dict:4"], "system 'feed_dict' takes no number of threads, got 'feed_dict:4'"),
        (["--systems", "staged@x=1"], "got pool setting 'x=1', expected inter_op=N, intra_op=N or no_spinning"),
    ],
)
def test_words_that_make_no_sense(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        bench.main(words)
    assert capsys.readouterr().err.endswith(f"error: {message}\n")


def test_the_settings_of_a_system_add_to_those_of_all_rows() -> None:
    words = ["W6", "--pools", "no_spinning,intra_op=3", "--systems", "staged:2,staged@intra_op=2"]
    rows = bench.plan(bench.make_parser().parse_args(words))["W6"]
    assert list(rows) == ["const", "source", "staged:2", "staged@intra_op=2"]
    assert (rows["staged:2"].system, rows["staged:2"].threads) == ("staged", 2)
    cores = {name: config_of(row.pools).intra_op_parallelism_threads for name, row in rows.items()}
    assert cores == {"const": 3, "source": 3, "staged:2": 3, "staged@intra_op=2": 2}
    assert all(config_of(row.pools).experimental.disable_thread_spinning for row in rows.values())


def test_the_page_lists_every_workload_and_system_and_its_commands_are_understood() -> None:
    first_cells = {cell.strip("`").removesuffix(":N") for cell in re.findall(r"^\| (\S+) \|", PAGE, re.MULTILINE)}
    assert {*WORKLOADS, *SYSTEMS} <= first_cells
    commands = re.findall(r"^python benchmarks/bench\.py(.*?)(?:#.*)?$", PAGE.replace("\\\n", ""), re.MULTILINE)
    assert len(commands) > 8
    for command in commands:
        assert bench.plan(bench.make_parser().parse_args(shlex.split(command)))


def test_the_examples_in_docstrings() -> None:
    for module in (bench, common):
        assert doctest.testmod(module).failed == 0


def test_a_workload_is_measured_in_processes_of_their_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.json"
    words = ["W1", "--quick", "--systems", "staged:2", "--json", str(out)]
    assert bench.main(words) == 0
    assert re.search(r"^staged:2 .* \d\.\d\d ", capsys.readouterr().out, re.MULTILINE)
    rows = json.loads(out.read_text(encoding="utf-8"))["rounds"]["W1"]
    assert [*rows] == ["const", "source", "staged:2"] and all("measured" in answer for (answer,) in rows.values())


@pytest.mark.slow  # test_a_row_has_the_median_the_spread_and_the_ratio_within_the_rounds shows one that failed
def test_a_process_that_dies_tells_its_last_words() -> None:
    assert bench.ask(Request("W0", "const"))["failed"].endswith("KeyError: 'W0'")


# What the programs print in their quick form.
PROGRAMS: dict[str, tuple[list[str], str, int]] = {
    "experiments": ([], r" us \(|MiB in the area|of the time in order|real over synthetic: |ms per step$", 20),
    "loops": ([], r" ms  \d\.\d\d \(", 8),
    "datasets": ([], r"us per batch of 128|padding", 16),
    "cache": (["--part", "cache"], r" of the time|of 1/64 of the bytes", 6),
    "cluster": ([], r"^(step|latency|kills|pause|load|crowd)$", 6),
}


# The cluster trains one; the tests of clusters have its steps, kills and figures.
@pytest.mark.slow_cases("cluster")
@pytest.mark.timeout(2000)
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_experiments_run(name: str, fork_server: ForkServer) -> None:
    words, pattern, least = PROGRAMS[name]
    path = BENCHMARKS / f"{'datasets' if name == 'cache' else name}.py"
    done = fork_server.run(path, *words, "--quick", timeout=1800)
    assert done.returncode == 0, done.stderr
    assert len(re.findall(pattern, done.stdout, re.MULTILINE)) >= least, done.stdout


def test_the_list_of_programs_leads_to_each() -> None:
    page = (BENCHMARKS / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\]\((\w+\.py)\)", page)) == {path.name for path in BENCHMARKS.glob("*.py")}
