"""`staging-tf1 migrate`: programs give the same numbers without the shim, and no file is lost or half-written."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
from forked import QUIET, ForkServer
from legacy_support import HERE, PROGRAMS, Run, assert_same_numbers, goldens, last_json, names_to_test, needs_contrib

from staging_tf1.cli import check, migrate
from staging_tf1.legacy import source_files
from staging_tf1.legacy.codemod import migration

CORPUS = sorted(PROGRAMS.glob("*.py")) + sorted(PROGRAMS.glob("planted/*.py")) + sorted(PROGRAMS.glob("clean/*.py"))
Capture = Any


def migrated(text: str, tmp_path: Path) -> str:
    path = tmp_path / "program.py"
    path.write_text(text)
    return migration.migrate(source_files.read(str(path))).after


_results: dict[Path, str] = {}


def migrated_corpus(path: Path) -> str:
    if path not in _results:
        _results[path] = migration.migrate(source_files.read(str(path))).after
    return _results[path]


# `run` restores their static shapes and sizes, the ops on which seeds depend, how often a regularizer is called, ranks
# and names of Keras, private attributes, and what functions see that TensorFlow calls back; and it turns off a rewrite
# of graphs at which TensorFlow 2.15 crashes. A rewritten program has what TensorFlow 2 has.
RUN_ALONE = {
    "called_back",
    "float_sizes",
    "keras_ranks",
    "old_attributes",
    "old_names",
    "op_counts",
    "own_norms",
    "regularized_variables",
    "transposed_shapes",
}


@pytest.fixture(scope="module")
def without_shim(
    request: Any, fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory, try_contrib: str
) -> dict[str, str]:
    """Return the output of the programs that this run tests in plain Python, after `migrate --write`."""
    folder = tmp_path_factory.mktemp("migrated")
    for name in names_to_test(request, "test_same_numbers_without_the_shim"):
        shutil.copy(PROGRAMS / f"{name}.py", folder)
    migrate.main([str(folder), "--write"])
    paths = sorted(folder.glob("*.py"))
    _results.update({PROGRAMS / path.name: path.read_text() for path in paths})
    printed: dict[str, str] = last_json(fork_server.run(HERE / "run_programs.py", *paths, env=QUIET))
    return printed


# The others have no name that migrates in another way, and test_legacy_programs.py runs their code.
@pytest.mark.slow_cases(
    r"(?!(cell_classes|contrib_data|flags_and_files|hparams_fallback|layers_model|mnist_tutorial|placeholder_feed|"
    r"record_writer|tower_areas)$).*"
)
@pytest.mark.parametrize("name", sorted(set(goldens()) - RUN_ALONE))
def test_same_numbers_without_the_shim(without_shim: dict[str, str], name: str, try_contrib: str) -> None:
    if try_contrib and needs_contrib(PROGRAMS / f"{name}.py"):
        pytest.skip(try_contrib)
    assert_same_numbers(without_shim[name], goldens()[name])


# The planted and clean files are migrated once, in test_the_result_passes_check_but_for_planted_mistakes.
@pytest.mark.slow_cases("(planted|clean)/.*")
@pytest.mark.parametrize("path", CORPUS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_migrating_twice_changes_nothing_more(path: Path, tmp_path: Path) -> None:
    once = migrated_corpus(path)
    assert migrated(once, tmp_path) == once
    compile(once, str(path), "exec", dont_inherit=True)


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_the_result_passes_check_but_for_planted_mistakes(path: Path, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "program.py").write_text(migrated_corpus(path))
    check.main([str(tmp_path / "program.py")])
    found = set(re.findall(r"^\S+: (STG\d+) ", capsys.readouterr().out, re.MULTILINE))
    expected = set(re.findall(r"STG\d+", " ".join(re.findall(r"# bad: (.*)", path.read_text()))))
    # Migrated names are correct, calls of tostring() are rewritten, and a program that needs Keras 2 chooses it.
    assert found == expected - {"STG116", "STG117", "STG119", "STG121"}


def test_every_form_of_import(tmp_path: Path) -> None:
    old = '''#!/usr/bin/env python
"""Docstring."""
from __future__ import absolute_import

import collections  # keep me
import tensorflow.contrib.staging
from tensorflow import contrib
from tensorflow.contrib import slim
from tensorflow.contrib.rnn import LSTMCell
from tensorflow.train import AdamOptimizer
from tensorflow.python.ops import data_flow_ops, array_ops  # two
try: import tensorflow.contrib.eager
except ImportError: pass

a = tensorflow.contrib.staging.StagingArea([tensorflow.float32])  # trailing
b = contrib.staging.StagingArea(
    [tensorflow.float32],   # odd   spacing
)
c = data_flow_ops.MapStagingArea([tensorflow.int64])
e = tensorflow.staging.StagingArea([x], dtypes=[tensorflow.float32])
p = e.stage([x])
q = e.unstage()
tensorflow.contrib.layers.xavier_initializer()
tensorflow.contrib.framework.nest.flatten(1)
slim.conv2d(array_ops.concat(p, 0), q), tf.contrib.slim
'''
    new = '''#!/usr/bin/env python
"""Docstring."""
from __future__ import absolute_import

import staging_tf1.contrib.keras_two
import collections  # keep me
import staging_tf1
from staging_tf1.contrib import slim
from tensorflow.compat.v1.nn.rnn_cell import LSTMCell
from tensorflow.compat.v1.train import AdamOptimizer
from tensorflow.python.ops import array_ops  # two
import tensorflow.compat.v1 as tensorflow

tensorflow.disable_v2_behavior()
try: import tensorflow.contrib.eager
except ImportError: pass

a = staging_tf1.StagingArea([tensorflow.float32])  # trailing
b = staging_tf1.StagingArea(
    [tensorflow.float32],   # odd   spacing
)
c = staging_tf1.MapStagingArea([tensorflow.int64])
e = staging_tf1.StagingArea.from_tensors([x])
p = e.put([x])
q = e.get()
staging_tf1.contrib.layers.xavier_initializer()
tensorflow.nest.flatten(1)
slim.conv2d(array_ops.concat(p, 0), q), tf.contrib.slim
'''
    assert migrated(old, tmp_path) == new


# Where the import of TensorFlow stands, and how the result begins.
V1 = "import tensorflow.compat.v1"
OFF = f"{V1}\n\ntensorflow.compat.v1.disable_v2_behavior()\n"
FUTURE = "'doc'\nfrom __future__ import division\n"
PLACES = {
    "try:\n    import tensorflow.compat.v1 as tf\nexcept ImportError:\n    import tensorflow as tf\nx = tf.int8\n": OFF,
    "import os\nif os.name:\n    import tensorflow as tf\nx = tf.float32\n": OFF,
    "def main():\n    import tensorflow as tf\n    return tf.float32\nx = main()\n": OFF,
    "class Net:\n    import tensorflow as tf\n    x = tf.float32\n": OFF,
    f"{FUTURE}if 1:\n    import tensorflow as tf\nx = tf.float32\n": FUTURE + OFF,
    "if 1:\n    import tensorflow\nx = tensorflow.float32\n": f"{V1} as tensorflow\n\ntensorflow.disable_v2_beh",
    "x = 1; import tensorflow as tf; y = tf.contrib.staging.StagingArea\n": f"import staging_tf1\n{OFF}",
    "import os; import tensorflow as tf\nx = tf.float32\n": "import os; import tensorflow as tf\n\ntf.disable_v2_beh",
}


@pytest.mark.parametrize("old", PLACES)
def test_the_behavior_is_chosen_by_a_name_that_is_bound(old: str, tmp_path: Path) -> None:
    new = migrated(old, tmp_path)
    assert new.startswith(PLACES[old])
    compile(new, "program.py", "exec")
    assert migrated(new, tmp_path) == new


def test_comments_within_what_is_rewritten_stay(tmp_path: Path) -> None:
    old = """from tensorflow.contrib.staging import (  # one
    StagingArea,  # two
)  # three
import tensorflow as tf  # four
area = (tf
        # five
        .contrib.staging
        .MapStagingArea([tf.int64]))
other = [tf.contrib  # six
         .staging.StagingArea([tf.int64])]
"""
    new = """from staging_tf1 import StagingArea  # one  # two  # three
import tensorflow.compat.v1 as tf  # four
import staging_tf1

tf.disable_v2_behavior()
area = (staging_tf1  # five
        .MapStagingArea([tf.int64]))
other = [staging_tf1  # six
.StagingArea([tf.int64])]
"""
    assert migrated(old, tmp_path) == new
    compile(new, "program.py", "exec")


def test_a_module_that_passes_names_on_does_not_choose_the_behavior(tmp_path: Path) -> None:
    text = "from tensorflow.python.ops.nn import *\n"
    assert migrated(text, tmp_path) == text


def test_what_is_not_understood_stays_and_is_listed(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "left.py"
    text = (
        "import importlib\nimport tensorflow as tf\nfrom tensorflow.contrib import tensor_forest\n"
        "x = tf.contrib.image.connected_components(1)\nimportlib.import_module('tensorflow.contrib.rpc')\n"
        "y = tf.estimator.Estimator(1)\nif y: from tensorflow.contrib import rnn\n"
    )
    path.write_text(text)
    assert migrate.main([str(path)]) == 1
    assert path.read_text() == text
    assert capsys.readouterr().out.splitlines() == [
        f"{path}:3: left: tf.contrib.tensor_forest: use the package tensorflow-decision-forests",
        f"{path}:4: left: tf.contrib.image.connected_components: use scipy.ndimage.label in tf.numpy_function",
        f"{path}:5: left: import of 'tensorflow.contrib.rpc' by a string: it has no replacement; rewrite the code "
        "that uses it",
        f"{path}:6: left: tf.estimator.Estimator: tf.estimator was removed in TensorFlow 2.16: call "
        "staging_tf1.legacy.install(only=['estimator']) before tensorflow is imported, or write the loop with "
        "tf.train.MonitoredTrainingSession",
        f"{path}:7: left: from tensorflow.contrib import rnn: give the import a line of its own, and migrate again",
        "1 file read, 1 would be changed, 1 change, 5 things left to do by hand",
    ]


def test_diff_write_and_report(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "program.py"
    shutil.copy(PROGRAMS / "replay_buffer.py", path)
    path.chmod(0o755)
    before = path.read_text()
    assert migrate.main([str(path), "--diff"]) == 0
    out = capsys.readouterr().out
    assert "-from tensorflow.contrib.staging import StagingArea\n+from staging_tf1 import StagingArea\n" not in out
    assert "+from staging_tf1 import StagingArea\n" in out
    assert path.read_text() == before
    report = tmp_path / "report.json"
    assert migrate.main([str(path), "--write", "--report", str(report)]) == 0
    assert capsys.readouterr().out == "1 file read, 1 changed, 2 changes, 0 things left to do by hand\n"
    assert "from staging_tf1 import StagingArea\n" in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o755
    said = json.loads(report.read_text())
    assert said["written"] and said["unreadable"] == []
    assert [change["line"] for change in said["files"][0]["changes"]] == [4, 5]
    assert sorted(os.listdir(tmp_path)) == ["program.py", "report.json"]


def test_a_report_that_cannot_be_written(tmp_path: Path, capsys: Capture) -> None:
    path, report = tmp_path / "program.py", tmp_path / "nowhere" / "report.json"
    path.write_text("x = 1\n")
    assert migrate.main([str(path), "--report", str(report)]) == 2
    said = f"staging-tf1 migrate: {report}: cannot be written: No such file or directory\n"
    assert capsys.readouterr().err == said


def test_encodings_and_line_ends_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "latin.py"
    path.write_bytes(b"# -*- coding: latin-1 -*-\r\nimport tensorflow as tf  # \xe9t\xe9\r\nx = tf.zeros([1])\r\n")
    assert migrate.main([str(path), "--write"]) == 0
    content = path.read_bytes()
    assert content.startswith(b"# -*- coding: latin-1 -*-\r\nimport tensorflow.compat.v1 as tf  # \xe9t\xe9\r\n")
    assert content.count(b"\n") == content.count(b"\r\n")


def test_a_read_only_file_is_named_and_the_others_are_done(tmp_path: Path, capsys: Capture, monkeypatch: Any) -> None:
    locked, other = tmp_path / "a.py", tmp_path / "b.py"
    for path in (locked, other):
        path.write_text("import tensorflow as tf\n")
    locked.chmod(0o444)
    if os.access(locked, os.W_OK):  # the superuser can write to any file
        genuine = os.access
        monkeypatch.setattr(os, "access", lambda path, mode: genuine(path, mode) and not str(path).endswith("a.py"))
    assert migrate.main([str(tmp_path), "--write"]) == 2
    assert capsys.readouterr().err == f"staging-tf1 migrate: {locked}: is read-only; nothing was written\n"
    assert locked.read_text() == "import tensorflow as tf\n"
    assert other.read_text().startswith("import tensorflow.compat.v1 as tf\n")


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, capsys: Capture, monkeypatch: Any
) -> None:
    path = tmp_path / "a.py"
    path.write_text("import tensorflow as tf\n")

    def no_space(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    assert migrate.main([str(path), "--write"]) == 2
    assert "a.py: cannot be written: No space left on device; it is unchanged" in capsys.readouterr().err
    assert path.read_text() == "import tensorflow as tf\n"
    assert os.listdir(tmp_path) == ["a.py"]


def test_python_2_is_named_and_the_others_are_done(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "a.py").write_text("import tensorflow as tf\nprint 'x'\n")
    (tmp_path / "b.py").write_text("import tensorflow as tf\n")
    assert migrate.main([str(tmp_path), "--write"]) == 2
    out, err = capsys.readouterr()
    assert "a.py:2: is Python 2 (a print statement" in err
    assert out == "1 file read, 1 changed, 1 change, 0 things left to do by hand\n"


# What the command tf_upgrade_v2 runs.
UPGRADE = "tensorflow.tools.compatibility.tf_upgrade_v2_main"


def test_beside_tf_upgrade_v2(fork_server: ForkServer, tmp_path: Path) -> None:
    """The program gives the same numbers whichever of the two tools runs first."""
    if not Path(sys.executable).with_name("tf_upgrade_v2").exists():
        pytest.skip("this TensorFlow has no tf_upgrade_v2")
    before, after = tmp_path / "before.py", tmp_path / "after.py"
    for path in (before, after):
        shutil.copy(PROGRAMS / "placeholder_feed.py", path)

    def theirs(path: Path) -> None:
        command = ["-m", UPGRADE, "--infile", path, "--outfile", path, "--reportfile", tmp_path / "report.txt"]
        ran = fork_server.run(*command, env=QUIET)
        assert ran.returncode == 0, ran.stderr

    assert migrate.main([str(before), "--write"]) == 0
    theirs(before)
    theirs(after)
    assert migrate.main([str(after), "--write"]) == 0
    assert "contrib" not in before.read_text() + after.read_text()
    printed = last_json(fork_server.run(HERE / "run_programs.py", before, after, env=QUIET))
    for text in printed.values():
        assert_same_numbers(text, goldens()["placeholder_feed"])


KERAS_TWO = """
try:
    import staging_tf1.contrib.keras_two
except ImportError as error:
    print(error)
"""


@pytest.mark.slow  # test_same_numbers_without_the_shim runs migrated programs in plain Python
def test_programs_with_keras_two_run_by_themselves_in_plain_python(run_python: Run, tmp_path: Path) -> None:
    path = tmp_path / "layers.py"
    text = (
        "import tensorflow as tf\nfrom tensorflow.layers import dense\nfrom tensorflow.contrib.rnn import LSTMCell\n"
        "cell = tf.nn.rnn_cell.MultiRNNCell([LSTMCell(3), tf.nn.rnn_cell.GRUCell(2)])\n"
        "out, _ = tf.nn.dynamic_rnn(cell, tf.zeros([1, 4, 2]), dtype=tf.float32)\n"
        "print(tf.layers.flatten(dense(out, 5)).shape, tf.keras.layers.Dense(2)(tf.zeros([1, 2])).shape)\n"
    )
    path.write_text(text)
    assert migrate.main([str(path), "--write"]) == 0
    assert path.read_text().startswith("import staging_tf1.contrib.keras_two\n")
    assert run_python(path, env=QUIET).stdout == "(1, 20) (1, 2)\n"


def test_keras_two_says_what_is_missing_or_late(run_python: Run, fork_server: ForkServer) -> None:
    version = "import keras; print(keras.__version__)"
    if fork_server.run("-c", version, env=QUIET).stdout.startswith("2."):
        pytest.skip("this TensorFlow comes with Keras 2")
    without = "import sys; sys.modules['tf_keras'] = None\nimport importlib.util as u; find = u.find_spec\n"
    without += "u.find_spec = lambda name, *rest: None if name == 'tf_keras' else find(name, *rest)\n" + KERAS_TWO
    said = fork_server.run("-c", without, env=QUIET).stdout
    assert said.startswith(
        "this program uses tf.layers, tf.nn.rnn_cell or tf.keras of TensorFlow 1, which need Keras 2"
    )
    assert said.endswith("Install Keras 2 as well: pip install tf_keras.\n")
    late = fork_server.run("-W", "always", "-c", "import tensorflow\n" + KERAS_TWO, env=QUIET)
    assert "Import it in the first line of the main program." in late.stderr
    early = KERAS_TWO + "import os; print(os.environ['TF_USE_LEGACY_KERAS'])"
    assert run_python("-W", "error", "-c", early, env=QUIET).stdout == "1\n"
