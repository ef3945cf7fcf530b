"""The terminal is quiet: the commands print what is theirs, errors come through, and our calls earn no advice."""

from __future__ import annotations

import gc
import os
import re
import signal
import subprocess
import sys
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import pytest
from processes import RunPython

from staging_tf1.quiet import importing, without_noise

# A new terminal: what conftest.py sets for TensorFlow is not set there.
_UNSET = ("TF_CPP_MIN_LOG_LEVEL", "CUDA_VISIBLE_DEVICES", "STAGING_TF1_LOG_LEVEL")


@pytest.fixture(autouse=True)
def _new_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in _UNSET:
        monkeypatch.setenv(name, "")  # to be restored even if it is not set now
        monkeypatch.delenv(name)


# What is noise.

_NOISE = [
    "2026-11-22 23:53:28.957939: I tensorflow/core/platform/cpu_feature_guard.cc:182] This binary is fast.\n",
    "To enable the following instructions: AVX2 FMA, in other operations, rebuild TensorFlow with the appropriate "
    "compiler flags.\n",
    "2026-11-22 23:53:28.957939: E external/local_xla/xla/stream_executor/cuda/cuda_dnn.cc:9261] Unable to register "
    "cuDNN factory: Attempting to register factory for plugin cuDNN when one has already been registered\n",
    "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR\n",
    "I0000 00:00:1795391621.979824   20808 port.cc:153] oneDNN custom operations are on. You may see slightly.\n",
    "W0000 00:00:1795391621.979824   20808 computation_placer.cc:177] computation placer already registered.\n",
    "E0000 00:00:1795391626.508585   20808 cuda_platform.cc:52] failed call to cuInit: INTERNAL: CUDA error (303)\n",
    "I0000 00:00:1795391618.801304   20676 mlir_graph_optimization_pass.cc:401] MLIR V1 optimization pass is not on\n",
]
_KEPT = [
    "E0000 00:00:1795392706.599470    9578 grpc_server_lib.cc:615] UNKNOWN: Could not start gRPC server\n",
    "2026-11-23 00:09:01.251762: E tensorflow/c/logging.cc:40] an error of 7\n",
    "F0000 00:00:1795392706.599470    9578 tensor.cc:844] Check failed: 1 == 2\n",
    "*** Check failure stack trace: ***\n    @     0x7f2b8c1d2a4c  abort\n",
    "I wrote this: 2026-11-22 I think.\n",
    "WARNING: mine\nWARNING:tensorflow:mine, too\n",
    "To enable the following: nothing\n",
    "no end of line",
    "\x1b[31mred\x1b[0m \xe9\n",
    "",
]


@pytest.mark.parametrize("noise", _NOISE)
def test_noise_is_left_out_and_all_else_is_kept(noise: str) -> None:
    for kept in _KEPT:
        before = kept if kept.endswith("\n") else ""
        assert without_noise(f"{before}{kept}".encode()) == f"{before}{kept}".encode()
        assert without_noise(f"{before}{noise}{kept}".encode()) == f"{before}{kept}".encode()
    if "] " in noise:  # behind a progress bar
        assert without_noise(f"a: 0%| | 0/9 [00:00<?]{noise}\ra: 1%".encode()) == b"a: 0%| | 0/9 [00:00<?]\ra: 1%"


# What is written during the import. No TensorFlow here: the filter cannot tell.

_LINE = _NOISE[5].encode()


def own_stderr() -> Any:
    """Use a `sys.stderr` that writes to the descriptor, as pytest's does not."""
    return redirect_stderr(open(2, "w", buffering=1, closefd=False))


def test_an_import_that_fails_shows_everything(capfd: pytest.CaptureFixture[str]) -> None:
    with own_stderr(), pytest.raises(KeyboardInterrupt), importing():
        sys.stderr.write("before\n")
        os.write(2, _LINE + b"last words")
        raise KeyboardInterrupt
    assert capfd.readouterr().err == f"before\n{_NOISE[5]}last words"


def test_the_order_of_inside_and_outside_is_kept(capfd: pytest.CaptureFixture[str]) -> None:
    with own_stderr():
        print("1", file=sys.stderr)
        with importing():
            print("2", file=sys.stderr)
            subprocess.run(["sh", "-c", "echo 3 >&2"], check=True)
            os.write(2, _LINE)
            with importing():
                print("4", end="", file=sys.stderr)
            os.write(2, b".")
        print("5", file=sys.stderr)
        # A child process inherits the level, and knows that it is no choice of the user's.
        assert os.environ["TF_CPP_MIN_LOG_LEVEL"] == "2"
        with importing():
            os.write(2, _LINE + b"6\n" + _LINE)
        os.write(2, b"7 " + _LINE)
    assert capfd.readouterr().err == f"1\n2\n3\n4.5\n6\n7 {_NOISE[5]}"


@pytest.mark.parametrize(("level", "collects"), [("0", True), ("2", True), ("", False)])
def test_a_level_that_the_user_has_chosen_holds(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, level: str, collects: bool
) -> None:
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", level)
    try:
        (gc.enable if collects else gc.disable)()
        with importing():
            os.write(2, _LINE)
            assert not gc.isenabled(), "a search for garbage would only cost time"
        assert gc.isenabled() == collects
    finally:
        gc.enable()
    assert os.environ["TF_CPP_MIN_LOG_LEVEL"] == level and capfd.readouterr().err == _NOISE[5]


def test_without_stderr_nothing_is_filtered(run_python: RunPython) -> None:
    code = "import os; os.close(2)\nfrom staging_tf1.quiet import importing\nwith importing(): pass\nprint('done')"
    assert run_python("-c", code).stdout == "done\n"


# The real commands, both streams complete. `train` is in test_cli_train.py; `check`, `migrate` and `launch` import no
# TensorFlow.

_TF1_PROGRAM = """
import socket
import sys
import tensorflow as tf
tf.logging.set_verbosity(tf.logging.INFO)
print("begun")
sys.stderr.write("mine\\n")
queue = tf.FIFOQueue(10, [tf.float32])
area = tf.contrib.staging.StagingArea([tf.float32], [[]])
put, got = area.put([queue.dequeue()]), area.get()
tf.train.add_queue_runner(tf.train.QueueRunner(queue, [queue.enqueue(1.0)]))
with tf.Session() as sess:
    coord = tf.train.Coordinator()
    threads = tf.train.start_queue_runners(sess, coord)
    sess.run(put)
    print(sess.run([got, put])[0])
    coord.request_stop()
    sess.run(queue.close(cancel_pending_enqueues=True))
    coord.join(threads)
tf.logging.info("done")

# An error, of which TensorFlow's C++ code logs the reason.
taken = socket.socket()
taken.bind(("127.0.0.1", 0))
taken.listen()
tf.train.Server({"worker": ["127.0.0.1:%d" % taken.getsockname()[1]]}, job_name="worker", task_index=0)
"""


def test_run_leaves_the_output_of_a_program_as_tf1_had_it(run_python: RunPython, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(_TF1_PROGRAM)
    done = run_python("-m", "staging_tf1", "run", program)
    assert done.stdout in ("begun\n[1.0]\n", "begun\n1.0\n")
    # The program's own calls, which TensorFlow 1.15 warned of, too.
    advice = "".join(
        f"WARNING:tensorflow:From {program}:{line}: {name} (from tensorflow.python.training.queue_runner_impl) is "
        f"deprecated and will be removed in a future version.\nInstructions for updating:\nTo construct input "
        f"pipelines, use the `tf.data` module.\n"
        for line, name in ((11, "QueueRunner.__init__"), (11, "add_queue_runner"), (14, "start_queue_runners"))
    )
    # TensorFlow 2.18 ignores the level in one line, which it logs at the first run.
    assert done.stderr.count("mlir_graph_optimization_pass.cc") <= 1
    ours, error = without_noise(done.stderr.encode()).decode().split("INFO:tensorflow:done\n")
    assert ours == f"mine\n{advice}"
    # Errors of the C++ log, the traceback, and nothing else.
    assert done.returncode == 1
    assert re.fullmatch(r"((\S+ \S+: )?E.*\n)+Traceback \(most recent call last\):\n(.*\n)+", error), error
    assert re.search(r"^\S*E\S* .*grpc_server_lib.cc:\d+\] UNKNOWN: Could not start gRPC server$", error, re.M) or (
        ": E tensorflow/core/distributed_runtime/rpc/grpc_server_lib.cc" in error
    )
    assert error.endswith("UnknownError: Could not start gRPC server\n")


# Programs of users.

_OWN_PROGRAM = """
import sys
import numpy as np
import tensorflow.compat.v1 as tf
import staging_tf1 as staging
tf.disable_v2_behavior()
source = staging.sources.ArraySource(np.arange(20), batch_size=2, epochs=1)
mark = lambda: print("--", file=sys.stderr, flush=True)
class Hook(tf.train.SessionRunHook):
    def begin(self):
        mark()
        tf.train.limit_epochs(tf.constant(1), 1)
        mark()
mark()
# As the cells of a notebook: the second adds to the default graph.
x = staging.staged(source)
with staging.StagingSession() as sess:
    sess.run(x)
y, z = staging.CustomRunner(source, queue="fifo").get_inputs(), staging.staged(source, lockstep=True)
with staging.StagingSession() as sess:
    sess.run([x, y, z])
with tf.Graph().as_default(), staging.StagingSession(hooks=[Hook()]) as sess:
    pass
with tf.train.MonitoredTrainingSession(hooks=[staging.StagingHook()]) as sess:
    sess.run([x, y, z])
with tf.Graph().as_default(), tf.Session() as sess:
    staging.start(sess)
with tf.Graph().as_default(), tf.Session() as sess:
    taken = [staging.staged(source, name="one")]
    taken.append(staging.staged(source, name="two"))
    coord = tf.train.Coordinator()
    threads = staging.start(sess, coord)
    sess.run(taken)
    coord.request_stop()
    coord.join(threads)
mark()
with tf.Session() as sess:
    coord = tf.train.Coordinator()
    threads = tf.train.start_queue_runners(sess, coord)
    coord.request_stop()
    coord.join(threads)
tf.train.add_queue_runner(tf.train.QueueRunner(tf.FIFOQueue(1, [tf.float32]), [tf.no_op()]))
"""


@pytest.mark.slow  # test_cli_train.py has the output of the command of the README
def test_our_calls_earn_no_advice_and_a_programs_own_calls_keep_theirs(run_python: RunPython, tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(_OWN_PROGRAM)
    done = run_python(path, env={"CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "0"})
    assert done.returncode == 0, done.stderr
    _, ours, hook, more, theirs = done.stderr.split("--\n")
    assert f"From {path}:12: limit_epochs" in hook
    # The lines of the end, when puts that wait are cancelled, are TensorFlow's. A start asks for no missing variable.
    for word in ("deprecated", "tf.data", str(path), "Could not find variable", "FAILED_PRECONDITION"):
        assert word not in ours + more
    # Once, although absl's warning about the second pipeline has given the root logger a handler, too.
    advised = re.findall(rf"From {path}:\d+: (\S+) \(from", theirs)
    assert advised == ["start_queue_runners", "QueueRunner.__init__", "add_queue_runner"]


def test_ctrl_c_while_tensorflow_is_imported_comes_through() -> None:
    command = [sys.executable, "-m", "staging_tf1", "train"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True) as child:
        # TensorFlow's library is mapped early in the import, which goes on for a second or more.
        maps = Path(f"/proc/{child.pid}/maps")
        while child.poll() is None and "libtensorflow_framework" not in maps.read_text():
            pass
        child.send_signal(signal.SIGINT)
        out, err = child.communicate()
    assert child.returncode in (130, -signal.SIGINT)
    assert "interrupted" in err or "KeyboardInterrupt" in err
    assert out == ""
