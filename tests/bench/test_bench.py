"""The benchmark suite: the batches that each system delivers, the figures of the tables, and the command line."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import select
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from forked import ForkServer
from processes import RunPython
from slow import with_slow

from staging_tf1.bench import BenchError, NotApplicable, suites
from staging_tf1.bench.case import Case
from staging_tf1.bench.measure import cpu_secs, measure
from staging_tf1.bench.rounds import Answer, Outcome, _running, ask_worker, play_rounds, rotated
from staging_tf1.bench.systems import BOUNDS, SYSTEMS, default_systems, load_system, parse_system
from staging_tf1.bench.tables import Bound, Table, as_json, as_markdown, as_text, bound_of, check_plot, draw, make_rows
from staging_tf1.bench.worker import Request, answer, config_of
from staging_tf1.bench.workloads import FACTS, check_workload, load_workload, split_own
from staging_tf1.bench.workloads.transforms import TOKENS, vocabulary
from staging_tf1.cli import bench

THREADS = 2
# Systems that shuffle in a queue of records: an epoch's records are not delivered together.
MIXED = {"classic", "hand_classic"}
# Systems whose threads or processes shuffle on their own.
ON_THEIR_OWN = {"tf_data_shuffled", "tensorpack_zmq"}
# Systems that need a package, and its module.
NEEDS = {
    "tensorpack": "tensorpack",
    "tensorpack_zmq": "tensorpack",
    "grain_mp": "grain",
    "torch_loader": "torch",
}
# The pairs of a workload and a system that cannot feed it.
NOT_FOR = {
    ("W3", "tf_data"),
    ("W6", "tf_data"),
    *((name, "tf_data_shuffled") for name in FACTS if name != "W5"),
    *((name, system) for name in ("W6", "W7") for system in ("staged_uint8", "staged_uint8_nice")),
    *((name, system) for name in ("W1", "W2", "W3", "W5") for system in NEEDS if system != "tensorpack"),
}
PAIRS = [(name, system) for name in FACTS for system in SYSTEMS if (name, system) not in NOT_FOR]


def needs(name: str, system: str = "") -> None:
    """Skip the test if a package is not installed."""
    if missing(name, system):
        pytest.skip(f"{missing(name, system)} is not installed")


def missing(name: str, system: str) -> str:
    """Return the module that a workload or a system needs, and that is not installed."""
    needed = [*(["PIL"] if name == "W4" else []), *([NEEDS[system]] if system in NEEDS else [])]
    return next((module for module in needed if importlib.util.find_spec(module) is None), "")


def look(batch: dict[str, Any]) -> dict[str, Any]:
    """A stand-in for the model: the step fetches the batch itself."""
    return {name: tf.identity(tensor) for name, tensor in batch.items()}


def numbered(name: str, tmp_path: Path, records: int | None = None) -> tuple[Any, Any]:
    """Return a workload and its data, with the record's number in place of its label."""
    workload = load_workload(name)
    data = workload.open(records or FACTS[name].quick_records, str(tmp_path))
    if isinstance(data, dict):
        data["label"] = np.arange(len(data["label"]), dtype=np.int32)
    return workload, data


def delivered(name: str, system: str, tmp_path: Path, threads: int, records: int | None = None) -> list[int]:
    """Return the record numbers of one epoch's number of batches, in order. Each batch is compared with its records."""
    workload, data = numbered(name, tmp_path, records)
    steps = (records or FACTS[name].quick_records) // workload.batch_size
    numbers: list[int] = []
    with load_system(system)(Case(workload, data, look, threads=threads)) as step:
        for _ in range(steps):
            batch = step()
            numbers += CHECKS[name](data, batch)
    return numbers


def check_rows(data: Any, batch: Any) -> list[int]:
    """W1 and W3: each image is its record, scaled."""
    np.testing.assert_allclose(batch["image"], data["image"][batch["label"]] / 255, atol=1e-6)
    return batch["label"].tolist()


def check_flipped(data: Any, batch: Any) -> list[int]:
    """W2: each image is its record, scaled; some are flipped."""
    original = data["image"][batch["label"]] / np.float32(255)
    same = np.isclose(batch["image"], original, atol=1e-6).all(axis=(1, 2, 3))
    flipped = np.isclose(batch["image"], original[:, :, ::-1], atol=1e-6).all(axis=(1, 2, 3))
    assert (same ^ flipped).all() and same.any() and flipped.any()
    return batch["label"].tolist()


def check_crops(data: Any, batch: Any) -> list[int]:
    """W4: each crop has the colour of its file. Decoders differ in the last digits."""
    from io import BytesIO

    from PIL import Image

    colours = [np.asarray(Image.open(BytesIO(data["image"][i]))).mean(axis=(0, 1)) / 255 for i in batch["label"]]
    assert batch["image"].shape == (16, 96, 96, 3)
    np.testing.assert_allclose(batch["image"].mean(axis=(1, 2)), colours, atol=0.03)
    return batch["label"].tolist()


def check_records(data: Any, batch: Any) -> list[int]:
    """W5: each record is complete and starts with its number."""
    records = [record if isinstance(record, bytes) else record.tobytes() for record in batch["record"]]
    noise = np.random.default_rng(0).bytes(1016)
    assert all(record[8:] == noise for record in records)
    return [int.from_bytes(record[:8], "little") for record in records]


def check_tokens(data: Any, batch: Any) -> list[int]:
    """W6: the pieces of each row are the letters of its text, which may be cut."""
    names = {number: piece for piece, number in vocabulary().items()}
    for row, record in zip(batch["tokens"].tolist(), batch["label"]):
        pieces = [names[number] for number in row if number]
        letters = data["text"][record].decode().replace(" ", "")
        assert row == [*(number for number in row if number), *[0] * (TOKENS - len(pieces))]
        assert letters.startswith("".join(pieces)) and (len(pieces) == TOKENS or letters == "".join(pieces))
    return batch["label"].tolist()


def check_bytes(data: Any, batch: Any) -> list[int]:
    """W7: each image is its record."""
    assert batch["image"].dtype == np.uint8
    np.testing.assert_array_equal(batch["image"], data["image"][batch["label"]])
    return batch["label"].tolist()


CHECKS: dict[str, Callable[[Any, Any], list[int]]] = {
    "W1": check_rows,
    "W2": check_flipped,
    "W3": check_rows,
    "W4": check_crops,
    "W5": check_records,
    "W6": check_tokens,
    "W7": check_bytes,
}


# Systems on arrays, as on W1, and on data for worker processes, as on W6. W5 and W6 have the systems that shuffle,
# those that read files or texts in their own way, and those of a user's hand.
@pytest.mark.slow_cases(
    "W[2347]-(?!(staged|staged_uint8|staged_processes|tf_data)$).*",
    "W[^6]-staged_processes",
    "W[56]-(staged_nice|staged_uint8_nice|lockstep|classic_fifo|from_generator|py_function)",
    "W3-staged_uint8",
)
@pytest.mark.parametrize(("name", "system"), PAIRS)
def test_what_a_system_delivers(name: str, system: str, tmp_path: Path, graph: Any) -> None:
    needs(name, system)
    records = FACTS[name].quick_records
    # With several hand-written threads, each thread delivers every record in its own order.
    threads = 1 if system == "hand_area" else THREADS
    numbers = delivered(name, system, tmp_path, threads)
    assert len(numbers) == records
    if system in MIXED | ON_THEIR_OWN:
        assert set(numbers) <= set(range(records))
        return
    assert sorted(numbers) == list(range(records)), "each record once per epoch"
    front_to_back = name == "W5" and not SYSTEMS[system].ours and system != "py_function"
    assert (numbers == list(range(records))) == front_to_back


@pytest.mark.parametrize("system", sorted(MIXED))
def test_a_shuffle_queue_holds_back_no_more_than_its_capacity(system: str, tmp_path: Path, graph: Any) -> None:
    records, batch_size = 128 * 32, 128
    numbers = delivered("W1", system, tmp_path, threads=1, records=records)
    counts = np.bincount(numbers, minlength=records)
    # At most 8 batches in the queue and 2 in the area.
    assert (counts == 0).sum() <= 10 * batch_size
    assert counts.max() <= 2


def test_the_order_of_staged_does_not_depend_on_the_threads(tmp_path: Path, graph: Any) -> None:
    one = delivered("W1", "staged", tmp_path, threads=1)
    with tf.Graph().as_default():
        assert delivered("W1", "staged", tmp_path, threads=4) == one


@pytest.mark.parametrize("name", FACTS)
def test_the_model_of_each_workload_steps_on_a_constant_batch(name: str, tmp_path: Path, graph: Any) -> None:
    needs(name)
    workload = load_workload(name)
    data = workload.open(FACTS[name].quick_records, str(tmp_path))
    if name != "W7":  # 20 MB of it, which TensorFlow takes a second to copy into a graph
        with load_system("const")(Case(workload, data, look)) as step:
            first, second = step(), step()
        assert all((first[component] == second[component]).all() for component in workload.spec)
    with load_system("const")(Case(workload, data, workload.model)) as step:
        before = tf.get_default_graph().get_collection(tf.GraphKeys.TRAINABLE_VARIABLES)
        measured = measure(step, secs=1, steps=1)
    assert measured.steps == 1 and measured.wall_ms > 0 and measured.cpu_ms > 0 and measured.peak_mb > 1
    assert bool(before) == (name not in ("W5", "W7"))


@pytest.mark.parametrize("bound", ["source", "memcpy"])
def test_what_needs_no_graph_steps(bound: str, tmp_path: Path, graph: Any) -> None:
    workload = load_workload("W1")
    data = workload.open(FACTS["W1"].quick_records, str(tmp_path))
    with load_system(bound)(Case(workload, data, workload.model)) as step:
        measured = measure(step, secs=1, steps=3)
    assert measured.steps == 3 and measured.wall_ms > 0 and measured.cpu_ms > 0
    assert not graph.get_operations()


def test_batches_of_a_workload_are_the_tensors_that_its_model_takes(tmp_path: Path) -> None:
    for name in FACTS:
        if missing(name, ""):
            continue
        workload = load_workload(name)
        batch = next(workload.batches(workload.open(FACTS[name].quick_records, str(tmp_path)), seed=1))
        found = {component: (array.shape, array.dtype) for component, array in batch.items()}
        assert found == {
            component: ((workload.batch_size, *shape), np.dtype(dtype))
            for component, (shape, dtype) in workload.spec.items()
        }


@pytest.mark.parametrize("name", FACTS)
def test_all_batches_of_a_workload_are_alike(name: str) -> None:
    assert FACTS[name].records % FACTS[name].batch_size == FACTS[name].quick_records % FACTS[name].batch_size == 0


@pytest.mark.parametrize(
    ("name", "system", "why"),
    [
        ("W3", "tf_data", "W3 waits in Python"),
        ("W1", "tf_data_shuffled", "tf_data already shuffles all of W1"),
        ("W6", "tf_data", "W6 cuts texts in Python"),
        ("W6", "staged_uint8", "W6 has no compact form of its batches"),
        ("W7", "staged_uint8", "W7 stages bytes in any case"),
        ("W1", "grain_mp", "its worker processes are measured on W4, W6, W7, where they may help"),
        ("W5", "torch_loader", "its worker processes are measured on W4, W6, W7, where they may help"),
    ],
)
def test_a_system_that_does_not_fit_says_why(name: str, system: str, why: str, tmp_path: Path, graph: Any) -> None:
    workload, data = numbered(name, tmp_path)
    with pytest.raises(NotApplicable, match=why), load_system(system)(Case(workload, data, look)):
        pass


@pytest.mark.parametrize(
    ("module", "request_", "why"),
    [
        ("tensorpack", Request("W1", "tensorpack", ""), "tensorpack is not installed (pip install tensorpack)"),
        ("tensorpack", Request("W6", "tensorpack_zmq", ""), "tensorpack is not installed (pip install tensorpack)"),
        ("grain", Request("W6", "grain_mp", ""), "grain is not installed (pip install grain)"),
        ("torch", Request("W6", "torch_loader", ""), "torch is not installed (pip install torch)"),
        (
            "PIL",
            Request("W4", "const", ""),
            "W4 decodes with Pillow, which is not installed (pip install 'staging-tf1[bench]')",
        ),
    ],
)
def test_what_is_not_installed_is_skipped_with_the_cure(
    module: str, request_: Request, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)  # as if it were not installed
    assert answer(replace(request_, records=256)) == {"skipped": why}


def test_as_many_steps_are_measured_as_fit_into_the_time() -> None:
    calls: list[int] = []
    measured = measure(lambda: calls.append(1), secs=0.05)
    # The calls include the warm-up.
    assert 0 < measured.steps < len(calls)
    calls.clear()
    assert measure(lambda: calls.append(1), secs=9, steps=3).steps == 3
    assert len(calls) == 6


def test_each_system_is_first_once_and_last_once() -> None:
    turns = [rotated("abcd", turn) for turn in range(4)]
    assert turns == [list("abcd"), list("bcda"), list("cdab"), list("dabc")]


def measured(wall: float, cpu: float = 0.0) -> Answer:
    return Answer(measured={"wall_ms": wall, "cpu_ms": cpu, "steps": 1, "peak_mb": 1.0, "batch_size": 64})


def test_the_rounds_ask_each_once_a_round_and_never_again_what_is_skipped() -> None:
    asked: list[tuple[str, int]] = []

    def ask(request: Request, timeout_secs: float) -> Answer:
        asked.append((request.system, request.seed))
        return Answer(skipped="not here") if request.system == "b" else measured(len(asked))

    done: list[str] = []
    requests = {name: Request("W1", name, "") for name in "abc"}
    outcomes = play_rounds(requests, 3, lambda name, given: done.append(name), ask)
    assert asked == [("a", 1), ("b", 1), ("c", 1), ("c", 2), ("a", 2), ("c", 3), ("a", 3)]
    assert done == list("abcbcacab")
    assert outcomes["a"].wall_ms == [1, 5, 7] and outcomes["c"].wall_ms == [3, 4, 6]
    assert outcomes["b"].skipped == "not here" and outcomes["b"].wall_ms == []


def test_a_system_that_may_hang_has_a_limit_of_its_own() -> None:
    limits: dict[str, float] = {}

    def ask(request: Request, timeout_secs: float) -> Answer:
        limits[request.system] = timeout_secs
        return measured(1.0)

    (plan,) = suites.workload_plans(["W6"], default_systems([2]), secs=1, folder="x")
    play_rounds(plan.requests, 1, ask=ask)
    assert limits["tensorpack_zmq"] == 70 and limits["tensorpack"] == limits["staged"] == 310


def test_the_step_of_w6_has_one_core_unless_a_system_sets_another_number() -> None:
    systems = [parse_system("staged"), parse_system("staged@intra_op=2")]
    plans = suites.workload_plans(["W1", "W6"], systems, secs=1, folder="x")
    cores = [{name: request.intra_op for name, request in plan.requests.items()} for plan in plans]
    assert cores[0] == {"const": 0, "source": 0, "staged:1": 0, "staged:1@intra_op=2": 2}
    assert cores[1] == {"const": 1, "source": 1, "staged:1": 1, "staged:1@intra_op=2": 2}


_PARENT = """
import subprocess, sys
sum(range(5_000_000))
print(subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE).pid, flush=True)
input()
"""


def test_what_a_worker_has_started_ends_with_it() -> None:
    with _running([sys.executable, "-c", _PARENT], dict(os.environ)) as worker:
        assert worker.stdout is not None
        child = os.pidfd_open(int(worker.stdout.readline()))
        assert cpu_secs() - time.process_time() > 0.02
    assert worker.poll() is not None
    assert select.select([child], [], [], 60)[0], "it has ended"
    os.close(child)


def outcome(name: str, wall: list[float], cpu: list[float] | None = None) -> Outcome:
    made = Outcome(name)
    for wall_ms, cpu_ms in zip(wall, cpu or [0.0] * len(wall)):
        made.add(measured(wall_ms, cpu_ms))
    return made


def test_the_bound_is_the_larger_of_const_and_of_the_cpu_time_on_all_cores() -> None:
    outcomes = {
        "const": outcome("const", wall=[4.0, 4.0], cpu=[6.0, 2.0]),
        "source": outcome("source", wall=[9.0, 9.0], cpu=[4.0, 4.0]),
    }
    bound = bound_of(outcomes, cores=2, reference=None)
    assert bound is not None and bound.ms == [5.0, 4.0]
    assert bound_of({"const": outcomes["const"]}, cores=2, reference=None) is None
    by_reference = bound_of({"tf_data": outcome("tf_data", [3.0])}, cores=2, reference="tf_data")
    assert by_reference is not None and by_reference.ms == [3.0]


def test_a_row_has_the_median_the_spread_and_the_ratio_within_the_rounds() -> None:
    # The machine is twice as slow in the second round and four times in the third. Ratios are computed per round.
    bound = Bound([1.0, 2.0, 4.0], "")
    (row,) = make_rows([outcome("a", [2.0, 4.0, 5.0]), Outcome("b", skipped="x")], bound)
    assert (row.median_ms, row.least_ms, row.most_ms, row.of_bound) == (4.0, 2.0, 5.0, 0.5)
    assert row.records_per_sec == 64 / 4e-3
    source, other = make_rows([outcome("source", [1.0]), outcome("a", [1.0])], None)
    assert source.of_bound is None and other.of_bound is None


def some_tables() -> list[Table]:
    outcomes = {
        "const": outcome("const", [1.0, 1.5]),
        "staged:4": outcome("staged:4", [2.0, 2.0]),
        "tensorpack": Outcome("tensorpack", skipped="not installed"),
        "odd": Outcome("odd", failed="no answer in 3 s"),
    }
    return [Table("W9: a title", outcomes, Bound([1.0, 1.0], "as const"))]


def test_the_text_has_machine_figures_and_reasons() -> None:
    lines = as_text({"Python": "3.12", "processor": "one"}, some_tables()).splitlines()
    assert lines[:2] == ["Python     3.12", "processor  one"]
    assert lines[5:8] == [
        "  system    ms per step      min to max  of bound  records/s  CPU ms",
        "  const           1.250  1.000 to 1.500      0.83     51,200   0.000",
        "  staged:4        2.000  2.000 to 2.000      0.50     32,000   0.000",
    ]
    assert lines[9:] == [
        "  bound: as const",
        "  tensorpack skipped: not installed",
        "  odd failed: no answer in 3 s",
    ]


def test_the_markdown_is_a_table() -> None:
    lines = as_markdown({"Python": "3.12", "numpy": "2.5"}, some_tables()).splitlines()
    assert lines[0] == "Python 3.12; numpy 2.5."
    assert "| staged:4 | 2.000 | 2.000 to 2.000 | 0.50 | 32,000 | 0.000 |" in lines
    assert {line.count("|") for line in lines if line.startswith("|")} == {7}


def test_the_json_has_every_round() -> None:
    found = json.loads(json.dumps(as_json({"Python": "3.12"}, some_tables())))
    (table,) = found["tables"]
    assert table["bound"] == {"ms": [1.0, 1.0], "meaning": "as const"}
    assert [row["name"] for row in table["rows"]] == ["const", "staged:4"]
    assert table["rounds"][0]["wall_ms"] == [1.0, 1.5]
    assert table["rounds"][2]["skipped"] == "not installed"


def test_the_plot_is_a_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "out.png"
    check_plot(str(path))
    draw([*some_tables(), Table("nothing was measured", {}, None)], str(path))
    assert path.read_bytes().startswith(b"\x89PNG")


def test_a_plot_without_matplotlib_is_refused_beforehand(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # as if it were not installed
    assert said_by(capsys, "W1", "--plot", "out.png") == (
        "staging-tf1 bench: --plot needs matplotlib: pip install 'staging-tf1[bench]'. (see staging-tf1 bench --help)\n"
    )


def said_by(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Return what the command prints on stderr when it rejects its arguments."""
    with pytest.raises(SystemExit) as exit_:
        bench.main(list(words))
    assert exit_.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    return err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["W9"], "Unknown workload 'W9', expected one of W1, W2, W3, W4, W5, W6, W7."),
        (["--systems", "stage"], f"Unknown system 'stage', expected one of {', '.join(SYSTEMS)}."),
        (
            ["--systems", "feed_dict:4"],
            "System 'feed_dict' takes no number of threads, got 'feed_dict:4'. Remove ':4'.",
        ),
        (["--systems", "staged:0"], "System 'staged' got 0 threads, expected 1 to 256."),
        (
            ["--systems", "staged:1@inter=1"],
            "Unknown pool setting '@inter=1', expected @inter_op=N or @intra_op=N (N from 1 to 999), or @no_spinning.",
        ),
        (
            ["--systems", "staged@inter_op=0"],
            "Unknown pool setting '@inter_op=0', expected @inter_op=N or @intra_op=N (N from 1 to 999), or "
            "@no_spinning.",
        ),
        (["--rounds", "0"], "argument --rounds: got '0', expected a whole number from 1 to 1000"),
        (["--threads", "1,x"], "--threads got 'x', expected a whole number from 1 to 256"),
        (["--secs", "0"], "--secs got 0, expected 0.01 to 600."),
        (["--secs", "nan"], "--secs got nan, expected 0.01 to 600."),
        (
            ["--train", "my_module"],
            "--train got 'my_module', expected my_module:build, where build() returns (source, train).",
        ),
        (
            ["--train", "no_module_of_this_name:build"],
            f"--train no_module_of_this_name:build: found no module 'no_module_of_this_name' in {os.getcwd()} or in "
            "the installed packages.",
        ),
        (
            ["W1", "--train", "my_module:build"],
            "--train measures your own step: remove workloads, --systems, --suite and --quick.",
        ),
        (
            ["--suite", "classic", "--systems", "staged"],
            "--suite sets its own systems and pools: remove --systems, --inter-op, --intra-op and --no-spinning.",
        ),
        (
            ["--suite", "classic", "--no-spinning"],
            "--suite sets its own systems and pools: remove --systems, --inter-op, --intra-op and --no-spinning.",
        ),
        (
            ["--json", "no/such/folder/o.json"],
            "--json 'no/such/folder/o.json' cannot be written: No such file or directory. Choose a writable folder.",
        ),
    ],
)
def test_words_that_make_no_sense(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert said_by(capsys, *words) == f"staging-tf1 bench: {message} (see staging-tf1 bench --help)\n"


def test_names() -> None:
    assert check_workload("w3") == "W3"
    assert split_own("a.b:build") == ("a.b", "build")
    names = [str(name) for name in default_systems([1, 4])]
    assert "staged:4" in names and "feed_dict" in names and "lockstep" in names
    assert [str(parse_system(name)) for name in names] == names
    for name in [*BOUNDS, *SYSTEMS]:
        assert callable(load_system(name))


def test_the_page_knows_every_workload_and_system_and_its_commands_are_understood() -> None:
    page = (BENCHMARKS.parent / "docs" / "performance.md").read_text(encoding="utf-8")
    first_cells = {cell.strip("`").removesuffix(":N") for cell in re.findall(r"^\| (\S+) \|", page, re.MULTILINE)}
    assert {*FACTS, *SYSTEMS} <= first_cells
    commands = re.findall(r"^staging-tf1 bench(.*?)(?:#.*)?$", page, re.MULTILINE)
    assert len(commands) > 12
    for command in commands:
        options = bench.parser().parse_args(shlex.split(command))
        assert bench._plans(options)


def test_the_plans_hold_the_bounds_and_the_reference() -> None:
    first, last = suites.workload_plans(["W1", "W5"], [parse_system("staged:4")], secs=1, folder="x")
    assert list(first.requests) == ["const", "source", "staged:4"]
    assert first.requests["staged:4"] == Request("W1", "staged", "x", threads=4, records=128 * 400, secs=1)
    assert list(last.requests) == ["const", "source", "staged:4", "tf_data"]
    (mixed,) = suites.workload_plans(
        ["W1"], [parse_system("staged"), parse_system("staged:4@inter_op=1@no_spinning")], secs=1, folder="x"
    )
    with_pools = suites.with_pools(mixed, {"inter_op": 2, "intra_op": 3, "no_spinning": False})
    pools = {name: (each.inter_op, each.intra_op, each.no_spinning) for name, each in with_pools.requests.items()}
    assert pools["staged:1"] == pools["const"] == (2, 3, False)
    assert pools["staged:4@inter_op=1@no_spinning"] == (1, 3, True), (
        "its own settings, and the common ones for the others"
    )
    (classic,) = suites.classic_plans(["W2"], secs=1, folder="x")
    changed = classic.requests["queue, intra_op 1"]
    assert (changed.system, changed.intra_op, changed.threads, changed.input_device) == ("hand_classic", 1, 1, None)
    assert classic.requests["staged, inter_op 1"].inter_op == 1
    assert classic.requests["queue, no spinning"].no_spinning
    assert classic.requests["staged, input on /cpu:0"].input_device == "/cpu:0"


_OWN = """
import numpy as np
import tensorflow.compat.v1 as tf
import staging_tf1 as staging

def build():
    x = np.random.default_rng(0).random((64, 3), np.float32)
    return staging.sources.ArraySource({"x": x, "y": x @ [[1.0], [2.0], [3.0]]}, batch_size=24), train

def train(batch):
    error = tf.matmul(batch["x"], tf.get_variable("w", [3, 1])) - tf.cast(batch["y"], tf.float32)
    loss = tf.reduce_mean(error**2)
    return tf.train.GradientDescentOptimizer(0.1).minimize(loss)

def short():
    return staging.sources.ArraySource(np.zeros([4, 1]), batch_size=2, epochs=1), lambda x: tf.reduce_sum(x)

def generated():
    return (lambda: ([number] for number in range(10**9))), lambda batch: batch

def forgetful():
    return build()[0], lambda batch: print()

def wrong():
    return build()[0]
"""


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "bench_own.py").write_text(_OWN, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    sys.modules.pop("bench_own", None)


@pytest.mark.parametrize("function", ["build", "generated"])
@pytest.mark.parametrize("system", ["const", "feed_dict", "staged"])
def test_a_step_of_the_users_own(function: str, system: str, own_module: None) -> None:
    got = answer(Request(f"bench_own:{function}", system, "", steps=5, threads=2))
    assert got["measured"]["steps"] == 5
    # The batches of a generator may differ in length.
    assert got["measured"]["batch_size"] == (24 if function == "build" else 0)


@pytest.mark.parametrize(
    ("name", "system", "message"),
    [
        ("bench_other:build", "const", r"--train bench_other:build: found no module 'bench_other' in .* installed"),
        ("bench_own:built", "const", "--train bench_own:built: module 'bench_own' has no function 'built'."),
        (
            "bench_own:wrong",
            "const",
            r"--train bench_own:wrong: wrong\(\) returned ArraySource, expected \(source, train",
        ),
        ("bench_own:forgetful", "const", "The train function of bench_own:forgetful returned None. Return the train"),
        (
            "bench_own:short",
            "feed_dict",
            "bench_own:short ran out of data during the measurement. Set epochs=None",
        ),
        ("bench_own:short", "staged", "bench_own:short ran out of data during the measurement. Set epochs=None"),
    ],
)
def test_mistakes_in_a_step_of_the_users_own(name: str, system: str, message: str, own_module: None) -> None:
    assert re.match(message, answer(Request(name, system, "", steps=5))["failed"])


def test_a_colon_is_not_enough() -> None:
    with pytest.raises(BenchError, match="expected my_module:build"):
        suites.own_plan(":build", secs=1, folder="")


@dataclass(frozen=True)
class OtherRequest(Request):
    """A request of another version, at which a worker dies before it has loaded TensorFlow."""

    other: int = 0


def test_a_worker_that_dies_tells_its_last_words() -> None:
    failed = ask_worker(OtherRequest("W1", "const", ""), timeout_secs=500).failed
    assert failed is not None and "got an unexpected keyword argument 'other'" in failed


@pytest.mark.timeout(2000)
@pytest.mark.parametrize(
    ("names", "systems"),
    [
        (["W1", "W5"], ["feed_dict", f"staged:{THREADS}", "tf_data_shuffled"]),
        pytest.param(["W1", "W5"], [], marks=pytest.mark.slow),
        pytest.param([], [], marks=pytest.mark.slow),
    ],
    ids=["some", "two", "all"],
)
def test_the_quick_form_runs_every_workload_on_every_system(
    run_python: RunPython, tmp_path: Path, names: list[str], systems: list[str]
) -> None:
    out = tmp_path / "out.json"
    chosen = ["--systems", ",".join(systems)] if systems else ["--threads", THREADS]
    done = run_python(
        *("-m", "staging_tf1", "bench", *names, "--quick", *chosen, "--cache", tmp_path, "--json", out),
        timeout=1800,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert "TensorFlow" in done.stdout and "failed" not in done.stdout
    tables = json.loads(out.read_text(encoding="utf-8"))["tables"]
    assert [table["title"][:2] for table in tables] == (names or list(FACTS))
    for table in tables:
        name = table["title"][:2]
        references = {FACTS[name].reference} - {None}
        expected = {*BOUNDS, *references, *(systems or map(str, default_systems([THREADS])))}
        assert {row["name"] for row in table["rounds"]} == expected
        for row in table["rounds"]:
            system = row["name"].split(":")[0]
            applies = system in BOUNDS or system in references or (name, system) in PAIRS
            assert bool(row["wall_ms"]) == (applies and not missing(name, system)), row


# Each word has a path and its arguments, in lines. What an experiment prints comes after a line with its path.
_RUN_EXPERIMENTS = """
import runpy, sys
for word in sys.argv[1:]:
    path, *arguments = word.splitlines()
    print("#", path, flush=True)
    sys.argv = [path, "--quick", *arguments]
    sys.path.insert(0, path.rpartition("/")[0])
    runpy.run_path(path, run_name="__main__")
"""
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
_HELPERS = ("cluster_tasks.py", "common.py", "datasets_caches.py", "datasets_reading.py", "datasets_torch.py")
EXPERIMENTS = sorted(path for path in BENCHMARKS.glob("*.py") if path.name not in _HELPERS)
# In the default run, those that start no processes share one: its first session takes longer than the others. One of
# them varies some of what it can.
_CLUSTER = BENCHMARKS / "cluster.py"
_TOGETHER = [[path] for path in EXPERIMENTS]
_SCALED = ["bytes", "threads", "towers", "capacity", "steps"]
if not with_slow():
    _TOGETHER = [[path for path in EXPERIMENTS if path != _CLUSTER], [_CLUSTER]]
    _SCALED = ["threads", "towers", "steps"]


def check_experiment(name: str, said: str) -> None:
    """Check the lines that the experiment prints."""
    if name == "cast":
        assert len(re.findall(r"MiB in the area", said)) == 3
        assert re.findall(r"(\d+\.\d) MiB", said) == ["13.5", "6.8", "3.4"]
    elif name == "cluster":
        assert re.findall(r"^(\w+)$", said, re.MULTILINE) == ["step", "latency", "kills", "pause", "load", "crowd"]
    elif name == "overhead":
        assert len(re.findall(r" [+-]\d+\.\d us ", said)) == 4
    elif name == "scaling":
        assert [line for line in said.splitlines() if ":" not in line] == _SCALED
    elif name == "datasets":
        assert said.count("us per batch of 128") == 11 and said.count("padding") == 5
    elif name == "shuffle":
        assert said.count("of the time in order") == 2
    else:
        assert name == "synthetic" and "real over synthetic: " in said


# It trains a cluster, whose steps, kills and figures the tests of clusters have.
@pytest.mark.slow_cases("cluster")
@pytest.mark.timeout(2000)
@pytest.mark.parametrize("paths", _TOGETHER, ids=lambda paths: "-".join(path.stem for path in paths))
def test_the_experiments_run(fork_server: ForkServer, paths: list[Path]) -> None:
    words = ["\n".join([str(path), *(_SCALED if path.stem == "scaling" else [])]) for path in paths]
    done = fork_server.run("-c", _RUN_EXPERIMENTS, *words, timeout=1800)
    assert done.returncode == 0, done.stderr
    said = re.split(r"^# .*\n", done.stdout, flags=re.MULTILINE)[1:]
    for path, text in zip(paths, said, strict=True):
        check_experiment(path.stem, text)


def test_the_part_about_caches_runs(fork_server: ForkServer) -> None:
    done = fork_server.run(BENCHMARKS / "datasets.py", "--part", "cache", "--quick")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(" of the time") >= 3 and done.stdout.count("of 1/64 of the bytes") == 3


def test_the_list_of_experiments_leads_to_each() -> None:
    page = (BENCHMARKS / "README.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"\[(\w+\.py)\]\(\1\)", page)) == [path.name for path in EXPERIMENTS]


@pytest.mark.parametrize("which", [["W1", "--systems", "staged"], ["--train", "my_module:build"]])
def test_the_pools_are_as_they_are_asked_for(which: list[str]) -> None:
    words = [*which, "--inter-op", "1", "--intra-op", "2", "--no-spinning"]
    (plan,) = bench._plans(bench.parser().parse_args(words))
    assert {(each.inter_op, each.intra_op, each.no_spinning) for each in plan.requests.values()} == {(1, 2, True)}
    assert plan.title.endswith(
        "; inter_op_parallelism_threads=1; intra_op_parallelism_threads=2; experimental.disable_thread_spinning=True"
    )


def test_the_sessions_get_the_pools() -> None:
    config = config_of(Request("W1", "const", "x", inter_op=1, intra_op=2, no_spinning=True))
    assert (config.inter_op_parallelism_threads, config.intra_op_parallelism_threads) == (1, 2)
    assert config.experimental.disable_thread_spinning
