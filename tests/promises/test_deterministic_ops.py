"""Under `enable_op_determinism()` every workflow delivers the same batches, and the waiting time is unknown."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from deterministic_child import WORKFLOWS
from forked import ForkServer
from processes import RunPython
from slow import with_slow

CHILD = Path(__file__).parents[1] / "support" / "deterministic_child.py"
NAMES = list(WORKFLOWS)
# Each store of the batches, and each way to step.
USUAL = ("staged", "lockstep", "towers", "of_dataset", "queue", "classic", "chained", "monitored")
UNUSUAL = rf"(?!({'|'.join(USUAL)})$).*"
UNKNOWN = "TensorFlow does not measure how long steps wait for input while deterministic ops are enabled"
pytestmark = pytest.mark.timeout(1200)


def last_json(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def figures(fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    """What each workflow prints, without and with deterministic ops."""
    folders = [tmp_path_factory.mktemp(mode) for mode in ("ordinary", "deterministic")]
    words = [[CHILD, folder.name.rstrip("0"), folder, *(() if with_slow() else USUAL)] for folder in folders]
    ordinary, deterministic = (last_json(fork_server.run(*each)) for each in words)
    return ordinary, deterministic


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.slow_cases(UNUSUAL)
def test_batches_and_positions_are_those_without_deterministic_ops(figures: tuple[Any, Any], name: str) -> None:
    ordinary, deterministic = (each[name] for each in figures)
    assert ordinary["batches"]
    for key in ("batches", "positions", "counts", "all"):
        assert deterministic.get(key) == ordinary.get(key), key


@pytest.mark.slow_cases(UNUSUAL)
@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("classic", "plain", "monitored", "repair")])
def test_the_waiting_time_is_absent(figures: tuple[Any, Any], name: str) -> None:
    ordinary, deterministic = (each[name] for each in figures)
    for key in ("wait_secs", "waited_share"):
        assert all(each is not None and each >= 0 for each in ordinary[key])
        assert deterministic[key] == [None] * len(ordinary[key])


@pytest.mark.slow_cases(UNUSUAL)
@pytest.mark.parametrize("name", ["staged", "lockstep", "towers", "processes", "queue", "chained", "cluster_of_one"])
def test_no_text_draws_a_conclusion(figures: tuple[Any, Any], name: str) -> None:
    deterministic = figures[1][name]
    for verdict, text in zip(deterministic["verdicts"], deterministic["texts"], strict=True):
        assert verdict == f"bottleneck unknown: {UNKNOWN}"
        assert "steps waited" not in text and "nan" not in text and "; feed threads waited " in text


def test_the_scalars_have_no_waited_share(figures: tuple[Any, Any]) -> None:
    ordinary, deterministic = (set(each["monitored"]["tags"]) for each in figures)
    assert ordinary - deterministic == {"staging/train/waited_share"}


def test_enabled_after_the_graph_was_built(fork_server: ForkServer, tmp_path: Path) -> None:
    done = fork_server.run(CHILD, "late", tmp_path)
    errors = last_json(done)
    assert len(errors) == 4
    for error in errors:
        assert error.startswith("BuildError: 'train' (made at deterministic_child.py:")
        assert "was built before deterministic ops were enabled: its steps read the clock" in error
        assert "Call tf.config.experimental.enable_op_determinism() before you build the graph" in error


def test_a_shuffle_queue_needs_a_seed(fork_server: ForkServer, tmp_path: Path) -> None:
    unseeded, ops, seeded = last_json(fork_server.run(CHILD, "unseeded", tmp_path))
    assert unseeded == (
        "ValueError: CustomRunner 'train' got queue='shuffle' without a seed, but deterministic ops are enabled. Pass "
        "seed=0, or call tf.set_random_seed(0) first."
    )
    assert ops == 0
    assert seeded == "none"


@pytest.mark.slow  # the tests above enable them by a call
def test_the_environment_enables_them(run_python: RunPython, tmp_path: Path) -> None:
    done = run_python(CHILD, "ordinary", tmp_path, "staged", env={"TF_DETERMINISTIC_OPS": "1"})
    assert last_json(done)["staged"]["wait_secs"] == [None]
