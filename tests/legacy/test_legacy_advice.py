"""What `staging-tf1 run` says below the traceback of a program that ends with an error that old programs meet."""

from __future__ import annotations

import importlib.util
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from legacy_support import Run

NUMPY_TWO = int(np.__version__.partition(".")[0]) >= 2
WIDER = "In numpy 2, np.sqrt(2.0) times a float32 array is float64, and np.int64(2) times an int32 array int64"
ONE_ELEMENT = "numpy 2 converts no array with one element to a number"
CURE = (
    ". numpy 1 does as the program expects: pip install 'numpy<2'"
    if sys.version_info < (3, 13)
    else ". Convert the value, or use Python 3.12 with numpy 1, which does as the program expects."
)
START = "import numpy as np\nimport tensorflow as tf\n"


def _converts_one_element() -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            np.zeros(2)[0] = np.ones(1)
        except ValueError:
            return False
    return True


def advice(ran: object) -> list[str]:
    lines: list[str] = ran.stderr.splitlines()  # type: ignore[attr-defined]
    return [line for line in lines if line.startswith("staging-tf1 run: ")]


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        # The initialization of Xavier, as in gated-graph-neural-network-samples.
        (
            "w = tf.Variable(np.sqrt(6.0 / 7) * np.ones((3, 4), np.float32))\n"
            "tf.matmul(tf.placeholder(tf.float32, [None, 3]), w)",
            WIDER,
        ),
        # NiftyNet's sampler.
        (
            "out = tf.py_func(lambda: np.ones(2, np.int32) * np.arange(9)[5], [], tf.int32)\n"
            "with tf.Session() as sess: sess.run(out)",
            WIDER,
        ),
        # The buffers of Spinning Up.
        (
            "x = np.zeros(2, np.float32)\nwith tf.Session() as sess: x[0] = sess.run(tf.constant([1.5]))",
            ONE_ELEMENT,
        ),
        ("float(np.ones((1, 1)))", ONE_ELEMENT),
        # Not numpy's.
        ("tf.matmul(tf.placeholder(tf.float64, [1, 1]), tf.placeholder(tf.float32, [1, 1]))", ""),
        ("raise TypeError('float64 and float32')", ""),
    ],
)
def test_an_error_that_comes_from_numpy_two_names_it(code: str, cause: str, legacy_run: Run, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(f"{START}{code}\n")
    ran = legacy_run(program)
    if (cause == WIDER and not NUMPY_TWO) or (cause == ONE_ELEMENT and _converts_one_element()):
        assert ran.returncode == 0 and advice(ran) == []
        return
    assert ran.returncode == 1
    assert advice(ran) == ([f"staging-tf1 run: {cause}{CURE}"] if cause else [])


@pytest.mark.parametrize("in_thread", [False, True])
def test_an_assertion_of_the_version_names_the_option(in_thread: bool, legacy_run: Run, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    check = "def check():\n    assert (tf.__version__ <\n        '2')\n"
    call = "import threading; threading.Thread(target=check).start()" if in_thread else "check()"
    program.write_text(f"{START}{check}{call}\n")
    assert advice(legacy_run(program)) == [
        f"staging-tf1 run: {program}:4 compares versions. Let it see 1.15.5: staging-tf1 run --claim-version"
    ]


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (
            "assert tf.__version__ < '2'",
            "{file}:2 compares versions. Let it see 1.15.5: staging-tf1 run --package a_library --claim-version",
        ),
        ("import pkg_resources", "The package a_library needs pkg_resources, {lend}"),
        ("tf.placeholder", "The package a_library needs tensorflow.placeholder, {lend}"),
        ("import tensorflow.contrib.layers", "The package a_library needs tensorflow.contrib, {lend}"),
        ("import inspect; inspect.getargspec", "The package a_library needs inspect.getargspec, {lend}"),
        ("import collections; collections.no_such_name", ""),
    ],
)
def test_a_library_that_sees_the_installed_releases_names_the_option(
    code: str, text: str, legacy_run: Run, tmp_path: Path
) -> None:
    if "pkg_resources" in code and importlib.util.find_spec("pkg_resources") is not None:
        pytest.skip("pkg_resources is installed")
    if "getargspec" in code and sys.version_info < (3, 11):
        pytest.skip("Python has inspect.getargspec")
    library = tmp_path / "site-packages" / "a_library.py"
    library.parent.mkdir()
    library.write_text(f"import tensorflow as tf\n{code}\n")
    program = tmp_path / "program.py"
    program.write_text(f"import sys; sys.path.insert(0, {str(library.parent)!r})\nimport a_library\n")
    ran = legacy_run(program)
    assert ran.returncode == 1
    lend = "which was removed. Let it see what the program sees: staging-tf1 run --package a_library"
    assert advice(ran) == ([f"staging-tf1 run: {text.format(file=library, lend=lend)}"] if text else [])


LIBRARIES = {
    "librosa": "def mel(*, sr): pass\n",
    "nibabel": (
        "class ExpiredDeprecationError(RuntimeError): pass\n"
        "class Image:\n    def get_data(self): raise ExpiredDeprecationError()\n"
    ),
    "sklearn": "",
    "sklearn/datasets": "",
}


@pytest.mark.parametrize(
    ("code", "release"),
    [
        ("librosa.mel(16000)", "librosa 0.9 is the last release that takes these arguments by position"),
        ("librosa.output.write_wav('x', [], 1)", "librosa 0.7 is the last release that has it"),
        ("nibabel.Image().get_data()", "nibabel 4 is the last release that has it: pip install 'nibabel<5'"),
        ("sklearn.datasets.load_boston()", "scikit-learn 1.1 is the last release that has it"),
        ("import sklearn.cross_validation as c; c.Bootstrap()", "scikit-learn 0.19 is the last release that has it"),
    ],
)
def test_a_library_that_is_too_new_names_its_last_release(
    code: str, release: str, legacy_run: Run, tmp_path: Path
) -> None:
    for name, text in LIBRARIES.items():
        (tmp_path / "site-packages" / name).mkdir(parents=True)
        (tmp_path / "site-packages" / name / "__init__.py").write_text(text)
    (tmp_path / "site-packages" / "sklearn" / "model_selection.py").write_text("")
    program = tmp_path / "program.py"
    program.write_text(
        f"import sys; sys.path.insert(0, {str(tmp_path / 'site-packages')!r})\n"
        f"import librosa, nibabel, sklearn.datasets\n{code}\n"
    )
    ran = legacy_run(program)
    assert ran.returncode == 1
    assert release in ran.stderr.splitlines()[-1]
