"""The examples do what they say: each at a small size, and all as they are in one child process."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest
from clusters import TestCluster
from forked import ForkServer
from slow import with_slow

from staging_tf1.data import load_images

EXAMPLES = Path(__file__).parents[2] / "examples"

PAGE = EXAMPLES / "README.md"

# In one process, because TensorFlow takes seconds to load. Each word is a path, and perhaps the steps that it runs.
_RUN_ALL = """
import runpy, sys
for word in sys.argv[1:]:
    print("#", word, flush=True)
    path, _, steps = word.partition(" ")
    if steps:
        runpy.run_path(path)["main"](steps=int(steps))
    else:
        runpy.run_path(path, run_name="__main__")
"""
# Steps of an example whose output does not depend on them. Only runs with the slow tests take them all.
_FEW_STEPS = {"stage_jpeg": " 2"}


def example(name: str) -> Any:
    """The module examples/`name`.py."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def sections() -> dict[str, str]:
    """The section of examples/README.md about each example, by the name of the example."""
    parts = PAGE.read_text(encoding="utf-8").split("\n## ")[1:]
    return {re.findall(r"\((\w+)\.py\)", part)[0]: part for part in parts}


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def test_each_prints_what_the_page_says(fork_server: ForkServer) -> None:
    promised = {name: blocks(section, "text")[0] for name, section in sections().items()}
    steps = {} if with_slow() else _FEW_STEPS
    words = [f"{EXAMPLES / name}.py{steps.get(name, '')}" for name in promised]
    done = fork_server.run("-W", "error::UserWarning", "-c", _RUN_ALL, *words)
    assert done.returncode == 0, done.stderr
    printed = dict(zip(promised, re.split(r"^# .*\n", done.stdout, flags=re.MULTILINE)[1:], strict=True))
    measured = r"\d+\.\d+|(compute|input)-bound: .*"  # losses, times, and the verdict on them
    assert {name: re.sub(measured, "#.#", text) for name, text in printed.items()} == {
        name: re.sub(measured, "#.#", text) for name, text in promised.items()
    }
    assert float(printed["classic_runner"].split("other digits: ")[1]) >= 0.9
    assert "y = 3.00 x + 1.00" in printed["plain_session"]


def test_the_page_quotes_the_examples() -> None:
    for name, section in sections().items():
        lines = [line.strip() for line in (EXAMPLES / f"{name}.py").read_text(encoding="utf-8").splitlines()]
        for block in blocks(section, "py"):
            quoted = [line.strip() for line in block.splitlines()]
            starts = range(len(lines) - len(quoted) + 1)
            assert any(lines[i : i + len(quoted)] == quoted for i in starts), f"not in {name}.py:\n{block}"


def test_the_list_of_examples_leads_to_each() -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", (EXAMPLES / "README.md").read_text(encoding="utf-8"))
    assert [link for link in links if not (EXAMPLES / link).exists()] == []
    assert {f"{name}.py" for name in sections()} <= set(links)


# The default run has records that are left.
@pytest.mark.slow_cases("100-.*|3-.*")
@pytest.mark.parametrize(
    ("records", "batch_size", "rounds", "left"),
    [(101, 10, 5, ["[1]", "[]"]), (100, 10, 5, ["[]", "[]"]), (3, 1, 1, ["[1]", "[]"])],
)
def test_the_towers_divide_the_records(
    capsys: pytest.CaptureFixture[str], records: int, batch_size: int, rounds: int, left: list[str]
) -> None:
    first, second = example("two_towers").main(records=records, batch_size=batch_size)
    assert set(first).isdisjoint(second)
    assert sorted(first + second) == list(range(records))
    out = capsys.readouterr().out
    assert f"{rounds} rounds with a batch for every tower" in out
    assert re.findall(r"alone: batches of (.*) records", out) == left
    assert f"together: {records} of {records}" in out


def test_gradients_are_averaged() -> None:
    assert example("two_towers").average([[(1.0, "v"), (10.0, "w")], [(3.0, "v"), (20.0, "w")]]) == [
        (2.0, "v"),
        (15.0, "w"),
    ]


def test_jpegs_are_decoded_and_cropped_at_random(graph: Any) -> None:
    import tensorflow.compat.v1 as tf

    module = example("stage_jpeg")
    jpegs = module.make_jpegs(2)
    crop = module.decode_and_crop(jpegs[1])
    with tf.Session() as sess:
        decoded = sess.run(tf.io.decode_jpeg(jpegs[1]))
        crops = [sess.run(crop) for _ in range(3)]
    assert decoded.shape == (module.SIZE, module.SIZE, 3)
    # The file shows the digit: the same pixels are bright.
    small = decoded.reshape(8, 32, 8, 32, 3).mean(axis=(1, 3, 4)).ravel()
    digits = load_images().x_train[:3].reshape(3, -1).astype(float)
    likeness = [abs(float(((small - small.mean()) * (each - each.mean())).sum())) for each in digits]
    assert likeness[1] == max(likeness)
    assert crops[0].shape == (module.CROP, module.CROP, 3)
    assert crops[0].min() >= 0 and crops[0].max() <= 1
    assert any((crops[0] != other).any() for other in crops[1:])


# Two numbers of batches are enough.
@pytest.mark.slow_cases("2")
@pytest.mark.parametrize("batches", [1, 2, 7])
def test_lockstep_by_hand_and_staged_take_the_same(capsys: pytest.CaptureFixture[str], batches: int) -> None:
    module = example("lockstep_by_hand")
    every = [[2 * i, 2 * i + 1] for i in range(batches)]
    assert module.by_hand(batches) == (every, [1] * (batches - 1))
    assert module.in_lockstep(batches) == every
    module.main(batches)
    assert capsys.readouterr().out.count(str(every)) == 2


def test_the_cluster_program_runs_on_a_cluster(fork_server: ForkServer, tmp_path: Path) -> None:
    cluster = TestCluster(fork_server, tmp_path, workers=2)
    try:
        for task in ("ps0", "worker0", "worker1"):
            cluster.start_program(task, [str(EXAMPLES / "cluster.py")])
        cluster.join()
    finally:
        cluster.close()
    promised = blocks(sections()["cluster"], "text")[1]
    for tag, task in {"chief 0": "worker0", "worker 0": "worker1"}.items():
        lines = [re.sub(r"\d+\.\d+", "#.#", line) for line in re.findall(rf"^\[{tag}\] +(.*)$", promised, re.MULTILINE)]
        printed = [re.sub(r"\d+\.\d+", "#.#", line) for line in cluster.log(task).splitlines()]
        assert [line for line in printed if line in lines] == lines != [], cluster.log(task)
