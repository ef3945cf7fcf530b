"""The tutorials' `tf.staging`: the corrected examples run to the end, and the wrong ones name the mistake."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from legacy_support import HERE, PROGRAMS, Run, last_json

CASES = sorted(path.stem for path in (PROGRAMS / "tutorial").glob("*.py"))
# Programs that wait for 5 seconds each: in a process of its own, the second does so at the same time.
ALONE = "loop_wrong_no_session"


@pytest.fixture(scope="module")
def both(legacy_run: Run) -> list[Any]:
    """The process that runs ALONE, and the one that runs the other programs."""

    def run(names: list[str]) -> Any:
        return legacy_run(HERE / "run_programs.py", *[PROGRAMS / "tutorial" / f"{name}.py" for name in names])

    with ThreadPoolExecutor() as pool:
        return list(pool.map(run, [[ALONE], [name for name in CASES if name != ALONE]]))


@pytest.fixture(scope="module")
def ran(both: list[Any]) -> Any:
    return both[1]


@pytest.fixture(scope="module")
def printed(both: list[Any]) -> dict[str, str]:
    alone, others = map(last_json, both)
    return {**alone, **others}


def test_a_mismatch_is_an_error_when_stage_is_built(printed: dict[str, str]) -> None:
    assert printed["mismatch_right"] == "(16, 28, 28, 3) (16,)\n" * 5
    wrong = printed["mismatch_wrong"]
    assert wrong.splitlines()[-1] == (
        "staging_tf1.errors.SpecError: area 'StagingArea' (made at mismatch_wrong.py:6): component 0 got float32 "
        "[?, 28, 28, 3], declared uint8 [?, 28, 28, 3]. Cast it: tf.cast(value, tf.uint8), or let staged() take the "
        "spec from the values. "
        "Or declare the area with the dtype that you stage: tf.staging.StagingArea([placeholders of that dtype], "
        "dtypes=[that dtype])."
    )
    assert re.search(r"mismatch_wrong\.py\", line 13, in <module>\n\s+put = area\.stage\(batch\)", wrong)


@pytest.mark.parametrize(("name", "line"), [("loop_wrong", 8), ("loop_wrong_no_session", 7)])
def test_unstage_of_an_empty_area_never_hangs(printed: dict[str, str], name: str, line: int) -> None:
    message = printed[name].replace("\\'", "'")
    assert (
        f"area 'StagingArea' (made at {name}.py:{line}) is empty, and no element arrived within 5 s: the op that "
        "stage() returned was never run, or was run less often than unstage(). Build the area, stage() and unstage() "
        "once, before the training loop, and run the op of stage() before each unstage()."
    ) in message
    assert "step" not in message.splitlines()[0]


def test_an_area_in_the_loop_is_an_error_at_the_second_call(printed: dict[str, str]) -> None:
    first, *_, last = printed["loop_second_call"].splitlines()
    assert first == "step 0 (2, 4)"
    assert last.startswith(
        "staging_tf1.errors.BuildError: StagingArea is built again at loop_second_call.py:7: that line built one in "
        "this graph before"
    )
    assert "Build it once, before the training loop" in last


def test_ops_that_are_called_in_the_loop_run_with_one_warning(printed: dict[str, str], ran: Any) -> None:
    assert printed["loop_right"].splitlines() == [f"{step} {step}.0 [{step}, {step}]" for step in range(5)]
    assert ran.stderr.count("is called again at loop_right.py") == 1
    assert "the program slows down with every step" in ran.stderr


def test_without_a_gpu_the_area_stands_on_the_cpu_and_says_so_once(printed: dict[str, str], ran: Any) -> None:
    assert printed["device_wrong"] == "(16, 8)\n" * 4
    assert printed["device_right"] == "(16, 8)\n" * 4
    line = "tf.staging.StagingArea: device /device:GPU:0 does not exist; placing the area on the CPU."
    assert ran.stderr.count(line) == 1


def test_how_to_write_it_is_said_once(ran: Any) -> None:
    assert ran.stderr.count("tf.staging.StagingArea with stage() and unstage() is not a TensorFlow API") == 1


def test_the_one_shot_iterators_own_error_stays_readable(printed: dict[str, str]) -> None:
    assert "Use `make_initializable_iterator()` instead." in printed["one_shot_captures"].splitlines()[-1]
