"""The suite on each supported pair of Python and TensorFlow: `make matrix`, or one of them by its name.

    nox --list
    nox --session "tests(python='3.10', tensorflow='2.15')"

The interpreters python3.10 to python3.13 are taken from PATH (`make matrix` adds pyenv's); nothing is
downloaded in their place, and a missing one is an error.
"""

from __future__ import annotations

import nox

nox.needs_version = ">=2024.4.15"
nox.options.default_venv_backend = "venv"
nox.options.error_on_missing_interpreters = True
# A crash in one environment must not be looked for in what another left behind.
nox.options.reuse_existing_virtualenvs = False

# The oldest and the newest of both, and what TensorFlow offers in between: 2.18 came with numpy 2, and the
# first TensorFlow for Python 3.13 is 2.20.
PAIRS = [("3.10", "2.15"), ("3.11", "2.18"), ("3.12", "2.21"), ("3.13", "2.21")]


@nox.session
@nox.parametrize("python,tensorflow", PAIRS)
def tests(session: nox.Session, tensorflow: str) -> None:
    """Installs the package as a user would, with this TensorFlow, and runs the suite."""
    session.install(".[test]", f"tensorflow=={tensorflow}.*")
    session.run("pytest", *session.posargs)
