"""``import keras`` under `staging-tf1 run`: Keras 2.2.5 for the program, the installed Keras for libraries."""

from __future__ import annotations

from pathlib import Path

import pytest
from legacy_support import HERE, PROGRAMS, PROMISES, Run, assert_same_numbers, goldens, last_json


@pytest.fixture(scope="module")
def under_run(legacy_run: Run, with_contrib: None) -> dict[str, str]:
    paths = [PROGRAMS / "keras_io" / f"{name}.py" for name in goldens("keras_io")]
    printed: dict[str, str] = last_json(legacy_run(HERE / "run_programs.py", *paths))
    return printed


@pytest.mark.parametrize("name", sorted(goldens("keras_io")))
def test_keras_computes_as_under_1_15(under_run: dict[str, str], name: str) -> None:
    assert_same_numbers(under_run[name], goldens("keras_io")[name])


def test_there_is_a_golden_for_every_program() -> None:
    assert sorted(goldens("keras_io")) == sorted(path.stem for path in (PROGRAMS / "keras_io").glob("*.py"))


def test_a_program_for_keras_2(with_contrib: None, legacy_run: Run) -> None:
    # The output of Keras 2.2.4 on TensorFlow 1.15.5.
    assert last_json(legacy_run(PROMISES / "old_keras.py")) == {
        "losses": pytest.approx([1.3624, 1.4957, 1.226], abs=2e-4),
        "of another Keras": [False, False, 2],
        "one object": [True] * 10,
        "padded": [[0, 1, 2], [0, 0, 3]],
        "pictures": [22.74, -76.93, 45.87],
        "training": pytest.approx([1.3624, 1.4958, 1.2216, 1.1329, 1.2065, 0.9406], abs=2e-4),
    }


# keras.layers and keras.backend of 2.1.0 to 2.2.4 had the names of their modules.
OLDER = """
import json
import tensorflow as tf
from keras import backend as K
from keras.applications.imagenet_utils import _obtain_input_shape
from keras.layers import Deconv2D, K as same, Wrapper
loop = [tf.constant(0), K.constant(1.5)]
i, s = K.control_flow_ops.while_loop(lambda i, s: i < 3, lambda i, s: (i + 1, s * 2.0), loop)
# The sizes of its result are tensors.
how = {"padding": "same", "data_format": "channels_first", "dilation_rate": (2, 2)}
spread = K.conv2d_transpose(K.ones((2, 3, 5, 6)), K.ones((3, 3, 2, 3)), (2, 2, 5, 6), **how)
print(json.dumps([
    K.get_session().run(s).item(), K.tf is tf, same is K, K.image_dim_ordering(), callable(K.ctc.ctc_loss),
    callable(K.moving_averages.assign_moving_average), callable(K.tensor_array_ops.TensorArray),
    _obtain_input_shape((40, 40, 3), 224, 32, "channels_last", True),
    K.get_session().run(K.sum(spread)).item(),
]))
"""


def test_names_that_keras_2_1_and_2_2_had_and_a_dilated_deconvolution(
    with_contrib: None, legacy_run: Run, tmp_path: Path
) -> None:
    program = tmp_path / "program.py"
    program.write_text(OLDER)
    assert last_json(legacy_run(program)) == [12.0, True, True, "tf", True, True, True, [40, 40, 3], 1848.0]


LIBRARY = """
import keras
from keras.layers import Dense
def sees():
    return [keras.__version__[0], Dense is keras.layers.Dense, hasattr(keras, "engine"), hasattr(keras, "ops")]
"""
PROGRAM = """
import json, sys
sys.path.insert(0, {folder!r})
{first}
from keras.engine.topology import Layer
import a_library
import keras
import keras.losses
import tensorflow as tf
def mine(y_true, y_pred):
    return y_pred
keras.losses.mine = mine
print(json.dumps([
    a_library.sees(), keras.__version__, issubclass(keras.layers.Dense, Layer), keras.layers.Dense.__module__,
    hasattr(keras, "ops"), keras.losses.get("mine") is mine, tf.keras.layers.Dense is keras.layers.Dense,
]))
"""


@pytest.mark.parametrize("first", ["", "import a_library"], ids=["program first", "library first"])
def test_a_library_and_the_program_each_have_their_keras(
    first: str, with_contrib: None, legacy_run: Run, tmp_path: Path
) -> None:
    if (version := pytest.importorskip("keras").__version__) < "2.3":
        pytest.skip("the installed Keras is for both")
    library = tmp_path / "site-packages" / "a_library.py"
    library.parent.mkdir()
    library.write_text(LIBRARY)
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(folder=str(library.parent), first=first))
    sees = [version[0], True, False, version[0] == "3"]
    assert last_json(legacy_run(program)) == [sees, "2.2.5", True, "keras.layers.core", False, True, False]


@pytest.mark.parametrize(
    ("folder", "version", "wins"),
    [("site-packages", "2.2.4", True), ("site-packages", "2.3.1", False), ("own", "2.3.1", True)],
)
def test_an_older_keras_that_is_installed_wins(
    folder: str, version: str, wins: bool, with_contrib: None, legacy_run: Run, tmp_path: Path
) -> None:
    package = tmp_path / folder / "keras"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(f"from . import backend\n\n__version__ = '{version}'\n")
    (package / "backend.py").write_text("import tensorflow as tf\nplaceholder = getattr(tf, 'placeholder', None)\n")
    program = tmp_path / "program.py"
    program.write_text(
        f"import sys; sys.path.insert(0, {str(package.parent)!r})\nimport keras, keras.backend as K\n"
        "print(keras.__version__, callable(K.placeholder), hasattr(keras, 'layers'))\n"
    )
    ran = legacy_run(program)
    assert ran.stdout == (f"{version} True False\n" if wins else "2.2.5 True True\n"), ran.stderr[-2000:]


@pytest.mark.parametrize("first", ["", "import a_library; "], ids=["program first", "library first"])
def test_keras_that_is_not_fetched_says_so(first: str, legacy_run: Run, tmp_path: Path) -> None:
    library = tmp_path / "site-packages" / "a_library.py"
    library.parent.mkdir()
    library.write_text("import keras\n")
    program = tmp_path / "program.py"
    program.write_text(
        f"import sys; sys.path.insert(0, {str(library.parent)!r})\n{first}from keras.layers import Dense\n"
    )
    ran = legacy_run(program, env={"STAGING_TF1_CACHE": str(tmp_path / "empty")})
    assert ran.returncode == 1
    name = "keras.layers" if first else "keras"
    assert ran.stderr.splitlines()[-1] == (
        f"staging_tf1.errors.RemovedModuleError: {name} of a TensorFlow 1 program is Keras 2.2.5, which is not fetched."
        " Fetch it (once, with tf.contrib): staging-tf1 contrib fetch. The program itself needs no change. For the "
        "installed Keras set TF_USE_LEGACY_KERAS=0."
    )


def test_a_program_that_chose_keras_three_has_it(legacy_run: Run, tmp_path: Path) -> None:
    if pytest.importorskip("keras").__version__ < "3":
        pytest.skip("Keras 3 is not installed")
    program = tmp_path / "program.py"
    program.write_text(
        "import os\nos.environ['TF_USE_LEGACY_KERAS'] = '0'\n"
        "import keras, keras.ops\nprint(keras.__version__[0], hasattr(keras, 'ops'))\n"
    )
    ran = legacy_run(program)
    assert ran.stdout == "3 True\n", ran.stderr[-2000:]
