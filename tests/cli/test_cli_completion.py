"""`staging-tf1 completion`: bash completes commands, flags and choices."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from processes import RunPython

from staging_tf1.cli.main import COMMANDS, main

pytest.importorskip("shtab")
# Completes the last of its arguments with what the script on standard input registers for the command.
_COMPLETE = """
eval "$(cat)"
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
registered=$(complete -p staging-tf1)
"$(sed 's/.*-F \\([^ ]*\\).*/\\1/' <<< "$registered")" staging-tf1 "${COMP_WORDS[COMP_CWORD]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def script(run_python: RunPython) -> str:
    done = run_python("-m", "staging_tf1", "completion", "bash")
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["tr"], {"train"}),
        ([""], set(COMMANDS)),
        (["train", "--work"], {"--workflow"}),
        (["train", "--workflow", "c"], {"classic"}),
        (["completion", "z"], {"zsh"}),
        (["index", "dig"], {"digits.npz"}),
        (["run", "dig"], {"digits.npz"}),
        (["nothing", "--work"], set()),
    ],
)
def test_bash_completes(script: str, words: list[str], expected: set[str], tmp_path: Path) -> None:
    (tmp_path / "digits.npz").touch()
    done = subprocess.run(
        ["bash", "-c", _COMPLETE, "bash", "staging-tf1", *words],
        input=script,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    found = set(done.stdout.split())
    assert expected <= found if expected else found == set(), done.stderr


def test_zsh_gets_a_script(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "zsh"]) == 0
    assert capsys.readouterr().out.startswith("#compdef staging-tf1")


@pytest.mark.parametrize("words", [[], ["powershell"], ["bash", "zsh"]])
def test_other_arguments_are_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["completion", *words])
    assert exit_.value.code == 2
    assert capsys.readouterr().err.startswith("staging-tf1 completion: ")


def test_without_shtab_it_says_what_to_install(run_python: RunPython) -> None:
    code = (
        "import sys; sys.modules['shtab'] = None; from staging_tf1.cli.main import main; main(['completion', 'bash'])"
    )
    done = run_python("-c", code)
    assert done.stderr == "staging-tf1 completion: needs shtab: pip install 'staging-tf1[completion]'\n"
