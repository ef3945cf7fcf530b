# The targets use the active Python environment. `make venv` creates one with all dependencies.
PYTHON ?= python

# With pyenv, the folders of its interpreters, so that nox finds python3.10 to python3.13.
PYENV_BINS := $(shell command -v pyenv >/dev/null && ls -d "$$(pyenv root)"/versions/3.1[0-3].*/bin 2>/dev/null | tr '\n' ':')

.PHONY: venv check test soak kill9 cluster cluster-soak fmt docs matrix clean

venv:
	$(PYTHON) -m venv .venv
	.venv/bin/pip install -e '.[test]'

check:
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy

test:
	$(PYTHON) -m pytest -n auto --dist loadfile

# Tests random pipelines, faults and stop moments for ten minutes. Prints its seed; STAGING_TF1_SOAK_SEED replays it.
soak:
	STAGING_TF1_SOAK_SECS=600 $(PYTHON) -m pytest -s -o faulthandler_timeout=0 tests/test_soak.py

# Kills and restarts one training run fifty times; takes about five minutes.
kill9:
	STAGING_TF1_KILLS=50 $(PYTHON) -m pytest -s -o faulthandler_timeout=0 tests/test_kill9.py

# Runs all tests of clusters, with those that `make test` leaves out because of their time.
cluster:
	STAGING_TF1_CLUSTER_TESTS=1 $(PYTHON) -m pytest tests/test_cluster*.py tests/legacy/test_legacy_cluster.py

# Kills and restarts random tasks of two clusters fifty times each; takes about four minutes.
cluster-soak:
	STAGING_TF1_CLUSTER_TESTS=1 STAGING_TF1_CLUSTER_KILLS=50 $(PYTHON) -m pytest -s -o faulthandler_timeout=0 tests/test_cluster_kills.py

# Tests every example in the docstrings, the README and docs/.
docs:
	$(PYTHON) -m pytest tests/test_docstrings.py tests/test_readme.py

fmt:
	$(PYTHON) -m ruff check --fix .
	$(PYTHON) -m ruff format .

# Runs the tests on Python 3.10 to 3.13 and TensorFlow 2.15 to 2.21; see noxfile.py.
matrix:
	PATH="$(PYENV_BINS)$$PATH" $(PYTHON) -m nox

clean:
	rm -rf build dist *.egg-info .nox .mypy_cache .pytest_cache .ruff_cache .hypothesis
