"""The terminal is quiet: the commands print what is theirs, errors come through, and our calls earn no advice."""

from __future__ import annotations

import gc
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from forked import ForkServer
from processes import RunPython

from staging_tf1.quiet import importing, without_noise

# A new terminal: what conftest.py sets for TensorFlow is not set there.
_UNSET = ("TF_CPP_MIN_LOG_LEVEL", "CUDA_VISIBLE_DEVICES", "STAGING_TF1_LOG_LEVEL")


@pytest.fixture(autouse=True)
def _new_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in _UNSET:
        monkeypatch.delenv(name, raising=False)


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
    "2026-11-23 00:09:01.251806: F tensorflow/core/framework/tensor.cc:844] Check failed: dtype() == expected\n",
    "F0000 00:00:1795392706.599470    9578 tensor.cc:844] Check failed: 1 == 2\n",
    "*** Check failure stack trace: ***\n    @     0x7f2b8c1d2a4c  abort\n",
    "Fatal Python error: Aborted\n\nThread 0x00007f (most recent call first):\n",
    "Traceback (most recent call last):\n  File \"x.py\", line 1, in <module>\nKeyError: 'I0000'\n",
    "I wrote this: 2026-11-22 I think.\n",
    "WARNING: mine\nWARNING:tensorflow:mine, too\n",
    "To enable the following: nothing\n",
    "no end of line",
    "\x1b[31mred\x1b[0m \xe9\n",
    "",
]


@pytest.mark.parametrize("noise", ["", *_NOISE])
def test_noise_is_left_out_and_all_else_is_kept(noise: str) -> None:
    for kept in _KEPT:
        before = kept if kept.endswith("\n") else ""
        assert without_noise(f"{before}{noise}{kept}".encode()) == f"{before}{kept}".encode()


@pytest.mark.parametrize("noise", [line for line in _NOISE if "] " in line])
def test_noise_behind_a_progress_bar_is_left_out(noise: str) -> None:
    assert (
        without_noise(f"staged: 0%| | 0/9 [00:00<?]{noise}\rstaged: 1%".encode())
        == b"staged: 0%| | 0/9 [00:00<?]\rstaged: 1%"
    )


# What ends the import. No TensorFlow here: the filter cannot tell.

_PROLOGUE = """
import os, subprocess, sys
from staging_tf1.quiet import importing
noise = b"I0000 00:00:1795391621.979824   20808 port.cc:153] noise\\n"
"""
_ENDS = {
    "exit": ("sys.exit('why')", 1, r"before\nI0000.*noise\nlast wordswhy\n"),
    "exception": ("raise KeyError('why')", 1, r"before\nI0000.*noise\nlast wordsTraceback (.*\n)+KeyError: 'why'\n"),
    "interrupt": (
        "raise KeyboardInterrupt",
        -signal.SIGINT,
        r"before\nI0000.*noise\nlast wordsTraceback(.*\n)+KeyboardInterrupt\n",
    ),
}


@pytest.mark.parametrize("end", _ENDS)
def test_an_import_that_fails_shows_everything(run_python: RunPython, end: str) -> None:
    code, expected, words = _ENDS[end]
    body = f"""
with importing():
    sys.stderr.write("before\\n")
    os.write(2, noise + b"last words")
    {code}
"""
    done = run_python("-c", _PROLOGUE + body)
    assert done.returncode == expected
    assert re.fullmatch(words, done.stderr), done.stderr


def test_the_order_of_inside_and_outside_is_kept(run_python: RunPython) -> None:
    body = """
print("1", file=sys.stderr)
with importing():
    print("2", file=sys.stderr)
    subprocess.run([sys.executable, "-c", "import os; os.write(2, b'3\\\\n')"])
    os.write(2, noise)
    with importing():
        print("4", end="", file=sys.stderr)
print("5", file=sys.stderr)
with importing():
    os.write(2, noise + b"6\\n" + noise)
os.write(2, b"7 " + noise)
"""
    done = run_python("-c", _PROLOGUE + body)
    assert done.stderr == "1\n2\n3\n45\n6\n7 I0000 00:00:1795391621.979824   20808 port.cc:153] noise\n"


_IMPORT = """
with importing():
    os.write(2, noise)
print(os.environ["TF_CPP_MIN_LOG_LEVEL"])
"""


@pytest.mark.parametrize("level", ["0", "1", "2", "3", ""])
def test_a_level_that_the_user_has_chosen_holds(run_python: RunPython, level: str) -> None:
    done = run_python("-c", _PROLOGUE + _IMPORT, env={"TF_CPP_MIN_LOG_LEVEL": level})
    assert done.stdout == f"{level}\n" and "noise" in done.stderr


def test_a_child_process_is_quiet_as_its_parent(run_python: RunPython) -> None:
    child = f"subprocess.run([sys.executable, '-c', {_PROLOGUE + _IMPORT!r}])"
    done = run_python("-c", f"{_PROLOGUE}{_IMPORT}\n{child}")
    assert done.stdout.split() == ["2", "2"] and done.stderr == ""


def test_without_stderr_nothing_is_filtered(run_python: RunPython) -> None:
    code = f"import os; os.close(2)\n{_PROLOGUE}\nwith importing(): pass\nprint('done')"
    assert run_python("-c", code).stdout == "done\n"


@pytest.mark.parametrize("enabled", [True, False])
def test_nobody_searches_for_garbage_during_the_import(monkeypatch: pytest.MonkeyPatch, enabled: bool) -> None:
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")  # filters nothing
    try:
        (gc.enable if enabled else gc.disable)()
        with pytest.raises(ImportError), importing():
            assert not gc.isenabled()
            raise ImportError
        assert gc.isenabled() == enabled
    finally:
        gc.enable()


# The real commands, both streams complete. `train` is in test_cli_train.py.

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
_END_OF_STEPS = "INFO:tensorflow:done\n"


@pytest.fixture(scope="module")
def tf1_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tf1") / "program.py"
    path.write_text(_TF1_PROGRAM)
    return path


@pytest.fixture(scope="module")
def tf1_output(run_python: RunPython, tf1_program: Path) -> subprocess.CompletedProcess[str]:
    """What `run` gives of the program, in one process because TensorFlow takes seconds to load."""
    with pytest.MonkeyPatch.context() as patch:
        for name in _UNSET:
            patch.delenv(name, raising=False)
        return run_python("-m", "staging_tf1", "run", tf1_program)


def test_run_leaves_the_output_of_a_program_as_tf1_had_it(
    tf1_output: subprocess.CompletedProcess[str], tf1_program: Path
) -> None:
    done = tf1_output
    assert done.stdout == "begun\n[1.0]\n" or done.stdout == "begun\n1.0\n"
    # The program's own calls, which TensorFlow 1.15 warned of, too.
    advice = "".join(
        f"WARNING:tensorflow:From {tf1_program}:{line}: {name} (from tensorflow.python.training.queue_runner_impl) is "
        f"deprecated and will be removed in a future version.\nInstructions for updating:\nTo construct input "
        f"pipelines, use the `tf.data` module.\n"
        for line, name in ((11, "QueueRunner.__init__"), (11, "add_queue_runner"), (14, "start_queue_runners"))
    )
    # TensorFlow 2.18 ignores the level in one line, which it logs at the first run.
    said = without_noise(done.stderr.encode()).decode()
    assert said.startswith(f"mine\n{advice}{_END_OF_STEPS}")
    assert done.stderr.count("mlir_graph_optimization_pass.cc") <= 1


def test_an_error_of_tensorflows_cpp_log_comes_through(tf1_output: subprocess.CompletedProcess[str]) -> None:
    assert tf1_output.returncode == 1
    said = tf1_output.stderr.split(_END_OF_STEPS)[1]
    assert re.search(r"^\S*E\S* .*grpc_server_lib.cc:\d+\] UNKNOWN: Could not start gRPC server$", said, re.M) or (
        ": E tensorflow/core/distributed_runtime/rpc/grpc_server_lib.cc" in said
    )
    # Errors of the log, the traceback, and nothing else.
    assert re.fullmatch(r"((\S+ \S+: )?E.*\n)+Traceback \(most recent call last\):\n(.*\n)+", said), said
    assert said.endswith("UnknownError: Could not start gRPC server\n")


@pytest.mark.parametrize(
    ("words", "out"),
    [
        (
            ["index", "--write", "d.tfrecord", "--from", "d.npz"],
            r"wrote 4 records to d\.tfrecord\nto read them: (.*\n)+",
        ),
        (["index", "--check", "d.tfrecord"], r"d\.tfrecord: 4 records, 0 corrupt, index .*\n"),
        (["check", "p.py"], ""),
        (["migrate", "p.py"], r"1 file read, 0 would be changed, 0 changes, 0 things left to do by hand\n"),
        (
            ["launch", "--workers", "1", "--", "p.py"],
            r"\[chief 0\] hi\n\[ps 0\]    hi\n|\[ps 0\]    hi\n\[chief 0\] hi\n",
        ),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_the_other_commands_print_what_is_theirs(
    run_python: RunPython, commands_folder: Path, words: list[str], out: str
) -> None:
    done = run_python("-m", "staging_tf1", *words, cwd=commands_folder)
    assert done.stderr == ""
    assert re.fullmatch(out, done.stdout), done.stdout


@pytest.fixture(scope="module")
def commands_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import numpy as np

    folder = tmp_path_factory.mktemp("commands")
    np.savez(folder / "d.npz", x=np.arange(4))
    (folder / "p.py").write_text("print('hi')\n")
    return folder


# Programs of users.

_OWN_PROGRAM = """
import sys
import numpy as np
import tensorflow.compat.v1 as tf
import staging_tf1 as staging
tf.disable_eager_execution()
x = staging.staged(staging.sources.ArraySource(np.arange(8), batch_size=2, epochs=1))
y = staging.CustomRunner(staging.sources.ArraySource(np.arange(8), batch_size=2, epochs=1)).get_inputs()
class Hook(tf.train.SessionRunHook):
    def begin(self):
        tf.train.limit_epochs(tf.constant(1), 1)
        print("end of the hook", file=sys.stderr, flush=True)
with tf.Graph().as_default(), staging.StagingSession(hooks=[Hook()]) as sess:
    pass
with staging.StagingSession() as sess:
    sess.run([x, y])
with tf.train.MonitoredTrainingSession(hooks=[staging.StagingHook()]) as sess:
    sess.run([x, y])
with tf.Graph().as_default(), tf.Session() as sess:
    staging.start(sess)
with tf.Session() as sess:
    coord = tf.train.Coordinator()
    threads = staging.start(sess, coord)
    sess.run([x, y])
    coord.request_stop()
    coord.join(threads)
print("own calls", file=sys.stderr, flush=True)
with tf.Session() as sess:
    coord = tf.train.Coordinator()
    threads = tf.train.start_queue_runners(sess, coord)
    coord.request_stop()
    coord.join(threads)
tf.train.add_queue_runner(tf.train.QueueRunner(tf.FIFOQueue(1, [tf.float32]), [tf.no_op()]))
"""


def test_our_calls_earn_no_advice_and_a_programs_own_calls_keep_theirs(fork_server: ForkServer, tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(_OWN_PROGRAM)
    done = fork_server.run(path)
    assert done.returncode == 0, done.stderr
    hook, rest = done.stderr.split("end of the hook\n")
    assert f"From {path}:11: limit_epochs" in hook
    ours, theirs = rest.split("own calls\n")
    assert "deprecated" not in ours and "tf.data" not in ours and str(path) not in ours
    assert re.findall(rf"From {path}:\d+: (\S+) \(from", theirs) == [
        "start_queue_runners",
        "QueueRunner.__init__",
        "add_queue_runner",
    ]


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


_SEVERAL_PIPELINES = """
import sys
import numpy as np
import tensorflow.compat.v1 as tf
import staging_tf1 as staging

tf.disable_v2_behavior()


def source():
    return staging.sources.ArraySource(np.arange(20), batch_size=2, epochs=1)


# As the cells of a notebook: each adds to the default graph.
first = staging.staged(source())
with staging.StagingSession() as sess:
    sess.run(first)
second = staging.staged(source())
with staging.StagingSession() as sess:
    sess.run([first, second])
third = staging.staged(source(), lockstep=True)
with staging.StagingSession() as sess:
    sess.run([first, second, third])
with tf.Graph().as_default():
    taken = [staging.staged(source()), staging.CustomRunner(source(), queue="fifo").get_inputs()]
    taken.append(staging.staged(source(), lockstep=True))
    tf.train.get_or_create_global_step()
    with tf.train.MonitoredTrainingSession(hooks=[staging.StagingHook()]) as sess:
        sess.run(taken)
with tf.Graph().as_default(), tf.Session() as sess:
    taken = [staging.staged(source(), name="one")]
    taken.append(staging.staged(source(), name="two"))
    coord = tf.train.Coordinator()
    threads = staging.start(sess, coord)
    sess.run(taken)
    coord.request_stop()
    coord.join(threads)
"""


def test_a_start_asks_for_no_variable_that_is_not_there(run_python: RunPython, tmp_path: Path) -> None:
    done = run_python(
        "-c", _SEVERAL_PIPELINES, tmp_path, env={"CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "0"}
    )
    assert done.returncode == 0, done.stderr
    # The lines of the end, when puts that wait are cancelled, are TensorFlow's.
    assert "Could not find variable" not in done.stderr and "FAILED_PRECONDITION" not in done.stderr
