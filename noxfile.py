"""Runs the tests on each supported pair of Python and TensorFlow: `make matrix`, or nox for a single pair.

    nox --list
    nox --session "tests(python='3.10', tensorflow='2.15')"

The interpreters python3.10 to python3.13 must be on PATH (`make matrix` adds pyenv's). nox does not download them; a
missing interpreter is an error.
"""

from __future__ import annotations

from pathlib import Path

import nox

nox.needs_version = ">=2024.4.15"
nox.options.default_venv_backend = "venv"
nox.options.error_on_missing_interpreters = True
# Leftovers of an earlier environment must not influence the tests.
nox.options.reuse_existing_virtualenvs = False

# The oldest and the newest versions, and one in between: TensorFlow 2.18 is the first with numpy 2. The first
# TensorFlow for Python 3.13 is 2.20.
PAIRS = [("3.10", "2.15"), ("3.11", "2.18"), ("3.12", "2.21"), ("3.13", "2.21")]


@nox.session
@nox.parametrize("python,tensorflow", PAIRS)
def tests(session: nox.Session, tensorflow: str) -> None:
    """Install the package as a user does, with this TensorFlow, and run all tests."""
    constraints = Path(session.virtualenv.location, "constraints.txt")
    constraints.write_text(tested_releases(tensorflow), encoding="utf-8")
    # First on its own: beside the extras, pip tries their releases by the hundred before it finds those for 2.15.
    session.install("-c", str(constraints), "tensorflow")
    session.install("-c", str(constraints), ".[test]")
    session.run("pytest", "-n", "auto", "--dist", "loadfile", "-m", "", *session.posargs)


def tested_releases(tensorflow: str) -> str:
    """Return constraints.txt for this TensorFlow. It has what TensorFlow requires for one of them only."""
    text = Path(__file__).with_name("constraints.txt").read_text(encoding="utf-8")
    if f"\ntensorflow=={tensorflow}." in text:
        return text
    return text.partition("\n# TensorFlow")[0] + f"\ntensorflow=={tensorflow}.*\n"
