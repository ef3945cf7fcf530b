"""For every test: which are slow, no GPU, a quiet TensorFlow, fresh globals, a check for leftover threads."""

from __future__ import annotations

import gc
import logging
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import fork_worker
import pytest
from forked import ForkServer
from hypothesis import settings
from load import slowdown
from order import Recorder, import_own_part, long_first, workers
from processes import RunPython
from running import graphs_as_built, left_over
from slow import mark_slow, read_selection, with_all, with_slow

# This must run before TensorFlow is imported. A GPU that the environment makes visible stays visible.
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

# Until the first test begins: a fifth of the import of TensorFlow would be searches for garbage.
gc.disable()

# A shell that starts the tests in the background ignores SIGINT for them, and their children inherit that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# nohup ignores SIGHUP for its child processes and theirs. A handler does the same for this process only.
if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)


# How long an example takes says nothing on a loaded machine; every test has a time limit.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that writes `durations.json`."""
    parser.addoption("--record-durations", action="store_true", help="write how long each file of tests took")


def pytest_configure(config: pytest.Config) -> None:
    """Keep the order of `long_first`, which pytest-xdist would change, and tell the test files what is selected."""
    config.option.loadscopereorder = False
    read_selection(config)
    if config.getoption("record_durations", False) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder())


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int | None:
    """Answer `pytest -n auto`, unless the environment does."""
    return None if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ else workers()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config, specs: list[Any]) -> None:
    """Let the workers be forks of a process that has imported TensorFlow.

    Not if coverage measures them: it loses what such a fork executes.
    """
    if "COVERAGE_PROCESS_CONFIG" in os.environ:
        return
    folder: Path = config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
    worker = Path(fork_worker.__file__)
    for spec in specs:
        if spec.popen and not spec.python:
            spec.python = shlex.join([sys.executable, str(worker), str(folder / "workers")])
    # What runs programs imports TensorFlow in the meantime, on another core.
    programs = ForkServer(folder / "fork_server", folder)
    threading.Thread(target=programs.connect, daemon=True).start()
    config.add_cleanup(programs.close)


def pytest_collection(session: pytest.Session) -> None:
    """Before pytest imports the test files."""
    if hasattr(session.config, "workerinput"):  # a worker of pytest-xdist
        import_own_part(Path(__file__).parent)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests that the default run leaves out, before pytest selects by marks; see `slow.py`."""
    config.hook.pytest_deselected(items=mark_slow(items))
    if hasattr(config, "workerinput"):
        long_first(items)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    """Search for garbage from now on, but not among TensorFlow's objects, which takes half a second."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def _fresh_default_graph() -> Iterator[None]:
    """Empty the global default graph, which collects ops built outside every `tf.Graph().as_default()`."""
    yield
    tensorflow = sys.modules.get("tensorflow")  # a test without TensorFlow must not import it
    if tensorflow is not None:
        tensorflow.compat.v1.reset_default_graph()


@pytest.fixture(autouse=True)
def _same_log_levels() -> Iterator[None]:
    """Restore the levels of the logs, which some commands raise for the rest of their process."""
    loggers = [logging.getLogger(name) for name in (None, "absl", "tensorflow")]
    levels = [logger.level for logger in loggers]
    yield
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)


@pytest.fixture(autouse=True)
def _no_thread_left_behind() -> Iterator[None]:
    """Fail a test that leaves a thread running."""
    before = set(threading.enumerate())
    yield
    left = left_over(before, grace_secs=2.0)
    if left:
        # On a busy machine the threads may not have been scheduled yet.
        left = left_over(before, grace_secs=2.0 * slowdown())
    assert not left, f"the test left threads running: {', '.join(left)}"


@pytest.fixture
def graph() -> Iterator[Any]:
    """A new graph, which is the default graph during the test."""
    import tensorflow.compat.v1 as tf

    with tf.Graph().as_default() as fresh:
        yield fresh


@pytest.fixture(params=["queue", "area"])
def kept_in(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What holds staged elements: a queue, as on a CPU, or an area, as on other devices."""
    if request.param == "area":
        monkeypatch.setattr("staging_tf1.graph.token_area.is_on_cpu", lambda device: False)
    return str(request.param)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cancel waits for each put that it wakes. A busy machine may take longer than the usual 20 ms."""
    monkeypatch.setattr("staging_tf1.feed.sink_run._PATIENCE_SECS", 60.0)


@pytest.fixture(scope="module")
def quick_graphs() -> Iterator[None]:
    """Leave the graphs of a file as they are built, but not in `make soak`. Sessions with a config are as ever.

    For files with many small graphs: TensorFlow's graph optimizer takes nearly half of the time of their sessions. The
    graphs of the other files are optimized, such as those of test_session.py, test_staged.py, test_exactly_once.py.
    """
    with nullcontext() if with_all() else graphs_as_built():
        yield


@pytest.fixture(scope="session")
def run_python(tmp_path_factory: pytest.TempPathFactory) -> RunPython:
    """The `run_python` function; see `RunPython`."""
    import staging_tf1

    home = str(Path(staging_tf1.__file__).parent.parent)
    elsewhere = tmp_path_factory.mktemp("elsewhere")

    def run(*arguments: object, env: dict[str, str] | None = None, **kwargs: Any) -> Any:
        paths = [home, os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), **(env or {})}
        command = [sys.executable, *map(str, arguments)]
        options: dict[str, Any] = {
            "capture_output": True,
            "text": True,
            "timeout": 500,
            "cwd": elsewhere,
            **kwargs,
        }
        return subprocess.run(command, env=environment, check=False, **options)

    return run


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of this run of pytest, which its processes share."""
    mine = tmp_path_factory.getbasetemp()
    return mine.parent if "PYTEST_XDIST_WORKER" in os.environ else mine


@pytest.fixture(scope="session")
def fork_server(shared_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    """Run programs as `run_python` does, without the seconds that TensorFlow takes to load; see `forked.py`."""
    address, cwd = shared_folder / "fork_server", tmp_path_factory.mktemp("elsewhere")
    server = ForkServer(address, cwd, whole_ends=with_slow())
    yield server
    server.close()


@pytest.fixture
def reports() -> Iterator[Any]:
    """The watchdog's log during the test: a `stalls.Reports`."""
    from stalls import Reports  # this module imports TensorFlow

    handler = Reports()
    logger = logging.getLogger("absl")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)
