"""Helpers for the tests of the shim."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
PROGRAMS = HERE / "programs"
PROMISES = PROGRAMS / "promises"

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def last_json(ran: subprocess.CompletedProcess[str]) -> Any:
    """Return the JSON object on the last line that a program printed; raise with its stderr if there is none."""
    assert ran.returncode == 0, ran.stderr[-3000:]
    return json.loads(ran.stdout.splitlines()[-1])


def names_to_test(request: pytest.FixtureRequest, test: str) -> set[str]:
    """Return the values of the parameter `name` of the cases of `test` that this run has.

    For fixtures with parameters of their own: of the cases with the same ones.
    """
    mine = getattr(request, "param", None)
    cases = [item for item in request.session.items if getattr(item, "originalname", None) == test]
    params = [case.callspec.params for case in cases if case.path == request.path]  # type: ignore[attr-defined]
    return {each["name"] for each in params if mine is None or mine in each.values()}


def needs_contrib(program: Path) -> bool:
    """Whether a program uses modules of TensorFlow 1.15.5 that have to be fetched."""
    return bool(re.search(r"contrib\.(?!staging|estimator|tpu|distribute)|tensorflow\.examples", program.read_text()))


def goldens(folder: str = "") -> dict[str, str]:
    """Return the output under TensorFlow 1.15.5 of the programs in a folder, by program."""
    return {path.stem: path.read_text() for path in sorted((HERE / "goldens" / folder).glob("*.txt"))}


def with_site_packages() -> dict[str, str]:
    """Return an environment in which the libraries of promises/ are installed."""
    import staging_tf1

    home = str(Path(staging_tf1.__file__).parent.parent)
    return {"PYTHONPATH": os.pathsep.join([home, str(PROMISES / "sitepkgs" / "site-packages")])}


_NUMBER = re.compile(r"-?\d+\.\d+(?:e-?\d+)?|-?\d+")


def assert_same_numbers(printed: str, golden: str, rel: float = 1e-4, least: float = 1e-6) -> None:
    """Assert equal texts. Kernels round differently: numbers may differ by a part of `rel`, or by `least`."""
    assert _NUMBER.sub("#", printed) == _NUMBER.sub("#", golden), printed
    ours = [float(number) for number in _NUMBER.findall(printed)]
    theirs = [float(number) for number in _NUMBER.findall(golden)]
    assert ours == pytest.approx(theirs, rel=rel, abs=least)
