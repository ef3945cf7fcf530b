"""Removed names of other libraries under `staging-tf1 run`."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from legacy_support import PROMISES, Run, last_json

from staging_tf1.errors import RemovedNameError
from staging_tf1.legacy.shim import library_functions, old_names, package_resources
from staging_tf1.legacy.shim.origin import Origin
from staging_tf1.legacy.shim.tables import LIBRARIES

OURS = "staging_tf1.legacy.shim.library_functions:"
ENTRIES = [
    (owner, name, home)
    for table in (LIBRARIES.names, LIBRARIES.attributes, LIBRARIES.changed)
    for owner, names in table.items()
    for name, home in names.items()
]
ATTRIBUTES = """import numpy as np
x = h5py.File('x.h5', 'w').attrs
x['a'], x['b'], x['c'], x['d'], x['e'] = b'ab', 'ab', ['a', 'b'], 2.5, [1, 2]
x.create('f', ['a', 'b'], dtype=h5py.special_dtype(vlen=bytes))
"""
HOMES = sorted({home for _, _, home in ENTRIES if home[0] != "!"})


@pytest.mark.parametrize("library", ["pillow", "pandas"])
def test_the_names_do_what_they_did(library: str, legacy_run: Run) -> None:
    pytest.importorskip({"pillow": "PIL"}.get(library, library))
    fonts = Path(pytest.importorskip("matplotlib").get_data_path(), "fonts", "ttf")
    ran = legacy_run(PROMISES / "old_libraries.py", library, fonts / "DejaVuSans.ttf")
    # The output under TensorFlow 1.15.5 with Pillow 6.2.2 and pandas 0.25.3.
    assert ran.stdout == (PROMISES / f"old_libraries_{library}.txt").read_text(), ran.stderr[-2000:]
    logged = re.findall(r"^(\S+) was removed; using .* instead\.$", ran.stderr, re.MULTILINE)
    assert logged and len(logged) == len(set(logged))
    if library == "pandas":
        assert ran.stderr.count("Series.str.replace() without regex= takes a regular expression, as in pandas 1.") == 1


# Library -> what a program evaluates -> what it gives with PyYAML 5.4, h5py 2.10 and matplotlib 3.2.
BEFORE = {
    "yaml": {
        "yaml.load('a: [1, 2.5]')": "{'a': [1, 2.5]}",
        "list(yaml.load_all('1\\n---\\n2'))": "[1, 2]",
        "yaml.load('!!python/tuple [1]', yaml.Loader)": "(1,)",
        "yaml.load('a: !!python/tuple [1]')": "{'a': (1,)}",
        "yaml.load(Loader=yaml.BaseLoader, stream='a: 1')": "{'a': '1'}",
    },
    "h5py": {
        "h5py.File('y.h5', 'w').create_dataset('x', data=[1, 2]).value": "[1 2]",
        "h5py.File('z.h5', 'w').create_dataset('x', data=2.5).value": "2.5",
        "[np.array(x[name]).tolist() for name in 'abcdef']": "[b'ab', 'ab', ['a', 'b'], 2.5, [1, 2], [b'a', b'b']]",
        "x.get('a')": "b'ab'",
        "h5py.File('new.h5').mode": "r+",
        "h5py.File('in memory', driver='core', backing_store=False).mode": "r+",
        "[h5py.File('new.h5').fid.valid, h5py.File('new.h5', 'r').mode]": "[1, 'r']",
    },
    "matplotlib": {
        "figure.add_subplot('212').get_subplotspec().get_geometry()": "(2, 1, 1, 1)",
        "plt.subplot('221').get_subplotspec().get_geometry()": "(2, 2, 0, 0)",
        "plt.subplot(2, 2, 3).get_subplotspec().get_geometry()": "(2, 2, 2, 2)",
        "figure.canvas.draw() or len(figure.canvas.tostring_rgb())": "3600",
    },
}
START = {
    "yaml": "from yaml import load\nassert load('a: 1') == {'a': 1}\n",
    "h5py": ATTRIBUTES,
    "matplotlib": "matplotlib.use('Agg')\nimport matplotlib.pyplot as plt\nfigure = plt.figure(figsize=(0.4, 0.3))\n",
}


@pytest.mark.parametrize("library", BEFORE)
def test_programs_use_files_and_figures_as_before(library: str, legacy_run: Run, tmp_path: Path) -> None:
    pytest.importorskip(library)
    program = tmp_path / "program.py"
    lines = "".join(f"print({expression})\n" for expression in BEFORE[library])
    program.write_text(f"import os; os.chdir({str(tmp_path)!r})\nimport {library}\n{START[library]}{lines}")
    ran = legacy_run(program)
    assert ran.stdout.splitlines() == list(BEFORE[library].values()), ran.stderr[-2000:]


def test_libraries_see_the_installed_releases(legacy_run: Run, tmp_path: Path) -> None:
    for name in ("pandas", "PIL"):
        pytest.importorskip(name)
    library = tmp_path / "site-packages" / "a_library.py"
    library.parent.mkdir()
    library.write_text(
        "import pandas as pd\nfrom PIL import Image, ImageFont\n"
        "def sees():\n"
        "    frame, words = pd.DataFrame({'append': [1]}), pd.Series(['abc'])\n"
        "    return [\n"
        "        hasattr(pd, 'np'), hasattr(frame, 'iteritems'), hasattr(Image, 'ANTIALIAS'),\n"
        "        hasattr(ImageFont.FreeTypeFont, 'getsize'), list(frame.append),\n"
        "        words.str.replace('a.', '-').tolist()]\n"
    )
    program = tmp_path / "program.py"
    program.write_text(
        f"import sys; sys.path.insert(0, {str(library.parent)!r})\nimport a_library\nprint(a_library.sees())\n"
    )
    ran = legacy_run(program)
    assert ran.stdout == f"{[False, False, False, False, [1], ['abc']]}\n", ran.stderr[-2000:]


GONE = {
    "pd.Panel({})": "pandas.Panel was removed. Use a DataFrame with a MultiIndex, or the package xarray.",
    "pd.rolling_mean([1], 2)": "pandas.rolling_mean was removed. Use x.rolling(window).mean().",
    "frame.ix[0]": "pandas.DataFrame.ix was removed. Use x.loc[...] for labels, x.iloc[...] for positions.",
    "pd.Series([1]).ix.__setitem__(0, 3)": "pandas.Series.ix was removed. Use x.loc[...] for labels, x.iloc[...] for "
    "positions.",
    "pd.Series([1]).mad()": "pandas.Series.mad was removed. Use (x - x.mean()).abs().mean().",
    "__import__('pkg_resources').WorkingSet()": "pkg_resources.WorkingSet was removed. Releases of setuptools before "
    "82 have it: pip install 'setuptools<82'.",
}


def test_what_does_not_come_back_says_what_to_do(legacy_run: Run, tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    gone = dict(GONE)
    if importlib.util.find_spec("pkg_resources") is not None:
        gone.popitem()
    program = tmp_path / "program.py"
    tried = "".join(
        f"try: {code}\nexcept Exception as error: said.append('%s: %s' % (type(error).__name__, error))\n"
        for code in gone
    )
    program.write_text(
        f"import json\nimport pandas as pd\nframe, said = pd.DataFrame({{'a': [1]}}), []\n{tried}"
        "print(json.dumps(said))\n"
    )
    assert last_json(legacy_run(program)) == [f"RemovedNameError: {message}" for message in gone.values()]


def test_a_program_finds_its_files(legacy_run: Run, tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("one two")
    program = tmp_path / "program.py"
    program.write_text(
        "import pkg_resources\nfrom pkg_resources import parse_version\n"
        "print(pkg_resources.resource_string(__name__, 'words.txt'))\n"
        "path = pkg_resources.resource_filename('__main__', 'words.txt')\n"
        "print(path == __file__.replace('program.py', 'words.txt'))\n"
        "print(parse_version(pkg_resources.get_distribution('numpy').version) > parse_version('1.18'))\n"
    )
    assert legacy_run(program).stdout == "b'one two'\nTrue\nTrue\n"


def test_old_names_can_be_switched_off(staging_run: Run, tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    program = tmp_path / "program.py"
    program.write_text("import pandas as pd\nprint(hasattr(pd, 'np'), hasattr(pd.DataFrame, 'append'))\n")
    assert staging_run("--no-old-names", program).stdout == "False False\n"


# ---- the tables, without the libraries


def test_every_entry_has_a_home_or_advice() -> None:
    assert len(ENTRIES) > 60
    for owner, name, home in ENTRIES:
        if home.startswith("!"):
            assert re.fullmatch(r"![A-Z].*\.\S*|![A-Z].*\.", home), (owner, name, home)
        elif home.startswith(OURS):
            assert callable(value := old_names.value_at(home)) or isinstance(value, property), (owner, name)
        assert re.fullmatch(r"__\w+__|[a-zA-Z][\w.]*", name)


@pytest.mark.parametrize("home", [home for home in HOMES if not home.startswith(OURS)])
def test_every_home_exists(home: str) -> None:
    pytest.importorskip(home.partition(".")[0].partition(":")[0])
    old_names.value_at(home)


@pytest.mark.parametrize("name", sorted(LIBRARIES.modules))
def test_every_home_of_a_module_exists(name: str) -> None:
    for home in LIBRARIES.modules[name].homes:
        pytest.importorskip(home)


class Toy:
    """A class of a library, in which one method is new, one has changed and one is gone."""

    def there(self) -> str:
        return "there"

    def changed(self) -> str:
        return "new"


def changed(genuine: Any, self: Toy, *, old: bool = True) -> str:
    """Return what the changed method of `Toy` did."""
    return f"{genuine(self)}, {'old' if old else 'as it is'}"


def gone(self: Toy, number: int) -> int:
    """Return what the removed method of `Toy` did."""
    return number + 1


@pytest.mark.parametrize("sees", [True, False])
def test_attributes_of_classes(sees: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    owner = f"{__name__}:Toy"
    toy = type("Toy", (), dict(vars(Toy)))
    monkeypatch.setitem(globals(), "Toy", toy)
    origin = Origin()
    origin.admit([], [], sees)
    homes = {"there": "builtins:len", "gone": f"{__name__}:gone", "lost": "!Use there()."}
    old_names._offer_attributes(owner, homes, origin, is_changed=False)
    homes = {"changed": f"{__name__}:changed", "missing": "builtins:len"}
    for _ in range(2):  # the second time changes nothing
        old_names._offer_attributes(owner, homes, origin, is_changed=True)
    value = toy()
    assert value.there() == "there" and not hasattr(value, "missing")
    if not sees:
        assert value.changed() == "new"
        assert not hasattr(value, "gone") and not hasattr(toy, "lost")
        with pytest.raises(AttributeError, match=r"^'Toy' object has no attribute 'gone'$"):
            value.gone(1)
        return
    with caplog.at_level(logging.WARNING, "staging_tf1"):
        assert [value.gone(1), toy.gone(value, 2), value.gone(number=3)] == [2, 3, 4]
    assert caplog.messages == [f"{__name__}.Toy.gone was removed; using {__name__}.gone instead."]
    assert value.changed() == "new, old" and toy.changed(value, old=False) == "new, as it is"
    for use in (lambda: value.lost(), lambda: value.lost[0], lambda: value.lost.name):
        with pytest.raises(RemovedNameError, match=rf"^{__name__}\.Toy\.lost was removed\. Use there\(\)\.$"):
            use()


def old_sum(genuine: Any, *values: int, start: int = 0) -> int:
    """Return what the changed function of the test did."""
    return int(genuine(*values)) + start


@pytest.mark.parametrize("sees", [True, False])
def test_functions_of_modules(sees: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("a_library_with_sum")
    module.total = lambda *values: sum(values)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    origin = Origin()
    origin.admit([], [], sees)
    for _ in range(2):  # the second time changes nothing
        old_names._offer_attributes(module.__name__, {"total": f"{__name__}:old_sum"}, origin, is_changed=True)
    assert module.total(1, 2) == 3
    if sees:
        assert module.total(1, 2, start=4) == 7
        return
    with pytest.raises(TypeError):
        module.total(1, 2, start=4)


@pytest.mark.parametrize(
    ("arguments", "options", "regex"),
    [
        ((".", "-"), {}, False),
        (("a.", "-"), {}, True),
        (("a.", "-"), {"regex": False}, False),
        ((".", "-"), {"regex": True}, True),
        ((".", "-"), {"flags": re.I}, True),
        ((".", "-"), {"case": False}, True),
        ((".", str.upper), {}, True),
        ((re.compile("."), "-", 1), {}, True),
        (("", "-"), {}, False),
    ],
)
def test_when_a_pattern_is_a_regular_expression(arguments: Any, options: dict[str, Any], regex: bool) -> None:
    def genuine(*given: Any, **named: Any) -> Any:
        return given, named

    given, named = library_functions.replace(genuine, "series", *arguments, **options)
    assert given == ("series", *arguments[:2])
    assert named["regex"] is regex and named["n"] == (arguments[2] if len(arguments) > 2 else -1)


def test_files_and_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "a_package_with_files"
    (package / "data").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "data" / "words.txt").write_bytes(b"one\r\n")
    monkeypatch.syspath_prepend(tmp_path)
    name = package.name
    try:
        assert package_resources.resource_filename(name, "data/words.txt") == str(package / "data" / "words.txt")
        assert package_resources.resource_string(name, "data/words.txt") == b"one\r\n"
        with package_resources.resource_stream(name, "data/words.txt") as file:
            assert file.read(3) == b"one"
        assert package_resources.resource_exists(name, "data") and not package_resources.resource_exists(name, "no")
        assert package_resources.resource_isdir(name, "data")
        assert not package_resources.resource_isdir(name, "__init__.py")
        assert package_resources.resource_listdir(name, "data") == ["words.txt"]
        package_resources.declare_namespace(name)
        assert list(sys.modules[name].__path__) == [str(package)]
    finally:
        sys.modules.pop(name, None)
    found = package_resources.get_distribution("numpy>=1")
    assert found.version == importlib.import_module("numpy").__version__ and found.key == "numpy"
    assert os.path.isdir(os.path.join(found.location, "numpy"))
    assert [str(each) for each in package_resources.require("numpy")] == [f"numpy {found.version}"]
    assert package_resources.parse_version("1.15.5") > package_resources.parse_version("1.4")
    assert "pytest" in {point.name for point in package_resources.iter_entry_points("console_scripts")}
    assert [point.name for point in package_resources.iter_entry_points("console_scripts", "pytest")] == ["pytest"]
    with pytest.raises(package_resources.DistributionNotFound, match="'no-such-package' distribution was not found"):
        package_resources.get_distribution("no-such-package")
    with pytest.raises(package_resources.VersionConflict, match=r"^numpy \S+ is installed but numpy<1 is required$"):
        package_resources.require("numpy<1")


def test_arguments_by_position_and_data_of_images() -> None:
    def mel(*, sr: int, n_fft: int, n_mels: int = 128) -> tuple[int, int, int]:
        return sr, n_fft, n_mels

    assert library_functions.with_positions(mel, 22050, 2048) == (22050, 2048, 128)
    assert library_functions.with_positions(mel, 22050, n_fft=2048, n_mels=80) == (22050, 2048, 80)
    image = SimpleNamespace(dataobj=np.array([1, 2], np.int16))
    assert library_functions.get_data(None, image).dtype == np.int16
