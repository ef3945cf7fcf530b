"""`tf.contrib` of TensorFlow 1.15.5: its files, their parts, and who sees them."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import random
import subprocess
import sys
import types
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forked import QUIET, ForkServer
from legacy_support import Run, last_json

from staging_tf1.arguments import CACHE_ENVIRONMENT
from staging_tf1.cli import contrib as cli
from staging_tf1.legacy.contrib import homes, loader, store
from staging_tf1.legacy.shim import scipy_images

IMPORTS = """
import importlib, json, sys
import tensorflow as tf
failed = {}
for part in sys.argv[1:]:
    try:
        importlib.import_module(f"tensorflow.contrib.{part}")
    except Exception as error:
        failed[part] = f"{type(error).__name__}: {error}"
print(len(sys.argv) - 1 - len(failed), "parts of tf.contrib can be imported")
print(json.dumps(failed))
"""
PLAIN = """
import json
import tensorflow as tf2
import tensorflow.compat.v1 as tf
from staging_tf1.contrib import training
from staging_tf1.contrib.layers.python.layers import initializers
import staging_tf1.contrib.rnn as rnn
tf.disable_v2_behavior()
def leaks(action):
    try:
        action()
    except (ImportError, AttributeError):
        return False
    return True
print(json.dumps({
    "rate": training.HParams(rate=0.5).parse("rate=0.1").rate,
    "shape": rnn.NASCell(4)(tf.ones([2, 3]), rnn.NASCell(4).zero_state(2, tf.float32))[0].shape.as_list(),
    "initializer": callable(initializers.xavier_initializer),
    "leaks": [
        leaks(lambda: __import__("tensorflow.contrib.crf")), leaks(lambda: tf2.contrib), leaks(lambda: tf.contrib),
        leaks(lambda: tf2.Session), leaks(lambda: getattr(__import__("numpy"), "object")),
    ],
}))
"""
ONLY = """
from staging_tf1 import legacy
legacy.install(only=["estimator"])
import json
import tensorflow as tf
import tensorflow.compat.v1.estimator as v1
from tensorflow.python.estimator import run_config
print(json.dumps([
    tf.executing_eagerly(), hasattr(tf, "Session"), hasattr(tf, "contrib"), tf.estimator.LinearClassifier.__name__,
    v1.LinearClassifier.__name__, tf.compat.v1.estimator is v1, run_config.RunConfig.__name__,
]))
"""
FACE = """
import json
import tensorflow.compat.v1 as tf
from tensorflow.compat.v1 import estimator
from tensorflow.compat.v1.contrib import layers
import tensorflow
names = ("contrib", "estimator", "staging", "layers", "nn", "train", "Session")
print(json.dumps([tensorflow.contrib.layers is layers, estimator is tf.estimator,
                  [name for name in names if getattr(tf, name) is not getattr(tensorflow, name)]]))
"""


# Rewrites of a graph that holds pipelines. Each step must get each batch, once and in order.
REWRITTEN = """
import json
import numpy as np
import tensorflow as tf
import staging_tf1 as staging
from staging_tf1.sources import ArraySource
from tensorflow.contrib import graph_editor as ge, quantize

ROWS = np.arange(96, dtype=np.float32).reshape(6, 4, 4, 1)

def of(**options):
    return staging.staged(ArraySource(ROWS, batch_size=2, epochs=1), **options)

def model(x):
    return tf.multiply(x, 2.0, name="model")

def rerouted(x):
    fed = tf.placeholder(tf.float32, x.shape)
    y = model(fed)
    ge.reroute_ts(x, fed)
    return y

def connected(x):
    fed = tf.placeholder(tf.float32, x.shape)
    y = model(fed)
    ge.connect(ge.sgv(tf.identity(x).op), ge.sgv(y.op).remap_inputs([0]))
    return y

def copied(x):
    y = model(x)
    _, info = ge.copy_with_input_replacements(ge.sgv(y.op), {x: x}, dst_scope="copied")
    return info.transformed(y)

def replaced(x):
    fed = tf.placeholder(tf.float32, x.shape)
    return ge.graph_replace(model(fed), {fed: x})

def quantized(rewrite):
    def build(x):
        w = tf.get_variable("w", initializer=tf.ones([3, 3, 1, 2]))
        hidden = tf.nn.relu6(tf.nn.bias_add(tf.nn.conv2d(x, w, 1, "SAME"), tf.zeros([2])))
        rewrite()
        with tf.control_dependencies([hidden]):
            return model(x)
    return build

REWRITES = {
    "rerouted": rerouted, "connected": connected, "copied": copied, "replaced": replaced,
    "quantized": quantized(lambda: quantize.create_training_graph(quant_delay=0)),
    "quantized for evaluation": quantized(quantize.create_eval_graph),
}
KINDS = {
    "blocks": {}, "lockstep": {"lockstep": True}, "map_fn": {"map_fn": lambda x: tf.nn.relu6(x) * 0.0 + x},
}
wrong = {}
for kind, options in KINDS.items():
    for name, rewrite in REWRITES.items():
        with tf.Graph().as_default() as graph:
            y = rewrite(of(**options))
            quantizers = [op.name for op in graph.get_operations() if "FakeQuant" in op.type]
            got = []
            with staging.StagingSession(stall_secs=20, stall_raises=True) as sess:
                while not sess.should_stop():
                    got.append(sess.run(y))
            if not np.array_equal(np.concatenate(got), 2 * ROWS) or bool(quantizers) != ("quantized" in name):
                wrong[f"{kind} {name}"] = [np.ravel(each)[:2].tolist() for each in got] + quantizers
print(json.dumps(wrong))
"""


@pytest.mark.slow
def test_a_graph_with_a_pipeline_is_rewritten(with_contrib: None, legacy_run: Run, tmp_path: Path) -> None:
    program = tmp_path / "rewritten.py"
    program.write_text(REWRITTEN)
    assert last_json(legacy_run(program)) == {}


def test_every_part_can_be_imported(with_contrib: None, legacy_run: Run, tmp_path: Path) -> None:
    program = tmp_path / "imports.py"
    program.write_text(IMPORTS)
    ran = legacy_run(program, *sorted(homes.PARTS))
    print(ran.stdout)
    assert last_json(ran) == {}
    assert len(homes.PARTS) >= 89
    assert "was removed; using" not in ran.stderr  # the program did not ask for those names


@pytest.mark.slow  # test_estimator_can_be_lent_alone lends a part in plain Python
def test_in_plain_python_only_the_parts_see_tensorflow_1(with_contrib: None, run_python: Run) -> None:
    report = last_json(run_python("-c", PLAIN, env=QUIET))
    assert report == {"rate": 0.1, "shape": [2, 4], "initializer": True, "leaks": [False] * 5}


MIGRATED_IMPORTS = """
import json
import tensorflow.compat.v1 as tf
found = []
for how in (
    "from staging_tf1.contrib import slim", "import staging_tf1.contrib.slim as slim",
    "from staging_tf1.contrib.framework.python.ops import arg_scope", "from staging_tf1.contrib import lookups",
    "from staging_tf1.contrib import staging",
):
    try:
        exec(how)
        found.append("")
    except ImportError as error:
        found.append(str(error))
print(json.dumps(found))
"""


@pytest.mark.matrix  # the finder is that of staging-tf1 run
def test_in_plain_python_a_part_that_is_not_fetched_says_so(run_python: Run, tmp_path: Path) -> None:
    fetch = (
        "is not in TensorFlow 2. Fetch it from TensorFlow 1.15.5 (110 MB, once): staging-tf1 contrib fetch. The "
        "program itself needs no change."
    )
    ran = run_python("-c", MIGRATED_IMPORTS, env={**QUIET, "STAGING_TF1_CACHE": str(tmp_path)})
    assert last_json(ran) == [
        f"tf.contrib.slim {fetch}",
        f"tf.contrib.slim {fetch}",
        f"tf.contrib.framework {fetch}",
        "tf.contrib.lookups: TensorFlow 1.15 had no tf.contrib.lookups. Check the spelling.",
        "",
    ]


def test_estimator_can_be_lent_alone(run_python: Run) -> None:
    v2 = "LinearClassifierV2"
    assert last_json(run_python("-c", ONLY, env=QUIET)) == [
        True, False, False, v2, "LinearClassifier", True, "RunConfig",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"only": ["keras"]}, "install() got only=['keras'], expected names from ['contrib', 'estimator']."),
        ({"only": ["contrib"], "old_names": True}, "install() got only= with claim_version= or old_names="),
    ],
)
def test_what_cannot_be_lent_alone(options: dict[str, Any], message: str) -> None:
    from staging_tf1 import legacy

    with pytest.raises(ValueError) as caught:
        legacy.install(**options)
    assert str(caught.value).startswith(message)


def test_compat_v1_has_what_tf_has(with_contrib: None, legacy_run: Run, tmp_path: Path) -> None:
    program = tmp_path / "face.py"
    program.write_text(FACE)
    assert last_json(legacy_run(program)) == [True, True, []]


def test_python_2_is_named(staging_run: Run, tmp_path: Path) -> None:
    program = tmp_path / "old.py"
    program.write_text("x = 1\nprint 'loss', x\n")
    ran = staging_run(program)
    assert ran.returncode == 2
    assert ran.stderr.startswith(f"staging-tf1 run: {program}:2: is Python 2 (a print statement: \"print 'loss', x\").")
    assert ran.stderr.count("\n") == 1


@pytest.fixture
def contrib(tmp_path: Path) -> Any:
    def run(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, CACHE_ENVIRONMENT: str(tmp_path / "cache"), **env}
        command = [sys.executable, "-m", "staging_tf1", "contrib", *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=200, env=environment, check=False)

    return run


def test_without_an_index_the_command_says_so_in_one_line(contrib: Any, tmp_path: Path) -> None:
    ran = contrib("fetch", PIP_NO_INDEX="1", PIP_FIND_LINKS="")
    assert ran.returncode == 1
    assert ran.stderr.startswith("staging-tf1 contrib: pip cannot download Keras-2.2.5-py2.py3-none-any.whl")
    assert ran.stderr.count("\n") == 1 and "--wheel" in ran.stderr
    assert list((tmp_path / "cache").iterdir()) == []
    for action in ("show", "remove"):
        ran = contrib(action)
        assert ran.returncode == 1 and "does not exist. Fetch it: staging-tf1 contrib fetch" in ran.stderr
    ran = contrib("show", STAGING_TF1_CACHE="s3://bucket")
    assert ran.returncode == 1
    assert ran.stderr.startswith(
        "staging-tf1 contrib: the environment got STAGING_TF1_CACHE='s3://bucket', expected a path"
    )


def _wheel(folder: Path) -> Path:
    path = folder / "some.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("tensorflow_core/contrib/crf/__init__.py", "x = 1\n")
        archive.writestr("tensorflow_core/contrib/crf/_crf.so", "binary")
        archive.writestr("tensorflow_core/python/ops.py", "y = 1\n")
    return path


def test_another_wheel_is_refused(contrib: Any, tmp_path: Path) -> None:
    ran = contrib("fetch", "--wheel", str(_wheel(tmp_path)))
    assert ran.returncode == 1 and "has the sha256 " in ran.stderr and "It is damaged, or not one of" in ran.stderr
    assert list((tmp_path / "cache").iterdir()) == []


def test_the_files_are_whole_or_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE_ENVIRONMENT, str(tmp_path / "cache"))
    wheel = _wheel(tmp_path)
    monkeypatch.setattr(store, "_recognized", lambda path: store.CONTRIB)
    made = str(tmp_path / "cache" / "contrib-1.15.5")
    assert store.fetch([str(wheel)]) == [made] and store.fetch([str(wheel)]) == []
    assert store.contents(store.CONTRIB) == (1, 6)
    assert [str(path) for path in (tmp_path / "cache").iterdir()] == [made]
    assert store.remove() == [made] and store.remove() == [] and store.fetched() is None
    wheel.write_bytes(wheel.read_bytes()[:-30])
    with pytest.raises(zipfile.BadZipFile):
        store.fetch([str(wheel)])
    assert list((tmp_path / "cache").iterdir()) == []


def test_what_is_missing_is_fetched_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(CACHE_ENVIRONMENT, str(tmp_path / "cache"))
    path = tmp_path / "keras.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("keras/__init__.py", "docs/__init__.py", "Keras-2.2.5.dist-info/LICENSE"):
            archive.writestr(name, "")
    mine = store.KERAS["keras"]._replace(sha256=hashlib.sha256(path.read_bytes()).hexdigest())
    monkeypatch.setattr(store, "WHEELS", (mine, store.CONTRIB))
    asked: list[store.Wheel] = []
    (tmp_path / "cache" / "contrib-1.15.5").mkdir(parents=True)
    monkeypatch.setattr(store, "_download", lambda target, wheel: asked.append(wheel) or str(path))
    assert cli.main(["fetch"]) == 0 and asked == [mine]
    assert sorted(each.name for each in (tmp_path / "cache" / "keras-2.2.5").iterdir()) == ["LICENSE", "keras"]
    fetched, there = capsys.readouterr().out.splitlines()
    assert fetched == f"fetched {tmp_path}/cache/keras-2.2.5: keras 2.2.5, 2 files, 0.0 MiB"
    assert there.startswith(f"already there: {tmp_path}/cache/contrib-1.15.5: tf.contrib of TensorFlow 1.15.5, 0 files")
    (tmp_path / "cache" / "contrib-1.15.5").rmdir()
    assert cli.main(["show"]) == 0
    assert capsys.readouterr().out.splitlines()[1] == (
        f"{tmp_path}/cache/contrib-1.15.5: not fetched (staging-tf1 contrib fetch)"
    )


# Made by scipy 1.1.0.
ROWS = np.arange(12).reshape(3, 4) * 1.5


def test_images_as_scipy_made_them(tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    assert scipy_images.bytescale(ROWS)[1].tolist() == [93, 116, 139, 162]
    assert scipy_images.imresize(ROWS, (2, 3), "nearest").tolist() == [[0, 46, 70], [185, 232, 255]]
    scipy_images.imsave(tmp_path / "rows.png", ROWS)
    assert scipy_images.imread(tmp_path / "rows.png")[2].tolist() == [185, 209, 232, 255]
    assert scipy_images.imread(tmp_path / "rows.png", mode="RGB").shape == (3, 4, 3)
    colors = (np.arange(24).reshape(2, 4, 3) * 10).astype(np.uint8)
    assert scipy_images.fromimage(scipy_images.toimage(colors)).tolist() == colors.tolist()
    assert scipy_images.imresize(colors, 50).tolist() == [[[81, 91, 101], [129, 139, 149]]]
    assert scipy_images.imresize(colors, (3, 5))[1, 3].tolist() == [129, 139, 149]
    assert scipy_images.imrotate(colors, 90)[1].tolist() == [[0, 0, 0], [30, 40, 50], [150, 160, 170], [0, 0, 0]]
    assert scipy_images.imresize(ROWS, 2.0)[0].tolist() == [0, 6, 17, 29, 40, 52, 64, 70]
    assert scipy_images.imresize(colors, 50).shape == scipy_images.imresize(colors, 0.5).shape == (1, 2, 3)
    with pytest.raises(ValueError, match="does not have a suitable array shape"):
        scipy_images.toimage(np.zeros([2, 2, 2]))


def test_rows_of_unequal_lengths(fork_server: ForkServer) -> None:
    code = (
        "from staging_tf1 import legacy; legacy.install(old_names=True)\n"
        "import numpy as np\n"
        "from scipy.sparse.linalg.eigen.arpack import eigsh\n"
        "print(np.array([[1, 2], [3]]).dtype, np.array([[1, 2], [3, 4]]).dtype, eigsh.__name__)"
    )
    assert fork_server.run("-c", code).stdout == "object int64 eigsh\n"


def test_another_version_of_this_package_compiles_genuine_files_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python keeps the compiled form next to the file, which is rewritten while it is compiled."""
    path = tmp_path / "genuine.py"
    path.write_text("value = 1\n")
    monkeypatch.setattr(sys, "dont_write_bytecode", False)

    def value() -> Any:
        module = types.ModuleType("genuine")
        loader.GenuineLoader("genuine", str(path)).exec_module(module)
        return module.value

    assert value() == 1 and list(tmp_path.glob("__pycache__/*.pyc"))
    monkeypatch.setitem(loader.REWRITTEN, "genuine", {"value = 1": "value = 2"})
    assert value() == 1, "the same version reads the compiled form"
    monkeypatch.setattr(loader, "_version", lambda: 7)
    assert value() == 2
    monkeypatch.setitem(loader.REWRITTEN, "genuine", {"value = 3": "value = 4"})
    monkeypatch.setattr(loader, "_version", lambda: 8)
    with pytest.raises(ImportError, match="expected 'value = 3'"):
        value()


def test_loading_a_file_leaves_the_random_numbers_of_the_program(tmp_path: Path) -> None:
    file = tmp_path / "drawing.py"
    file.write_text("import random\nrandom.random()\n")
    genuine = loader.GenuineLoader("drawing", str(file))
    module = types.ModuleType("drawing")
    module.__spec__ = importlib.util.spec_from_loader("drawing", genuine)
    random.seed(1)
    genuine.exec_module(module)
    assert module.__dict__["random"] is random
    assert random.random() == random.Random(1).random()
