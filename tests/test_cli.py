"""`staging-tf1`: its commands and their help."""

from __future__ import annotations

import re

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


@pytest.mark.parametrize(
    ("words", "got"), [([], "no command"), (["trian"], "'trian'"), (["trian", "--help"], "'trian'")]
)
def test_a_command_that_is_not_there(words: list[str], got: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(words)
    assert exit_.value.code == 2
    assert capsys.readouterr() == (
        "",
        f"staging-tf1: got {got}, expected one of {', '.join(NAMES)} (see staging-tf1 --help)\n",
    )


def test_the_module_runs_as_a_program(run_python: RunPython) -> None:
    done = run_python("-m", "staging_tf1", "--version")
    assert (done.returncode, done.stdout) == (0, f"staging-tf1 {staging_tf1.__version__}\n")


@pytest.mark.parametrize("name", NAMES)
def test_asking_for_help_does_not_wait_for_tensorflow(name: str, run_python: RunPython) -> None:
    code = (
        "import sys\n"
        "from staging_tf1.cli.main import main\n"
        "try:\n"
        f"    main([{name!r}, '--help'])\n"
        "except SystemExit:\n"
        "    sys.exit('tensorflow' in sys.modules)\n"
    )
    assert run_python("-c", code).returncode == 0
