"""`staging-tf1 train`: it learns, it reports what it did, and it answers every mistake with one line."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from forked import ForkServer
from load import slowdown
from processes import RunPython

from staging_tf1.cli.main import main
from staging_tf1.cli.train import WORKFLOWS, train
from staging_tf1.data import load_images

DIGITS = load_images()


def _complaint(capsys: pytest.CaptureFixture[str]) -> str:
    """Return the only line on stderr; stdout must be empty."""
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1, err
    assert "Traceback" not in err
    return err.rstrip("\n")


# Training and its output.


@pytest.fixture(scope="module")
def readme_command(run_python: RunPython) -> tuple[subprocess.CompletedProcess[str], float]:
    """The command of the readme, and its seconds, in a new terminal: without what conftest.py sets for TensorFlow."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("TF_CPP_MIN_LOG_LEVEL", "CUDA_VISIBLE_DEVICES", "STAGING_TF1_LOG_LEVEL"):
            patch.delenv(name, raising=False)
        start = time.monotonic()
        done = run_python("-m", "staging_tf1", "train")
        return done, time.monotonic() - start


def test_the_command_of_the_readme_learns_the_digits_in_less_than_30_seconds(
    readme_command: tuple[subprocess.CompletedProcess[str], float],
) -> None:
    done, took = readme_command
    assert took < 30 * slowdown()
    assert done.returncode == 0, done.stderr
    accuracy = re.search(r"^test accuracy (\d\.\d+) \((\d+) of 355\)$", done.stdout, re.MULTILINE)
    assert accuracy is not None
    assert float(accuracy[1]) >= 0.93
    assert float(accuracy[1]) == round(int(accuracy[2]) / 355, 3)


def test_the_command_prints_its_bar_its_report_and_nothing_else(
    readme_command: tuple[subprocess.CompletedProcess[str], float],
) -> None:
    done, _ = readme_command
    # In its first run, TensorFlow 2.18 logs this whatever the level is.
    told = re.sub(
        r"(WARNING: All log messages before .*\n)?I0000 .*MLIR V1 optimization pass is not.*\n", "", done.stderr
    )
    # Each state of the progress bar; the pipe's text has no carriage returns.
    assert re.fullmatch(r"(\n?staged: +\d+%\|[^|\n]*\|[^|\n]*)+\n", told), done.stderr
    waits = r"steps waited [\d.]+ s for input, feed threads [\d.]+ s for room; occupancy [\d.]+ of 2; .*"
    assert re.fullmatch(
        rf"staged: 1380 batches, 2.8 MiB; {waits}\n"
        r"trained on 43,260 examples in [\d.]+ s\n"
        r"test accuracy 0\.\d+ \(\d+ of 355\)\n",
        done.stdout,
    ), done.stdout


@pytest.mark.parametrize("workflow", WORKFLOWS)
def test_each_workflow_learns_reports_and_fills_its_logdir(
    workflow: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logdir = tmp_path / "new" / "logs"
    assert main(["train", "--workflow", workflow, "--epochs", "10", "--logdir", str(logdir)]) == 0
    out, err = capsys.readouterr()
    pipeline, speed, accuracy = out.splitlines()
    # One pipeline: what it delivered, how long the steps waited for it, and how full it was.
    assert re.match(rf"{workflow}: \d+ batches, .*waited \d+\.\d+ s for input.*occupancy \d+\.\d of \d+", pipeline)
    assert re.fullmatch(r"trained on 14,420 examples in \d+\.\d s", speed)
    share = re.fullmatch(r"test accuracy (\d\.\d{3}) \(\d+ of 355\)", accuracy)
    assert share is not None
    assert float(share[1]) >= 0.93
    # The complete progress bar.
    assert re.search(rf"{workflow}: 100%.*examples/s, loss=\d\.\d{{4}}\]", err)
    # In a file the bar is written every few seconds, not ten times a second.
    assert err.count("%|") <= 3 + int(float(speed.partition(" in ")[2].split()[0]))
    batches = int(pipeline.removeprefix(f"{workflow}: ").split()[0].replace(",", ""))
    assert int(tf.train.load_variable(str(logdir), "global_step")) == batches
    tags = {
        value.tag
        for path in logdir.glob("events.out.tfevents.*")
        for event in tf.train.summary_iterator(str(path))
        for value in event.summary.value
    }
    assert "loss" in tags


@pytest.mark.parametrize("workflow", WORKFLOWS)
def test_each_run_gives_the_same_losses(workflow: str) -> None:
    first, second = (train(DIGITS, workflow, batch_size=128, epochs=1).losses for _ in range(2))
    assert first == second


# With 479 all batches are full, so their shape is known. With 5000 there is one batch, which the warm-up puts.
@pytest.mark.slow_cases("classic-(100|479)|staged-5000")
@pytest.mark.parametrize("batch_size", [100, 479, 5000])
@pytest.mark.parametrize("workflow", WORKFLOWS)
def test_every_image_is_trained_on_once_an_epoch(workflow: str, batch_size: int) -> None:
    epochs, counts = (2 if batch_size == 100 else 1), []
    result = train(DIGITS, workflow, batch_size, epochs, on_step=lambda count, loss: counts.append(count))
    assert result.examples == sum(counts) == len(DIGITS.x_train) * epochs
    assert len(counts) == len(result.losses) == sum(each.batches for each in result.pipelines)
    assert max(counts) <= batch_size
    assert result.tested == len(DIGITS.x_test)


def test_a_file_in_mnists_layout_with_larger_images(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mnist.npz"
    block = np.ones((3, 3))  # 8x8 pixels from 0 to 16 become 24x24 from 0 to 240
    arrays = {f"x_{part}": np.kron(getattr(DIGITS, f"x_{part}"), block) * 15 for part in ("train", "test")}
    np.savez(path, y_train=DIGITS.y_train, y_test=DIGITS.y_test.astype(np.int64), **arrays)
    assert main(["train", "--data", str(path), "--epochs", "10", "--batch-size", "50"]) == 0
    accuracy = re.search(r"test accuracy (\d\.\d+)", capsys.readouterr().out)
    assert accuracy is not None
    assert float(accuracy[1]) >= 0.93


def test_ctrl_c_ends_it_with_one_line(fork_server: ForkServer) -> None:
    with fork_server.start("-m", "staging_tf1", "train", "--epochs", 1000000, stdout=subprocess.DEVNULL) as child:
        assert child.stderr is not None
        try:
            said = ""
            while "loss=" not in said:  # it trains
                said += child.stderr.read(1)
            child.send_signal(signal.SIGINT)
            said += child.stderr.read()
            assert child.wait(timeout=200) == 130
        finally:
            child.kill()
    assert said.endswith("staging-tf1 train: interrupted\n")
    assert "Traceback" not in said


# Mistakes.


def test_a_bad_data_file_gets_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "images.npz"
    assert main(["train", "--data", str(path)]) == 1
    assert _complaint(capsys) == f"staging-tf1 train: data file {str(path)!r}: no such file."


def test_a_logdir_that_is_a_file_gets_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "logs"
    path.write_text("")
    assert main(["train", "--logdir", str(path)]) == 1
    wanted = f"staging-tf1 train: --logdir {str(path)!r} cannot be created: File exists. Choose another folder."
    assert _complaint(capsys) == wanted


def test_a_logdir_whose_checkpoints_cannot_be_found_gets_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run[1]"
    assert main(["train", "--logdir", str(folder)]) == 1
    _, err = capsys.readouterr()
    said = f"staging-tf1 train: --logdir '{folder}': checkpoint '{folder}/model.ckpt' cannot be restored: "
    assert err.splitlines()[-1].startswith(said)
    assert "Traceback" not in err


def test_a_logdir_with_another_model_gets_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with tf.Graph().as_default(), tf.Session() as sess:
        tf.get_variable("hidden/weights", [3, 4])
        sess.run(tf.global_variables_initializer())
        tf.train.Saver().save(sess, str(tmp_path / "model.ckpt"), global_step=1)
    assert main(["train", "--logdir", str(tmp_path)]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[-1] == (
        f"staging-tf1 train: --logdir {str(tmp_path)!r}: checkpoint '{tmp_path}/model.ckpt-1' does not fit this graph: "
        "variable 'hidden/weights' is [3, 4] in the checkpoint, [64, 128] in the graph. Set checkpoint_dir to an empty "
        "folder or one with checkpoints of this program, or build the graph as it was when the checkpoint was saved."
    )
    assert "Traceback" not in err


def test_a_logdir_of_a_run_on_other_data_gets_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    fewer, logdir = tmp_path / "fewer.npz", f"file://{tmp_path}/logs"
    np.savez(fewer, **{name: getattr(DIGITS, name)[:100] for name in ("x_train", "y_train", "x_test", "y_test")})
    flags = ["train", "--batch-size", "50", "--epochs", "1", "--logdir", logdir]
    assert main([*flags, "--data", str(fewer)]) == 0
    assert sorted(os.listdir()) == ["fewer.npz", "logs"], "TensorFlow makes the folder of a path with a scheme"
    capsys.readouterr()
    assert main(flags) == 1
    _, err = capsys.readouterr()
    assert err.splitlines()[-1] == (
        f"staging-tf1 train: --logdir {logdir!r} holds a run on other batches. 'staged': the checkpoint holds "
        f"position 2 in another order of batches: num_records was 100, is {len(DIGITS.x_train)}. The saved position "
        f"cannot be mapped to the new order. Use the --data and --batch-size of that run, or another folder."
    )
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("{", "TF_CONFIG is not valid JSON"),
        (
            '{"cluster": {"worker": ["h:1"], "ps": ["h:2"]}, "task": {"type": "worker", "index": 0}}',
            "TF_CONFIG describes a cluster, but each task would train a model of its own. Unset TF_CONFIG; "
            "examples/cluster.py trains one model on a cluster.",
        ),
    ],
)
def test_a_cluster_gets_one_line(
    config: str, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TF_CONFIG", config)
    assert main(["train"]) == 1
    assert _complaint(capsys).startswith(f"staging-tf1 train: {message}")
