# The targets use the active Python environment. `make venv` creates one with all dependencies.
PYTHON ?= python

# With pyenv, the folders of its interpreters, so that nox finds python3.10 to python3.13.
PYENV_BINS := $(shell command -v pyenv >/dev/null && ls -d "$$(pyenv root)"/versions/3.1[0-3].*/bin 2>/dev/null | tr '\n' ':')

.PHONY: venv constraints check bench test test-all coverage soak kill9 cluster cluster-soak lab contrib-unit-tests fmt docs site pictures screenshots pre-commit matrix clean

venv:
	$(PYTHON) -m venv .venv
	.venv/bin/pip install -c constraints.txt -e '.[test,site]'

# Writes constraints.txt with the newest releases that fit together. Installs uv into the environment, and nothing else.
constraints:
	$(PYTHON) -m pip install --quiet uv
	$(PYTHON) tools/constraints.py

check:
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy

test:
	$(PYTHON) -m pytest -n auto --dist loadfile

# With the slow tests, which have more cases of what `make test` tests.
test-all:
	$(PYTHON) -m pytest -n auto --dist loadfile -m ""

# Measures which lines the tests execute, child processes included. The report is in build/coverage/index.html.
# sys.monitoring is faster than tracing; versions of Python before 3.12 lack it.
coverage:
	$(PYTHON) -m coverage erase
	COVERAGE_CORE=sysmon $(PYTHON) -m coverage run -m pytest -n auto --dist loadfile -m "" $(TESTS)
	$(PYTHON) -m coverage combine --quiet
	$(PYTHON) -m coverage html --quiet --directory build/coverage
	$(PYTHON) -m coverage report

# Compares the ways to feed a loop on all workloads; takes about an hour on two cores. `make bench BENCH="W1 --quick"`.
bench:
	$(PYTHON) benchmarks/bench.py $(BENCH)

# Tests random pipelines, faults and stop moments for ten minutes. Prints its seed; STAGING_TF1_SOAK_SEED replays it.
# Then all cases of the tests that otherwise have only each pair of their parameters' values.
soak:
	STAGING_TF1_SOAK_SECS=600 $(PYTHON) -m pytest -s -o faulthandler_timeout=0 -m "" tests/promises/test_soak.py tests/promises/test_exactly_once.py
	STAGING_TF1_SOAK_SECS=600 $(PYTHON) -m pytest -n auto --dist loadfile -m thinned
	STAGING_TF1_SOAK_SECS=600 $(PYTHON) -m pytest -m "" tests/graph/test_fed_parts.py

# Kills and restarts one training run fifty times, and worker processes fifty times, and lets them make 10,000 batches;
# takes about a minute on two cores.
kill9:
	STAGING_TF1_KILLS=50 $(PYTHON) -m pytest -s -o faulthandler_timeout=0 tests/promises/test_kill9.py
	STAGING_TF1_WORKER_KILLS=50 STAGING_TF1_WORKER_STEPS=10000 $(PYTHON) -m pytest -m "" tests/workers -k "killed_at_any_time or stays_flat"

# Runs all tests of clusters, with those that `make test` leaves out because of their time.
cluster:
	STAGING_TF1_CLUSTER_TESTS=1 $(PYTHON) -m pytest -m "" tests/cluster tests/legacy/test_legacy_cluster.py

# Kills and restarts random tasks of two clusters, and the servers of four more, fifty times each; takes 11 minutes.
cluster-soak:
	STAGING_TF1_CLUSTER_TESTS=1 STAGING_TF1_CLUSTER_KILLS=50 $(PYTHON) -m pytest -s -o faulthandler_timeout=0 tests/cluster/test_cluster_kills.py

# Tests every example in the docstrings, the README and docs/.
docs:
	$(PYTHON) -m pytest tests/project/test_docstrings.py tests/project/test_readme.py

# Builds the documentation site in build/site/html. Warnings and broken links are errors.
site:
	$(PYTHON) tools/docs_site/build.py

# Draws the pictures of docs/pictures, some of them from runs on this machine.
pictures:
	$(PYTHON) tools/pictures/draw.py

# Takes the screenshot of docs/pictures. Needs Chromium and TensorBoard.
screenshots:
	$(PYTHON) tools/pictures/screenshots.py

# Runs real TensorFlow 1 programs from a folder of clones, beside the interpreter ORACLE that has TensorFlow 1.15.5, and
# writes the table of docs/compatibility.md.
lab:
	$(PYTHON) tests/legacy/lab/run_lab.py --clones $(CLONES) $(if $(ORACLE),--oracle $(ORACLE)) $(LAB)
	$(PYTHON) tests/legacy/lab/run_lab.py --page docs/compatibility.md

# Runs TensorFlow's own unit tests of tf.contrib from CHECKOUT, a checkout of TensorFlow 1.15, beside the interpreter
# ORACLE, and writes their tables in docs/compatibility.md.
contrib-unit-tests:
	$(PYTHON) tests/legacy/lab/run_unit_tests.py --checkout $(CHECKOUT) $(if $(ORACLE),--oracle $(ORACLE)) $(LAB)
	$(PYTHON) tests/legacy/lab/run_unit_tests.py --page docs/compatibility.md

fmt:
	$(PYTHON) -m ruff check --fix .
	$(PYTHON) -m ruff format .

# Installs the hooks of .pre-commit-config.yaml into this checkout.
pre-commit:
	$(PYTHON) -m pip install --quiet pre-commit
	$(PYTHON) -m pre_commit install

# Runs the tests on Python 3.10 to 3.13 and TensorFlow 2.15 to 2.21; see noxfile.py.
matrix:
	python=$$(command -v $(PYTHON)) && PATH="$(PYENV_BINS)$$PATH" "$$python" -m nox

clean:
	rm -rf build dist .coverage .coverage.* *.egg-info .nox .mypy_cache .pytest_cache .ruff_cache .hypothesis
