"""The legacy programs give the numbers of TensorFlow 1.15.5."""

from __future__ import annotations

import sys

import pytest
from legacy_support import HERE, PROGRAMS, Run, assert_same_numbers, goldens, last_json, names_to_test, needs_contrib


@pytest.fixture(scope="module")
def under_run(request: pytest.FixtureRequest, legacy_run: Run, try_contrib: str) -> dict[str, str]:
    paths = [PROGRAMS / f"{name}.py" for name in sorted(names_to_test(request, "test_same_numbers_under_run"))]
    printed: dict[str, str] = last_json(legacy_run(HERE / "run_programs.py", *paths))
    return printed


# The ways to feed and the parts that most programs have stay, single old behaviours do not.
@pytest.mark.slow_cases(
    "called_back|float_sizes|hparams_fallback|keras_ranks|map_area_names|old_attributes|op_counts|own_norms|"
    "record_writer|regularized_variables|tower_areas|transposed_shapes|truncated_lstm"
)
@pytest.mark.parametrize("name", sorted(goldens()))
def test_same_numbers_under_run(under_run: dict[str, str], name: str, try_contrib: str) -> None:
    if try_contrib and needs_contrib(PROGRAMS / f"{name}.py"):
        pytest.skip(try_contrib)
    assert_same_numbers(under_run[name], goldens()[name])


CONTRIB = {line.split()[0]: (path, line) for path, text in goldens("contrib").items() for line in text.splitlines()}


@pytest.fixture(scope="module")
def contrib_parts(request: pytest.FixtureRequest, legacy_run: Run, try_contrib: str) -> dict[str, str]:
    if try_contrib:
        pytest.skip(try_contrib)
    chosen = names_to_test(request, "test_parts_of_contrib_train_as_under_1_15")
    paths = [PROGRAMS / "contrib" / f"{name}.py" for name in goldens("contrib")]
    printed = last_json(legacy_run(HERE / "run_programs.py", *paths, env={"PARTS": " ".join(chosen)}))
    assert not [text for text in printed.values() if "Traceback" in text], printed
    return {line.split()[0]: line for text in printed.values() for line in text.splitlines()}


# More cells, layers, optimizers and metrics of tf.contrib. The programs above have parts of it, too.
@pytest.mark.slow
@pytest.mark.matrix_cases(
    r"(?!("
    r"crf_log_likelihood|bahdanau_attention|seq2seq_beam_search_with_attention|nas_cell|lookup_tables|"
    r"lstm_block_fused|layers_batch_norm_unfused|opt_lazy_adam|losses_triplet_semihard|metrics_auc|learn_vocabulary"
    r")$).*"
)
@pytest.mark.parametrize("name", sorted(CONTRIB))
def test_parts_of_contrib_train_as_under_1_15(contrib_parts: dict[str, str], name: str) -> None:
    assert_same_numbers(contrib_parts[name], CONTRIB[name][1], rel=1e-3)


def test_there_are_goldens_for_the_parts_of_contrib() -> None:
    assert sorted(goldens("contrib")) == sorted(path.stem for path in (PROGRAMS / "contrib").glob("*.py"))
    assert len(CONTRIB) >= 140


SAVED: dict[str, list[str]] = {}
for line in goldens("saved")["load_graphs"].splitlines():
    SAVED.setdefault(line.split()[0], []).append(line)


@pytest.fixture(scope="module")
def loaded(legacy_run: Run, try_contrib: str) -> list[str]:
    if try_contrib:
        pytest.skip(try_contrib)
    ran = legacy_run(PROGRAMS / "saved" / "load_graphs.py")
    assert ran.returncode == 0, ran.stderr[-3000:]
    return list(ran.stdout.splitlines())


@pytest.mark.parametrize("name", sorted(SAVED))
def test_graphs_that_1_15_saved_go_on_as_there(loaded: list[str], name: str) -> None:
    # An offset before a batch normalization has a gradient of rounding errors only, which differ between processors.
    least = 3e-4 if name.startswith("batch_norm") else 1e-6
    printed = "\n".join(line for line in loaded if line.split()[0] == name)
    assert_same_numbers(printed, "\n".join(SAVED[name]), least=least)


# The others have random ops without a seed, which TensorFlow refuses with deterministic ops.
DETERMINISTIC = ["custom_runner", "monitored_hooks", "tower_areas", "supervisor_loop"]
TUTORIAL = ["tutorial/loop_right", "tutorial/loop_wrong"]


@pytest.fixture(scope="module")
def deterministic(staging_run: Run) -> dict[str, str]:
    programs = [PROGRAMS / f"{name}.py" for name in (*DETERMINISTIC, *TUTORIAL)]
    env = {"TF_DETERMINISTIC_OPS": "1"}
    printed: dict[str, str] = last_json(staging_run(HERE / "run_programs.py", *programs, env=env))
    return printed


# promises/test_deterministic_ops.py has the same ops in pipelines.
@pytest.mark.slow
@pytest.mark.parametrize("name", DETERMINISTIC)
def test_same_numbers_with_deterministic_ops(deterministic: dict[str, str], name: str) -> None:
    assert_same_numbers(deterministic[name], goldens()[name])


@pytest.mark.slow
def test_the_area_of_tutorials_with_deterministic_ops(deterministic: dict[str, str]) -> None:
    assert "Error" not in deterministic["loop_right"]
    assert "is empty, and no element arrived within 5 s: the op that stage() returned" in deterministic["loop_wrong"]


def test_there_is_a_golden_for_every_program() -> None:
    assert sorted(goldens()) == sorted(path.stem for path in PROGRAMS.glob("*.py"))
    assert len(goldens()) >= 12


# A program as `staging-tf1 run train.py` in test_legacy_docs.py, which has the numbers of `feed_thread`, and the new
# interpreters of test_legacy_imports.py.
@pytest.mark.slow
def test_a_program_by_itself(staging_run: Run) -> None:
    ran = staging_run(PROGRAMS / "flags_and_files.py")
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert_same_numbers(ran.stdout, goldens()["flags_and_files"])


def test_the_recorder_refuses_any_other_tensorflow(run_python: Run) -> None:
    ran = run_python(HERE / "record_goldens.py", sys.executable)
    assert ran.returncode == 1
    assert "expected 1.15.5" in ran.stderr
