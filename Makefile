# Each target works in the Python environment that is active; `make venv` makes one with all it takes.
PYTHON ?= python

# Where pyenv is in use, its newest interpreter of each version, so that nox finds python3.10 to python3.13.
PYENV_BINS := $(shell command -v pyenv >/dev/null && ls -d "$$(pyenv root)"/versions/3.1[0-3].*/bin 2>/dev/null | tr '\n' ':')

.PHONY: venv check test soak kill9 fmt docs matrix clean

venv:
	$(PYTHON) -m venv .venv
	.venv/bin/pip install -e '.[test]'

check:
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy

test:
	$(PYTHON) -m pytest

# Random pipelines, faults and stop moments for ten minutes. It prints its seed; STAGING_TF1_SOAK_SEED replays one.
soak:
	STAGING_TF1_SOAK_SECS=600 $(PYTHON) -m pytest -s -o faulthandler_timeout=0 tests/test_soak.py

# Fifty times kill -9 and restart over one training run; some five minutes.
kill9:
	STAGING_TF1_KILLS=50 $(PYTHON) -m pytest -s -o faulthandler_timeout=0 tests/test_kill9.py

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
