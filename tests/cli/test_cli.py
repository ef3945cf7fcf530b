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


@pytest.mark.parametrize(("words", "got"), [(["xyz"], "'xyz'"), (["xyz", "--help"], "'xyz'"), ([""], "''")])
def test_a_command_that_is_not_there(words: list[str], got: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(words)
    assert exit_.value.code == 2
    assert capsys.readouterr() == (
        "",
        f"staging-tf1: got {got}, expected one of {', '.join(NAMES)} (see staging-tf1 --help)\n",
    )


def test_no_arguments_show_the_help(run_python: RunPython) -> None:
    done, asked = run_python("-m", "staging_tf1"), run_python("-m", "staging_tf1", "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == asked.stdout
    assert "commands:" in done.stdout


@pytest.mark.parametrize("words", [["check"], ["migrate", "--diff"]])
def test_a_closed_stdout_is_no_error(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "old.py").write_text("import tensorflow as tf\n\nsess = tf.Session()\narea = tf.contrib.staging\n")
    # As Python starts with `>&-`.
    monkeypatch.setattr(sys, "stdout", None)
    assert main([*words, str(tmp_path / "old.py")]) in (0, 1)
    assert capsys.readouterr().err == ""


def test_the_module_runs_as_a_program(run_python: RunPython) -> None:
    done = run_python("-m", "staging_tf1", "--version")
    assert (done.returncode, done.stdout) == (0, f"staging-tf1 {staging_tf1.__version__}\n")


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


@pytest.mark.parametrize(
    ("argv", "hint"),
    [
        (["trian"], "expected one of "),
        (["trian"], ". Did you mean 'train'? (see staging-tf1 --help)"),
        (["train", "--epoch=1"], "unrecognized arguments: --epoch=1. Did you mean '--epochs'? (see "),
        (["index", "x", "--qqq"], "unrecognized arguments: --qqq (see "),
        (["run", "--stall_secs", "1", "x.py"], "unrecognized arguments: --stall_secs"),
    ],
)
def test_a_misspelled_command(argv: list[str], hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(argv)
    assert ended.value.code == 2 and hint in capsys.readouterr().err
