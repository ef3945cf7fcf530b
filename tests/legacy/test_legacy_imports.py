"""Every form of import, in one program that runs under `staging-tf1 run`, and in a process that it spawns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from legacy_support import PROMISES, Run, last_json, with_site_packages
from slow import with_slow

PACKAGE = ("--package", "library_of_one")
FORMS = PROMISES / "import_forms.py"


@pytest.fixture(scope="module")
def spawning(staging_run: Run, with_contrib: None) -> Any:
    """A program whose spawned worker runs the program with the forms of import, and then works itself."""
    program = PROMISES / "spawned.py"
    return staging_run(*PACKAGE, "--claim-version", program, FORMS, env=with_site_packages())


@pytest.fixture(scope="module")
def ran(request: pytest.FixtureRequest, staging_run: Run, with_contrib: None) -> Any:
    """The program with the forms of import.

    To import TensorFlow takes seconds, so the run without slow tests has it in the spawned worker only. The server of
    test_legacy_programs.py imports TensorFlow in the first process of `staging-tf1 run`.
    """
    if with_slow():
        return staging_run(*PACKAGE, FORMS, env=with_site_packages())
    return request.getfixturevalue("spawning")


@pytest.fixture(scope="module")
def report(ran: Any) -> dict[str, Any]:
    assert ran.returncode == 0, ran.stderr[-3000:]
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[0])
    return found


def test_spawned_workers_children_threads_and_pickles(spawning: Any) -> None:
    report = last_json(spawning)
    assert report == {
        "spawned": ["__mp_main__", True, 0.5],
        "pickle": [True, 2.0, True],
        "thread": [True],
        "child": "True",
        "version": ["1.15.5", "1.15.5", "1.15.5"],
    }


# What the program finds, by its name for it.
FOUND = {
    "loaded before": [],
    "star": True,
    "graph mode": True,
    "static shape": 3,
    "reference variable": "float32_ref",
    "protos": True,
    "hook": True,
    "patched": "patched",
    "library sees": {
        "Session": False,
        "contrib": False,
        "placeholder": False,
        "Variable": False,
        "AdamOptimizer": False,
        "same module": True,
        "np.object": False,
        "version": True,
    },
    "named package sees": {"Session": True, "contrib": True},
    "offered": {
        "nest": [1, 2],
        "defun": True,
        "hparams": 2.0,
        "map_and_batch": True,
        "balance": True,
        "global step": "global_step:0",
    },
    "old names": {
        "np": [True, True, True, "bool"],
        "again": True,
        "collections": True,
        "getargspec": ["a", "b"],
        "np_utils": [[[0.0, 1.0], [1.0, 0.0]]] * 4,
    },
}


@pytest.mark.parametrize("name", FOUND)
def test_what_the_program_finds(report: dict[str, Any], name: str) -> None:
    assert report[name] == FOUND[name]


def test_one_object_by_every_way(report: dict[str, Any]) -> None:
    areas, found = dict(report["areas"]), dict(report["one object"])
    assert areas.pop("attribute") == "staging_tf1.legacy.contrib.staging" and len(areas) == 10
    assert found.pop("paths") == [True, True]
    for same in (areas, found, report["tf1"]):
        assert all(same.values()), same


SPELLING = "TensorFlow 1.15 had no tf.contrib.lookups. Check the spelling."


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("attribute", f"AttributeError: tf.contrib.lookups: {SPELLING}"),
        ("from", f"tf.contrib.lookups: {SPELLING}"),
        (
            "deep",
            "ImportError: tf.contrib.crf.python.no_such_module is not among the files of TensorFlow 1.15.5. Check the "
            "spelling.",
        ),
        (
            "misspelt",
            "AttributeError: tf.contrib.stagin: TensorFlow 1.15 had no tf.contrib.stagin. Check the spelling.",
        ),
        (
            "lost op",
            "AttributeError: the op ImageConnectedComponents of tf.contrib.image is in a binary of TensorFlow 1.15.5, "
            "which the installed TensorFlow cannot load, and staging_tf1 does not replace it. Use instead: "
            "scipy.ndimage.label in tf.numpy_function.",
        ),
        (
            "staging",
            "AttributeError: tf.staging.put: TensorFlow never had a module tf.staging; the areas are in "
            "tf.contrib.staging.",
        ),
    ],
)
def test_what_is_not_coming_back_says_where_it_went(report: dict[str, Any], how: str, message: str) -> None:
    assert report["removed"][how] == message


def test_a_name_of_no_tensorflow(report: dict[str, Any]) -> None:
    assert report["removed"]["strict"] == (
        "ImportError: tf.contrib.framework.no_such_thing is not among the files of TensorFlow 1.15.5. Check the "
        "spelling."
    )
    assert report["removed"]["top"].startswith(
        "AttributeError: module 'tensorflow' has no attribute 'no_such_name': tf.no_such_name is not in tf.compat.v1"
    )
    assert report["removed"]["hasattr"] == [False, True, False]


def test_old_names_are_logged_once(report: dict[str, Any], ran: Any) -> None:
    assert ran.stderr.count("numpy.object was removed; using Python's object instead.") == 1
    assert ran.stderr.count("collections.Mapping was removed; using collections.abc.Mapping instead.") == 1


def test_names_below_the_api_that_moved_or_are_gone(report: dict[str, Any]) -> None:
    below = dict(report["private names"])
    missing, (threadpool, all_reduce) = below.pop("missing"), below.pop("removed")
    assert all(all(value) if isinstance(value, list) else value for value in below.values()), below
    assert missing.endswith(": module 'tensorflow.python.ops.variables' has no attribute 'NoSuchName'")
    gone = "was removed in TensorFlow 2."
    assert threadpool == (
        f"AttributeError: tensorflow.python.data.experimental.ops.threadpool.PrivateThreadPool {gone} Set "
        "Options().threading.private_threadpool_size of tf.data and pass the options to dataset.with_options()."
    )
    assert all_reduce == (
        f"AttributeError: tensorflow.python.distribute.all_reduce.build_ring_all_reduce {gone} There is no "
        "replacement; tf.distribute reduces over devices by itself."
    )


LEFT_CONTRIB = """
import json, sys
import tensorflow as tf
from tensorflow.contrib import nccl
from tensorflow.contrib.distributions.python.ops import bernoulli, categorical, distribution
from tensorflow.contrib.lite.python import tflite_convert
import tensorflow.contrib.lite as lite

def failing(use):
    try:
        use()
    except Exception as error:
        return "%s: %s" % (type(error).__name__, error)

sys.modules["tensorflow_gan"] = None
found = [
    bernoulli.Bernoulli is tf.distributions.Bernoulli, categorical.Categorical is tf.distributions.Categorical,
    distribution.Distribution is tf.distributions.Distribution,
    tf.contrib.lite.TFLiteConverter is tf.lite.TFLiteConverter,
    lite.TFLiteConverter is tf.lite.TFLiteConverter, callable(tflite_convert.main), callable(nccl.all_sum),
    failing(lambda: tf.contrib.gan.losses)]
class Package:
    losses = "of the package"
sys.modules["tensorflow_gan"] = Package
print(json.dumps(found + [tf.contrib.gan.losses]))
"""


def test_modules_that_left_contrib_before_1_15(legacy_run: Run, with_contrib: None, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(LEFT_CONTRIB)
    assert last_json(legacy_run(program)) == [
        *[True] * 7,
        "ModuleNotFoundError: tensorflow.contrib.gan.losses: no module tensorflow_gan. Install it: pip install "
        "tensorflow-gan.",
        "of the package",
    ]


MOCKS = """
import json
import tensorflow as tf
from unittest import mock as of_python
{imports}
found = []
{code}
print(json.dumps(found + [hasattr(tf.get_variable("x", [2]), "op")]))
"""


@pytest.mark.parametrize(
    ("package", "code"),
    [
        ("unittest.mock", "with of_python.patch.object(tf, 'get_variable') as f: found += [tf.get_variable is f]"),
        ("mock", "with mock.patch.object(tf, 'get_variable') as f: found += [tf.get_variable is f]"),
        ("mock", "with mock.patch('tensorflow.get_variable') as f: found += [tf.get_variable is f]"),
        (
            "pytest",
            "with pytest.MonkeyPatch.context() as patch:\n"
            "    patch.setattr(tf, 'get_variable', 3)\n    found += [tf.get_variable == 3]",
        ),
    ],
)
def test_programs_replace_names_of_tf(package: str, code: str, legacy_run: Run, tmp_path: Path) -> None:
    pytest.importorskip(package)
    program = tmp_path / "program.py"
    program.write_text(MOCKS.format(imports=f"import {package}", code=code))
    assert last_json(legacy_run(program)) == [True, True]
