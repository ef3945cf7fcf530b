"""Names below TensorFlow's public API under `staging-tf1 run`, and the seeds of random ops."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
from legacy_support import HERE, PROMISES, Run, last_json
from private_names import resolves, used_in

from staging_tf1.legacy.shim.tables import SCIPY, TENSORFLOW


def test_names_that_programs_use_are_found_or_have_advice(legacy_run: Run) -> None:
    ran = legacy_run(PROMISES / "private_names.py", HERE / "private_names.txt")
    found = last_json(ran)
    assert len(found) > 30
    assert not [name for name, how in found.items() if how.startswith("missing")]
    advised = {name.rpartition(".")[0] for name, how in found.items() if how.startswith("advice")}
    # In every version of TensorFlow.
    assert {name.rpartition(".")[2] for name in advised} <= {
        "all_reduce",
        "common_shapes",
        "conv_utils",
        "deprecation_wrapper",
        "profiler",
        "pywrap_tensorflow",
        "threadpool",
        "utils",
    }
    assert all(" was removed in TensorFlow 2. " in how for how in found.values() if how.startswith("advice"))


def test_every_public_name_of_tensorflow_1_is_found_or_has_advice(legacy_run: Run) -> None:
    for package in ("tensorflow_estimator", "tf_keras"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    # What public_names.py printed under TensorFlow 1.15.5.
    found = last_json(legacy_run(PROMISES / "public_names.py", HERE / "public_names.txt"))
    assert found["asked"] > 6000
    others = found["others"]
    assert not [name for name, how in others.items() if how.startswith("missing")]
    # What the releases of TensorFlow lack differs.
    assert len(others) < 120
    for name, how in others.items():
        assert re.search(r" was removed[^.]*\. \S.*\.", how), (name, how)


def test_every_home_in_the_tables_exists() -> None:
    tables = [*TENSORFLOW.names.values(), *TENSORFLOW.attributes.values(), *SCIPY.names.values()]
    homes = {home.lstrip("=") for names in tables for home in names.values() if home[0] != "!"}
    modules = [*SCIPY.modules.values(), *TENSORFLOW.modules.values()]
    homes |= {home for gone in modules for home in gone.homes}
    homes.remove("tensorflow_gan")  # not a part of TensorFlow
    needs_keras_two = {home for home in homes if ":layers." in home or ":keras" in home or ":nn." in home}
    for home in sorted(homes - needs_keras_two):
        assert resolves(home.replace(":", ".")), home


def test_objects_are_of_the_class_that_tf_names(legacy_run: Run) -> None:
    found = last_json(legacy_run(PROMISES / "classes.py"))
    assert found["asked"] >= 10 and found["wrong"] == []


def test_tensors_of_an_eager_program_are_tensors(legacy_run: Run) -> None:
    assert last_json(legacy_run(PROMISES / "classes.py", "eager")) == {"isinstance": True, "graph": True}


def test_a_graph_seed_gives_the_numbers_of_tensorflow_1(legacy_run: Run) -> None:
    # Printed by TensorFlow 1.15.5.
    assert legacy_run(PROMISES / "graph_seed.py").stdout.splitlines() == [
        "-0.1386 -0.2479 -0.2218 0.9157 [3, 5, 2, 2, 4]",
        "-0.2604 -0.4090 0.1827 0.8775 [4, 1, 3, 4, 2]",
        "0.0404 0.0408 -0.0052",
        "-0.4373 -0.8569",
        "[3, 6, 1, 4, 0, 5, 8, 9, 7, 2]",
        "[0, 1, 5, 3, 9, 4, 6, 2, 8, 7]",
        "-0.3665 4.0000 3.6571 0.0000 3.9061 4.0000 -0.0735 0.0000 -4.9031 0.0000 3.7243 0.0000 1.8347 0.0000 -2.5723 "
        "0.0000 -0.1120",
        "-14.9485 (2, 5, 3) 119.1788 (2, 9, 9, 3) -3.1578 (2, 2) -2.1207 (2, 2) -0.2241 (2, 4)",
    ]


@pytest.mark.matrix  # the legacy programs have goldens of layers
def test_keras_computes_what_tensorflow_1_computes(legacy_run: Run) -> None:
    pytest.importorskip("tf_keras")
    # Printed by TensorFlow 1.15.5. Its recurrent_v2 has the classes for eager execution, whose activations are others.
    printed = legacy_run(PROMISES / "keras_numbers.py").stdout.splitlines()
    # The decay of Keras' Adam reads the number of its steps before or after it is increased, in TensorFlow 1, too.
    assert float(printed[14]) == pytest.approx(4.1196, rel=2e-3)
    printed[14] = "4.1196"
    assert printed == [
        *["0.7649 0.3737"] * 7,
        "0.7617 0.3579",
        *["-0.0335 -0.5393"] * 3,
        *["2.5477", "2.5477", "4.3569", "4.1196", "2.5553", "4.3569"],
        "2.2355 1.6119",
        "4.3585 1.9506",
    ]


def test_images_are_augmented_as_in_tensorflow_1(legacy_run: Run) -> None:
    for package in ("tf_keras", "scipy", "PIL"):
        pytest.importorskip(package)
    # Printed by TensorFlow 1.15.5 with Keras-Preprocessing 1.1.2: a mean and two values of each.
    assert legacy_run(PROMISES / "keras_images.py").stdout.splitlines() == [
        "78.008 136.434 106.110",
        "79.178 130.348 75.827",
        "60.058 224.004 65.298",
        "80.970 120.067 81.035",
        "74.235 94.634 -13.176",
        "167.692 137.000 229.000",
        "78.564 116.208 53.673",
        "78.008 123.084 -51.921",
        "92.819 157.476 73.044",
        "84.075 199.091 145.228",
    ]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (
            "from tensorflow.python.framework import ops\nops.Tensor.shape",
            {"tensorflow.python.framework.ops", "tensorflow.python.framework.ops.Tensor"},
        ),
        (
            "import tensorflow.python.ops.variables as v\nv.VariableV1(1)",
            {"tensorflow.python.ops.variables", "tensorflow.python.ops.variables.VariableV1"},
        ),
        ("import tensorflow as tf\ntf.python.ops.x, tf.zeros", {"tensorflow.python.ops.x"}),
        ("from . import ops\nfrom tensorflow.train import Saver\nops.Tensor", set()),
    ],
)
def test_the_comparison_finds_imports_and_attributes(text: str, names: set[str]) -> None:
    assert used_in(text) - {"tensorflow.python.ops"} == names


def test_the_comparison_lists_what_programs_use_and_this_tensorflow_lacks(
    tmp_path: Path, run_python: Run, legacy_run: Run
) -> None:
    (tmp_path / "train.py").write_text(
        "import tensorflow as tf\nfrom tensorflow.python.ops import variables\n"
        "tf.to_float, tf.nn.no_such_name, variables.VariableV1, variables.no_such_name"
    )
    used = run_python(HERE / "private_names.py", "collect-all", tmp_path)
    assert "tensorflow.nn.no_such_name" in used.stdout and "tensorflow.to_float" in used.stdout
    missing = legacy_run(HERE / "private_names.py", "missing", input=used.stdout)
    assert missing.stdout.split() == [
        "tensorflow.nn.no_such_name",
        "tensorflow.python.ops.variables.no_such_name",
    ], missing.stderr
