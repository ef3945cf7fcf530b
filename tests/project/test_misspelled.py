"""Misspelled names and commands are answered with the right one."""

from __future__ import annotations

from typing import Any

import pytest

import staging_tf1 as staging
from staging_tf1 import sources
from staging_tf1.cli.main import main


def test_a_misspelled_argument_of_a_session() -> None:
    with pytest.raises(TypeError, match=r"unknown argument 'stal_secs'\. Did you mean 'stall_secs'\? It passes these"):
        staging.StagingSession(stal_secs=1)


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


@pytest.mark.parametrize(
    ("module", "name", "hint"),
    [
        (staging, "StagingAera", ". Did you mean 'StagingArea'?"),
        (staging, "stagd", ". Did you mean 'staged'?"),
        (staging, "xyz", ""),
        (staging, "ArraySource", ". Sources are in staging_tf1.sources"),
        (sources, "ArraySorce", ". Did you mean 'ArraySource'?"),
        (sources, "TFRecordDataset", ". Did you mean 'TFRecordSource'?"),
        (sources, "__wrapped__", ""),
    ],
)
def test_a_misspelled_name(module: Any, name: str, hint: str) -> None:
    with pytest.raises(AttributeError) as raised:
        getattr(module, name)
    assert str(raised.value) == f"module {module.__name__!r} has no attribute {name!r}{hint}"
