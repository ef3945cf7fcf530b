"""The project as its maintainers handle it: versions agree, and the wheel contains and runs the whole package."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
from forked import ForkServer
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from processes import RunPython

import staging_tf1 as staging

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "staging_tf1"
# What setuptools needs to build the package.
_BUILT_FROM = ("pyproject.toml", "setup.py", "README.md", "LICENSE")
_BUILD = "import sys; from setuptools import build_meta; print(getattr(build_meta, sys.argv[1])(sys.argv[2]))"
# Prints which copy it runs. The installed one comes before the one that the tests import, and that a fork forgets.
_RUN_INSTALLED = """
import runpy, sys
for name in [name for name in sys.modules if name.startswith("staging_tf1")]:
    del sys.modules[name]
sys.path.insert(0, sys.argv.pop(1))
import staging_tf1
print(staging_tf1.__file__)
runpy.run_module("staging_tf1", run_name="__main__", alter_sys=True)
"""


def test_the_versions_agree() -> None:
    patterns = {
        "pyproject.toml": r'^version = "(.+)"$',
        "staging_tf1/__init__.py": r'^__version__ = "(.+)"$',
        "CITATION.cff": r"^version: (.+)$",
    }
    found = {
        file: re.findall(pattern, (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)
        for file, pattern in patterns.items()
    }
    assert found == {file: [staging.__version__] for file in patterns}


def test_the_hosted_checks_run_on_the_pairs_of_nox() -> None:
    tree = ast.parse((ROOT / "noxfile.py").read_text(encoding="utf-8"))
    values = [node.value for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets) == "PAIRS"]
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    pairs = re.findall(r'python: "([\d.]+)", tensorflow: "([\d.]+)"', workflow)
    assert [ast.literal_eval(value) for value in values] == [pairs]
    assert "- run: .ci/run" in workflow and "TENSORFLOW: ${{ matrix.tensorflow }}" in workflow
    assert "tensorflow==$TENSORFLOW.*" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


PYTHONS = ("3.10", "3.11", "3.12", "3.13")


def _pins(python: str, text: str) -> dict[str, list[str]]:
    """What pip reads from constraints.txt with this Python: the releases of each package."""
    pins: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            requirement = Requirement(line)
            assert re.fullmatch(r"==[\w.]+", str(requirement.specifier)), line
            if requirement.marker is None or requirement.marker.evaluate({"python_version": python}):
                pins.setdefault(canonicalize_name(requirement.name), []).append(str(requirement.specifier)[2:])
    return pins


def _requirements() -> list[Requirement]:
    """What the package and the extras `test` and `site` require. Python 3.10 cannot read TOML."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    found = [
        re.search(rf"^{name} = (\[.*?\]$)", text, re.MULTILINE | re.DOTALL) for name in ("dependencies", "test", "site")
    ]
    return [Requirement(line) for each in found if each for line in ast.literal_eval(each[1])]


@pytest.mark.parametrize("python", PYTHONS)
def test_a_tested_release_of_every_requirement_is_in_the_constraints(python: str) -> None:
    pins = _pins(python, (ROOT / "constraints.txt").read_text(encoding="utf-8"))
    assert {name: releases for name, releases in pins.items() if len(releases) > 1} == {}
    requirements = _requirements()
    assert {"tensorflow", "pytest", "sphinx"} <= {each.name for each in requirements}
    for each in requirements:
        if each.marker is None or each.marker.evaluate({"python_version": python}):
            (release,) = pins[canonicalize_name(each.name)]
            assert each.specifier.contains(release), f"{each} in pyproject.toml, {release} in constraints.txt"


def test_the_constraints_leave_tensorflow_to_those_who_choose_it() -> None:
    """The part that .ci/run and nox drop has what differs between versions of TensorFlow, and no other requirement."""
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    common, line, own = text.partition("\n# TensorFlow")
    assert line and text.startswith("# Tested releases")
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "sed '/^# TensorFlow/,$d'" in script
    assert {"tensorflow", "numpy", "keras", "protobuf", "ml-dtypes", "tf-keras"} <= set(
        _pins("3.12", own.partition("\n")[2])
    )
    assert {"pytest", "scipy", "pandas", "cloudpickle", "setuptools"} <= set(_pins("3.12", common))
    tree = ast.parse((ROOT / "noxfile.py").read_text(encoding="utf-8"))
    (function,) = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "tested_releases"]
    namespace: dict[str, Any] = {"Path": Path, "__file__": str(ROOT / "noxfile.py")}
    exec(compile(ast.Module([function], []), "noxfile.py", "exec"), namespace)
    (newest,) = _pins("3.12", text)["tensorflow"]
    assert namespace["tested_releases"](newest.rpartition(".")[0]) == text
    assert namespace["tested_releases"]("2.15") == f"{common}\ntensorflow==2.15.*\n"


def test_only_the_weekly_checks_take_the_newest_releases() -> None:
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    assert re.search(r'^  schedule:\n    - cron: "\d+ \d+ \* \* \d"$', workflow, re.MULTILINE)
    assert "NEWEST: ${{ github.event_name == 'schedule' && '1' || '' }}" in workflow
    assert 'if [[ -z "${NEWEST:-}" ]]; then cp constraints.txt "$constraints"' in (ROOT / ".ci" / "run").read_text()
    assert "pip install -c constraints.txt" in (ROOT / "Makefile").read_text(encoding="utf-8")


def _built(kind: str, folder: Path, target: Path) -> Path:
    done = subprocess.run(
        [sys.executable, "-c", _BUILD, kind, target], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return target / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel, built from the source distribution as `python -m build` does, but in this environment."""
    folder = tmp_path_factory.mktemp("build")
    shutil.copytree(PACKAGE, folder / "checkout" / "staging_tf1", ignore=shutil.ignore_patterns("__pycache__"))
    for name in _BUILT_FROM:
        shutil.copyfile(ROOT / name, folder / "checkout" / name)
    archive = _built("build_sdist", folder / "checkout", folder)
    with tarfile.open(archive) as opened:
        opened.extractall(folder / "unpacked", **({"filter": "data"} if sys.version_info >= (3, 12) else {}))
    return _built("build_wheel", next((folder / "unpacked").iterdir()), folder)


def test_the_wheel_has_every_file_of_the_package(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    files = [path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    expected = {path.relative_to(ROOT).as_posix() for path in files}
    assert {name for name in names if ".dist-info/" not in name} == expected
    licenses = {name.partition("/licenses/")[2] for name in names if "/licenses/" in name}
    assert licenses == {"LICENSE", "staging_tf1/data/LICENSE-digits.md"}


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory, run_python: RunPython) -> Path:
    """A folder with the wheel, installed."""
    folder = tmp_path_factory.mktemp("installed")
    pip = run_python("-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", folder, wheel)
    assert pip.returncode == 0, pip.stderr
    return folder


# A new process, where the default run uses a fork of one that has forgotten the package.
@pytest.mark.slow_cases("new")
@pytest.mark.parametrize("process", ["fork", "new"])
def test_an_installed_wheel_trains(
    installed: Path, run_python: RunPython, fork_server: ForkServer, process: str
) -> None:
    run = fork_server.run if process == "fork" else run_python
    done = run("-c", _RUN_INSTALLED, installed, "train", "--epochs", "1")
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.splitlines()[0]).is_relative_to(installed)
    assert "test accuracy" in done.stdout
    assert (installed / "bin" / "staging-tf1").exists()
