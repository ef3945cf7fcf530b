"""numpy under `staging-tf1 run`: user code sees the names, methods and output of numpy 1.18."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import numpy as np
import pytest
from legacy_support import PROMISES, Run

from staging_tf1.legacy import source_files
from staging_tf1.legacy.codemod import migration
from staging_tf1.legacy.codemod.changes import Changes
from staging_tf1.legacy.shim import numpy_functions, old_names
from staging_tf1.legacy.shim.old_names import value_at
from staging_tf1.legacy.shim.origin import Origin
from staging_tf1.legacy.shim.tables import NUMPY

HAS_TOSTRING = hasattr(np.ndarray, "tostring")
PRINTS_TYPES = repr(np.float32(2.5)) != "2.5"


def test_the_program_prints_what_it_printed_under_tensorflow_1(legacy_run: Run) -> None:
    ran = legacy_run(PROMISES / "numpy_printing.py")
    # The output under TensorFlow 1.15.5 with numpy 1.18.5.
    assert ran.stdout == (PROMISES / "numpy_printing.txt").read_text(), ran.stderr[-2000:]
    if not HAS_TOSTRING:
        assert ran.stderr.count("numpy.ndarray.tostring was removed; using numpy.ndarray.tobytes instead.") == 1


@pytest.mark.parametrize("option", ["--old-names-are-on", "--no-old-names"])
def test_libraries_see_the_installed_numpy(staging_run: Run, tmp_path: Path, option: str) -> None:
    library = tmp_path / "site-packages" / "a_library.py"
    library.parent.mkdir()
    library.write_text(
        "import numpy as np\n"
        "def sees(array):\n"
        "    try:\n        np.fromstring(b'ab', np.uint8)\n        binary = True\n"
        "    except ValueError:\n        binary = False\n"
        "    return [hasattr(array, 'tostring'), hasattr(array[0], 'tostring'), binary]\n"
    )
    program = tmp_path / "program.py"
    program.write_text(
        "import warnings; warnings.simplefilter('ignore')\n"
        "import numpy as np, a_library\narray = np.zeros(2, np.float32)\n"
        "print(a_library.sees(array), hasattr(array, 'tostring'), [array[0]])\n"
    )
    paths = os.pathsep.join([str(library.parent), os.environ.get("PYTHONPATH", "")])
    options = [option] if option == "--no-old-names" else []
    with_old_names = not options
    printed = staging_run(*options, program, env={"PYTHONPATH": paths}).stdout
    number = "np.float32(0.0)" if PRINTS_TYPES and not with_old_names else "0.0"
    assert printed == f"{[HAS_TOSTRING] * 3} {HAS_TOSTRING or with_old_names} [{number}]\n"


@pytest.mark.parametrize("words", [-1, 1])
def test_no_type_is_written_to_whose_layout_is_unknown(
    words: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(old_names, "_FLAGS_OFFSET", (21 + words) * ctypes.sizeof(ctypes.c_void_p))
    flags = np.ndarray.__flags__
    old_names._offer_attributes("numpy:ndarray", {"to_text": "numpy:ndarray.tobytes"}, Origin(), is_changed=False)
    assert not hasattr(np.ndarray, "to_text") and np.ndarray.__flags__ == flags
    assert caplog.messages == [
        "numpy.ndarray.to_text cannot be restored in this version of Python. Use numpy.ndarray.tobytes."
    ]


def test_every_home_of_a_removed_name_exists() -> None:
    for name, home in NUMPY.names["numpy"].items():
        if name not in dir(np):
            value_at(home)
    for name, home in NUMPY.names["numpy.lib"].items():
        assert value_at(home) is getattr(np, name)


def test_functions_refuse_what_makes_no_sense() -> None:
    with pytest.raises(ValueError):
        numpy_functions.asscalar(np.zeros(2))
    assert numpy_functions.obj2sctype("no such type", default=3) == 3
    assert numpy_functions.find_common_type([], []) is None
    assert not numpy_functions.issubclass_(3, int)
    assert numpy_functions.maximum_sctype(np.str_) is np.str_


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("x.tostring()", "x.tobytes()"),
        ("f(a)[0].tostring(order='C')", "f(a)[0].tobytes(order='C')"),
        ("ET.tostring(x)", "ET.tostring(x)"),
        ("xml.etree.ElementTree.tostring()", "xml.etree.ElementTree.tostring()"),
        ("x.tostring(1, 2)", "x.tostring(1, 2)"),
        ("np.fromstring(x, np.uint8)", "np.frombuffer(x, np.uint8).copy()"),
        ("np.fromstring(string=x, dtype=float)", "np.frombuffer(buffer=x, dtype=float).copy()"),
        ("np.fromstring(x, sep=',')", "np.fromstring(x, sep=',')"),
        ("np.array(x, dtype=float, copy=False)", "np.asarray(x, dtype=float)"),
        ("np.array(x, copy=False, dtype=float)", "np.asarray(x, dtype=float)"),
        ("np.array((x),  # a, b\n    copy=False,\n)", "np.asarray((x),\n)"),
        ("np.array(np.array(x, copy=False), copy=False)", "np.asarray(np.asarray(x))"),
        ("np.array(x, copy=False, ndmin=2)", "np.array(x, copy=False, ndmin=2)"),
        ("np.array(x, copy=True)", "np.array(x, copy=True)"),
        ("np.string_(x), np.infty, np.lib.pad(x, 1)", "np.bytes_(x), np.inf, np.pad(x, 1)"),
        ("np.AxisError", "np.exceptions.AxisError"),
        ("f'é {np.infty} {np.infty!r:>{np.int(3)}} np.infty'", "f'é {np.inf} {np.inf!r:>{int(3)}} np.infty'"),
    ],
)
def test_migrate_writes_what_works_with_any_numpy(old: str, new: str, tmp_path: Path) -> None:
    imports = "import numpy as np\nimport xml.etree.ElementTree as ET\nimport xml.etree.ElementTree\n"
    assert _migrated(imports + old + "\n", tmp_path).after == imports + new + "\n"


def test_migrate_leaves_an_own_tostring_and_lists_what_has_no_equivalent(tmp_path: Path) -> None:
    own = "class A:\n    def tostring(self):\n        return ''\n\n\nA().tostring()\n"
    assert _migrated(own, tmp_path).after == own
    changes = _migrated("import numpy as np\nnp.asscalar(x)\nnp.sctypes['float']\n", tmp_path)
    assert [(note.line, note.text, note.advice) for note in changes.left] == [
        (2, "np.asscalar", "use a.item()"),
        (3, "np.sctypes", "list the types, such as np.float32"),
    ]
    assert {name.removeprefix("numpy.") for name in NUMPY.advice} == {
        name for name, home in NUMPY.names["numpy"].items() if not home.startswith(("builtins:", "numpy:", "numpy."))
    }


def _migrated(text: str, tmp_path: Path) -> Changes:
    path = tmp_path / "program.py"
    path.write_text(text)
    return migration.migrate(source_files.read(str(path)))
