"""The project as its maintainers handle it: versions agree, and the wheel contains and runs the whole package."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_bytes
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
# What a checkout has beside the files of the repository.
_MADE = (".*_cache", ".coverage*", ".git", ".hypothesis", ".nox", ".venv", "*.egg-info", "__pycache__", "build", "dist")
_REMOTE = "https://me:secret@code.example/someone/staging_tf1.git"
_PAGE = "https://code.example/someone/staging_tf1"
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
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    released = re.findall(r"^## ([\d.]+) - (\d{4}-\d\d-\d\d)$", changes, re.MULTILINE)
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert released[0] == (staging.__version__, *re.findall(r"^date-released: (.+)$", citation, re.MULTILINE))


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
    # What MANIFEST.in names and is not there.
    assert re.findall("^warning: no .*", done.stdout + done.stderr, re.MULTILINE) == []
    return target / done.stdout.splitlines()[-1]


def _files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the repository."""
    folder = tmp_path_factory.mktemp("checkout")
    return Path(shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(*_MADE), dirs_exist_ok=True))


@pytest.fixture(scope="module")
def source_distribution(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A source distribution of a clone of a public repository, unpacked."""
    folder = tmp_path_factory.mktemp("sdist")
    clone = shutil.copytree(checkout, folder / "clone")
    for command in (["init", "--quiet"], ["remote", "add", "origin", _REMOTE]):
        subprocess.run(["git", *command], cwd=clone, check=True)
    (clone / "staging_tf1" / "left.pyc").touch()
    archive = _built("build_sdist", clone, folder)
    with tarfile.open(archive) as opened:
        opened.extractall(folder / "unpacked", **({"filter": "data"} if sys.version_info >= (3, 12) else {}))
    return next((folder / "unpacked").iterdir())


@pytest.fixture(scope="module")
def wheel(source_distribution: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel, built from the source distribution as `python -m build` does, but in this environment."""
    return _built("build_wheel", source_distribution, tmp_path_factory.mktemp("wheel"))


def test_the_source_distribution_has_every_file_of_the_repository(checkout: Path, source_distribution: Path) -> None:
    made = {"PKG-INFO", "setup.cfg"}
    found = {name for name in _files(source_distribution) if not name.startswith("staging_tf1.egg-info/")}
    assert found - made == _files(checkout)


def test_the_metadata_leads_to_the_repository(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (name,) = [name for name in archive.namelist() if name.endswith("/METADATA")]
    metadata = message_from_bytes(archive.read(name))
    assert metadata.get_all("Project-URL") == [
        f"Repository, {_PAGE}",
        f"Documentation, {_PAGE}/blob/HEAD/docs/index.md",
        f"Changelog, {_PAGE}/blob/HEAD/CHANGELOG.md",
    ]
    assert metadata["Author"] and "Development Status :: 4 - Beta" in metadata.get_all("Classifier", [])
    page = str(metadata.get_payload())
    assert f"]({_PAGE}/blob/HEAD/docs/sources.md#records-of-different-sizes)" in page
    # Package indexes show no files beside the page.
    assert re.findall(r"\]\((?!https:|#)[^)]*\)", page) == []
    # The extra has all others, except for those of developers.
    extras = set(metadata.get_all("Provides-Extra", []))
    wanted = {extra for line in metadata.get_all("Requires-Dist", []) for extra in Requirement(line).extras}
    assert wanted == extras - {"all", "site", "test"}


@pytest.mark.parametrize(
    ("remote", "page"),
    [
        ("git@code.example:someone/staging_tf1.git", _PAGE),
        ("ssh://git@code.example/someone/staging_tf1", _PAGE),
        ("https://code.example/someone/staging_tf1/", _PAGE),
        ("/srv/staging_tf1.git", ""),
        ("file:///srv/staging_tf1.git", ""),
        (None, ""),
    ],
)
def test_the_address_of_the_repository_is_that_of_the_clone(tmp_path: Path, remote: str | None, page: str) -> None:
    tree = ast.parse((ROOT / "setup.py").read_text(encoding="utf-8"))
    # Without setuptools, which warns on Python 3.10 if distutils has been imported before.
    kept = [node for node in tree.body if not ast.unparse(node).startswith(("setup(", "from setuptools"))]
    shutil.copyfile(ROOT / "README.md", tmp_path / "README.md")
    if remote is not None:
        for command in (["init", "--quiet"], ["remote", "add", "origin", remote]):
            subprocess.run(["git", *command], cwd=tmp_path, check=True)
    namespace: dict[str, Any] = {"__file__": str(tmp_path / "setup.py")}
    exec(compile(ast.Module(kept, []), "setup.py", "exec"), namespace)
    assert namespace["home"] == page
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert (namespace["readme"](page) == text) == (page == "")


def test_the_hosted_site_is_built_as_here() -> None:
    text = (ROOT / ".readthedocs.yaml").read_text(encoding="utf-8")
    assert "pip install -c constraints.txt '.[site]'" in text
    assert "python tools/docs_site/build.py build/site" in text
    assert "tools/docs_site/build.py" in (ROOT / "Makefile").read_text(encoding="utf-8")


def test_the_wheel_has_every_file_of_the_package(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    files = [path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    expected = {path.relative_to(ROOT).as_posix() for path in files}
    assert {name for name in names if ".dist-info/" not in name} == expected
    licenses = sorted(name.partition(".dist-info/")[2] for name in names if "LICENSE" in name)
    assert licenses == ["licenses/LICENSE", "licenses/LICENSE-digits.md"]


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
