"""`staging-tf1`: its commands and their help."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from processes import RunPython

import staging_tf1
from staging_tf1.cli.main import COMMANDS, main

NAMES = list(COMMANDS)


def test_help_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["--help"])
    assert exit_.value.code == 0
    out = capsys.readouterr().out
    listed = out.split("commands:\n")[1].split("\n\n")[0].splitlines()
    assert [line.split()[0] for line in listed] == NAMES
    assert "example:" in out


@pytest.mark.parametrize("name", NAMES)
def test_the_help_of_each_command_has_an_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main([name, "--help"])
    assert exit_.value.code == 0
    out = capsys.readouterr().out
    assert out.startswith(f"usage: staging-tf1 {name}")
    assert f"  staging-tf1 {name}" in re.split(r"^examples?:$", out, flags=re.MULTILINE)[1]


COUNT = "expected a whole number from 1 to"
# Words that make no sense, and the end of the only line that is printed. Those of `launch` are in test_launch.py.
WRONG: list[tuple[list[str], str]] = [
    (["xyz"], f"staging-tf1: got 'xyz', expected one of {', '.join(NAMES)} (see staging-tf1 --help)"),
    ([""], f"staging-tf1: got '', expected one of {', '.join(NAMES)} (see staging-tf1 --help)"),
    (["trian"], ". Did you mean 'train'? (see staging-tf1 --help)"),
    (
        ["train", "--epoch=1"],
        "unrecognized arguments: --epoch=1. Did you mean '--epochs'? (see staging-tf1 train --help)",
    ),
    (["train", "--batch-size", "many"], f"got 'many', {COUNT} 1000000 (see staging-tf1 train --help)"),
    (["train", "--epochs", "-1"], f"argument --epochs: got '-1', {COUNT} 1000000 (see staging-tf1 train --help)"),
    (["train", "x.npz"], "staging-tf1 train: unrecognized arguments: x.npz (see staging-tf1 train --help)"),
    (["run", "--stall_secs", "1", "x.py"], "--stall_secs. Did you mean '--stall-secs'? (see staging-tf1 run --help)"),
    (["index"], "got no file, expected at least one FILE to index (see staging-tf1 index --help)"),
    (["index", "--write", "x"], "--write OUT and --from DATA.npz must be used together (see staging-tf1 index --help)"),
    (
        ["index", "--write", "x", "--from", "y", "z"],
        "takes its records from --from: remove z (see staging-tf1 index --help)",
    ),
    (["index", "--shards", "0"], f"got '0', {COUNT} 99999 (see staging-tf1 index --help)"),
    (["cache"], "the following arguments are required: ACTION (see staging-tf1 cache --help)"),
    (["cache", "build", "a:b", "c", "--limit", "0"], f"{COUNT} 2**63 - 1 (see staging-tf1 cache build --help)"),
]


@pytest.mark.parametrize(("argv", "end"), WRONG, ids=lambda value: " ".join(value) if isinstance(value, list) else "")
def test_words_that_make_no_sense_get_one_line(argv: list[str], end: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(argv)
    out, err = capsys.readouterr()
    assert (exit_.value.code, out, err.count("\n")) == (2, "", 1)
    assert err.endswith(f"{end}\n")


def test_no_arguments_show_the_help(run_python: RunPython) -> None:
    done, asked = run_python("-m", "staging_tf1"), run_python("-m", "staging_tf1", "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == asked.stdout
    assert "commands:" in done.stdout


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["--version"])
    assert (exit_.value.code, *capsys.readouterr()) == (0, f"staging-tf1 {staging_tf1.__version__}\n", "")


@pytest.mark.parametrize("words", [["check"], ["migrate", "--diff"]])
def test_a_closed_stdout_is_no_error(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "old.py").write_text("import tensorflow as tf\n\nsess = tf.Session()\narea = tf.contrib.staging\n")
    # As Python starts with `>&-`.
    monkeypatch.setattr(sys, "stdout", None)
    assert main([*words, str(tmp_path / "old.py")]) in (0, 1)
    assert capsys.readouterr().err == ""


def test_asking_for_help_does_not_wait_for_tensorflow(run_python: RunPython) -> None:
    code = (
        "import sys\n"
        "from staging_tf1.cli.main import main\n"
        "for name in sys.argv[1:]:\n"
        "    try:\n"
        "        main([name, '--help'])\n"
        "    except SystemExit:\n"
        "        print('answered', name, 'tensorflow' in sys.modules)\n"
    )
    answers = [line for line in run_python("-c", code, *NAMES).stdout.splitlines() if line.startswith("answered")]
    assert answers == [f"answered {name} False" for name in NAMES]
