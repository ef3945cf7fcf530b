# Each target works in the Python environment that is active; `make venv` makes one with all it takes.
PYTHON ?= python

# Where pyenv is in use, its newest interpreter of each version, so that nox finds python3.10 to python3.13.
PYENV_BINS := $(shell command -v pyenv >/dev/null && ls -d "$$(pyenv root)"/versions/3.1[0-3].*/bin 2>/dev/null | tr '\n' ':')

.PHONY: venv check test fmt docs matrix clean

venv:
	$(PYTHON) -m venv .venv
	.venv/bin/pip install -e '.[test]'

check:
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy

test:
	$(PYTHON) -m pytest

# Every example in the docstrings, the README and docs/.
docs:
	$(PYTHON) -m pytest tests/test_docstrings.py tests/test_readme.py

fmt:
	$(PYTHON) -m ruff check --fix .
	$(PYTHON) -m ruff format .

# The suite on Python 3.10 to 3.13 and TensorFlow 2.15 to 2.21; see noxfile.py.
matrix:
	PATH="$(PYENV_BINS)$$PATH" $(PYTHON) -m nox

clean:
	rm -rf build dist *.egg-info .nox .mypy_cache .pytest_cache .ruff_cache .hypothesis
