"""Programs behave the same under `staging-tf1 run` as in plain Python, compared byte by byte."""

from __future__ import annotations

import json
import resource
import signal
import statistics
from importlib.metadata import version
from typing import Any

import pytest
from forked import ForkServer
from legacy_support import PROMISES, Run, last_json
from load import slowdown


def test_surroundings_are_those_of_plain_python(run_python: Run, staging_run: Run) -> None:
    program = [PROMISES / "surroundings.py", "--flag", "-m", "x y", "--"]
    plain = last_json(run_python(*program, input="typed"))
    assert last_json(staging_run(*program, input="typed")) == plain
    assert last_json(staging_run("--", *program, input="typed")) == plain
    assert plain["stdin"] == "typed"
    assert plain["argv"][1:] == ["--flag", "-m", "x y", "--"]


def test_interpreter_flags_reach_the_program(run_python: Run) -> None:
    program = PROMISES / "surroundings.py"
    ran = run_python("-O", "-W", "ignore::FutureWarning", "-m", "staging_tf1", "run", program, input="")
    assert last_json(ran)["flags"] == [1, ["ignore::FutureWarning"]]


@pytest.mark.slow_cases("thread|from|import|exit none|exit text")
@pytest.mark.parametrize(
    "how",
    ["exit 3", "exit text", "exit none", "raise", "import", "from", "thread", "signal", "interrupt", "hard"],
)
def test_the_end_of_a_program_is_that_of_plain_python(run_python: Run, staging_run: Run, how: str) -> None:
    plain = run_python(PROMISES / "endings.py", how)
    ours = staging_run(PROMISES / "endings.py", how)
    assert ours.returncode == plain.returncode
    assert ours.stdout == plain.stdout
    assert ours.stderr == plain.stderr
    if how == "signal":
        assert ours.returncode == -signal.SIGTERM


def test_modules_and_absl_flags(staging_run: Run) -> None:
    ran = staging_run("-m", "package_of_mine.train", "--steps=4", "word", cwd=PROMISES)
    assert ran.stdout == "['word'] 4 __main__ package_of_mine True model\n"
    assert ran.returncode == 5


def test_third_party_libraries_of_tensorflow_2_go_on_working(legacy_run: Run) -> None:
    report = last_json(legacy_run(PROMISES / "third_party.py"))
    works = {
        "tensorflow_probability": -0.9189,
        "tensorboard": True,
        "gin": "float",
        "tf_keras": [4, 3],
    }
    for name, result in report.items():
        assert result in (works[name], "not installed"), name


@pytest.fixture(scope="module")
def inside(run_python: Run) -> dict[str, Any]:
    """What programs/promises/without_packages.py prints in plain Python.

    In a new interpreter, which installs the shim before TensorFlow is imported.
    """
    found: dict[str, Any] = last_json(run_python(PROMISES / "without_packages.py"))
    return found


def test_install_from_inside_a_program(inside: dict[str, Any]) -> None:
    assert not inside["loaded by install"]
    assert inside["area"] == "StagingArea"
    assert not inside["eager"]
    refused = inside["other arguments"]
    assert refused.startswith("staging_tf1.legacy is already installed with Settings(packages=()")
    assert refused.endswith("Call install() once, at the start of the program.")


def test_install_after_tensorflow_was_loaded(fork_server: ForkServer) -> None:
    code = (
        "import tensorflow as tf; from staging_tf1 import legacy; legacy.install(old_names=True)\n"
        "import numpy as np; print(tf.contrib.staging.StagingArea.__name__, np.object, tf.executing_eagerly())"
    )
    assert fork_server.run("-c", code).stdout == "StagingArea <class 'object'> False\n"


@pytest.mark.slow  # test_compiled_runs.py has runs that are not compiled
def test_old_names_and_compiled_runs_can_be_switched_off(staging_run: Run, tmp_path: Any) -> None:
    program = tmp_path / "loop.py"
    program.write_text(
        "import collections\n"
        "import tensorflow as tf\n"
        "x = tf.placeholder(tf.float32, [])\n"
        "y = x + 1.0\n"
        "with tf.Session() as sess:\n"
        "    print([float(sess.run(y, {x: step})) for step in range(3)])\n"
        "    print(hasattr(collections, 'Mapping'), [name for name in vars(sess) if 'compiled' in name])\n"
    )
    assert staging_run(program).stdout == "[1.0, 2.0, 3.0]\nTrue ['_staging_tf1_compiled_runs']\n"
    assert staging_run("--no-old-names", "--no-compile", program).stdout == "[1.0, 2.0, 3.0]\nFalse []\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no_such_file.py"], "staging-tf1 run: file 'no_such_file.py' does not exist"),
        ([], "staging-tf1 run: got no program, expected a script, or -m and a module"),
        (["-m"], "staging-tf1 run: -m needs the name of a module"),
        (["--no-such-flag", "x.py"], "staging-tf1 run: unrecognized arguments: --no-such-flag"),
    ],
)
def test_wrong_words(staging_run: Run, arguments: list[str], message: str) -> None:
    ran = staging_run(*arguments)
    assert ran.returncode == 2
    assert ran.stderr.startswith(message)
    assert ran.stdout == ""


def test_another_interpreter_with_our_folder_on_its_path_starts_undisturbed(run_python: Run) -> None:
    code = (
        "import os, sys, subprocess\n"
        "from staging_tf1.legacy.shim import settings\n"
        "env = {'PYTHONPATH': settings._BOOTSTRAP, 'PATH': os.environ['PATH']}\n"
        "settings.Settings().to_environment(env)\n"
        "child = 'import sys; print(sorted(m for m in sys.modules if m == \"tensorflow\"))'\n"
        "print(subprocess.run([sys.executable, '-S', '-c', child], env=env, capture_output=True, text=True))"
    )
    assert "stdout='[]\\n', stderr=''" in run_python("-c", code).stdout


def _children_secs() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_start_up_costs_at_most_half_a_second(run_python: Run, staging_run: Run, tmp_path: Any) -> None:
    """The cost before the program's first line, without importing TensorFlow, which the program does itself."""
    program = tmp_path / "empty.py"
    program.write_text("")

    def seconds(run: Run) -> float:
        # Processor time, because wall time includes other work of the machine. On shared cores it grows, too.
        times = []
        for _ in range(3):
            start = _children_secs()
            assert run(program).returncode == 0
            times.append(_children_secs() - start)
        return statistics.median(times)

    assert seconds(staging_run) - seconds(run_python) < 0.5 * slowdown()


def test_settings_survive_the_environment() -> None:
    from staging_tf1.legacy.shim import settings

    environment: dict[str, str] = {}
    told = settings.Settings(("a", "b"), claim_version=True, old_names=False)
    told.to_environment(environment)
    stored = json.loads(environment[settings.ENVIRONMENT_NAME])
    assert stored == {
        "packages": ["a", "b"],
        "claim_version": True,
        "old_names": False,
        "only": [],
        "compile_runs": True,
        "stall_secs": None,
    }


# Whether TensorFlow's own Keras is Keras 2, and Estimator a part of TensorFlow.
HAS_KERAS_TWO = tuple(map(int, version("tensorflow").split(".")[:2])) < (2, 16)
KERAS_TWO = (
    "needs Keras 2, and this TensorFlow comes with Keras 3. Install Keras 2 as well: pip install tf_keras. The program "
    "itself needs no change."
)


def test_what_is_not_installed_is_named(inside: dict[str, Any]) -> None:
    """Keras 2 is a separate package, and tf.contrib has to be fetched. Their names say what to do."""
    fetch = (
        "is not in TensorFlow 2. Fetch it from TensorFlow 1.15.5 (110 MB, once): staging-tf1 contrib fetch. The "
        "program itself needs no change."
    )
    missing = ("tf.contrib.layers", "tf.contrib.slim", "tensorflow.examples.tutorials")
    assert inside["contrib"] == [
        *(f"{name} {fetch}" for name in missing),
        "tf.contrib.lookups: TensorFlow 1.15 had no tf.contrib.lookups. Check the spelling.",
    ]
    names = ("tf.layers.dense", "tf.nn.rnn_cell.LSTMCell")
    assert inside.get("keras", []) == ([] if HAS_KERAS_TWO else [f"{name} {KERAS_TWO}" for name in names])
    assert inside["there"] == "relu"


@pytest.mark.skipif(HAS_KERAS_TWO, reason="TensorFlow 2.15 comes with Keras 2")
def test_an_estimator_without_keras_two_is_refused(inside: dict[str, Any]) -> None:
    assert inside["estimator"] == f"tf.estimator.Estimator {KERAS_TWO}"


@pytest.mark.skipif(HAS_KERAS_TWO, reason="TensorFlow 2.15 comes with Keras 2")
def test_an_estimator_after_keras_three_is_refused(fork_server: ForkServer) -> None:
    code = (
        "import tensorflow as tf; tf.keras.layers.Dense\n"
        "from staging_tf1 import legacy; legacy.install()\n"
        "import tensorflow as tf\n"
        "try: tf.estimator.Estimator\n"
        "except AttributeError as error: print(error)"
    )
    assert fork_server.run("-c", code).stdout == (
        "tf.estimator.Estimator needs Keras 2, and this process has loaded Keras 3. Call staging_tf1.legacy.install(), "
        "or set TF_USE_LEGACY_KERAS=1, before the first import of tensorflow.\n"
    )
