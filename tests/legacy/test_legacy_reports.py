"""`staging-tf1 check`: columns, the pre-commit hook, and how fast it starts and checks."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from legacy_support import PROGRAMS

from staging_tf1 import progress
from staging_tf1.cli import check
from staging_tf1.legacy.lint import checker
from staging_tf1.legacy.lint.checker import RULES

ROOT = Path(__file__).parents[2]
Capture = Any


def test_columns_count_characters(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "a.py").write_text("import tensorflow as tf\nname = 'größe', tf.contrib.rpc\n", encoding="utf-8")
    check.main([str(tmp_path / "a.py")])
    assert f"{tmp_path / 'a.py'}:2:17: STG117 " in capsys.readouterr().out


def test_the_pre_commit_hook_calls_a_command_that_exists() -> None:
    text = (ROOT / ".pre-commit-hooks.yaml").read_text()
    (hook,) = re.findall(r"^- ((?:.*\n(?:  .*\n)*))", text, re.MULTILINE)
    fields = dict(re.findall(r"^ *(\w+): (.*)$", hook, re.MULTILINE))
    assert {"id", "name", "entry", "language"} <= set(fields)
    assert fields["id"] == "staging-tf1-check" and fields["language"] == "script" and fields["types"] == "[python]"
    assert os.access(ROOT / fields["entry"], os.X_OK) and fields["require_serial"] == "true"


def test_the_hook_needs_nothing_installed(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import tensorflow as tf\nx = tf.contrib.rpc\n", encoding="utf-8")
    # -S: without site-packages.
    command = [sys.executable, "-S", "-E", str(ROOT / "tools" / "check.py"), "a.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.stderr, done.returncode) == ("", 1)
    assert "STG117" in done.stdout


def test_the_hooks_of_this_repository_run_what_there_is() -> None:
    text = (ROOT / ".pre-commit-config.yaml").read_text()
    files = re.findall(r"tests/[\w/]+\.py", text)
    assert files and [name for name in files if not (ROOT / name).exists()] == []


def test_a_bar_appears_on_a_terminal_if_the_check_takes_long(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setattr(progress, "SILENT_SECS", 0.0)
    list(checker.check_all([str(PROGRAMS / "clean")]))
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    list(checker.check_all([str(PROGRAMS / "clean")]))
    assert "file" in capsys.readouterr().err
    monkeypatch.setattr(progress, "SILENT_SECS", 600.0)
    list(checker.check_all([str(PROGRAMS / "clean")]))
    assert capsys.readouterr().err == ""


def test_checking_imports_neither_tensorflow_nor_numpy(run_python: Any, tmp_path: Path) -> None:
    program = (
        "import sys\nfrom staging_tf1.cli.main import main\n"
        "main(['check', sys.argv[1]])\n"
        "print([name for name in ('tensorflow', 'numpy', 'tqdm') if name in sys.modules])"
    )
    ran: subprocess.CompletedProcess[str] = run_python("-c", program, PROGRAMS / "clean")
    assert ran.stdout.endswith("\n[]\n")


def _areas(count: int) -> str:
    lines = ["import tensorflow.compat.v1 as tf", "import staging_tf1 as staging", "with tf.Session() as sess:"]
    for number in range(count):
        lines += [
            f"    area{number} = staging.StagingArea([tf.float32], capacity=1)",
            f"    put{number} = area{number}.put([tf.zeros([])])",
            f"    (got{number},) = area{number}.get()",
            f"    sess.run(put{number})",
            f"    sess.run(got{number})",
        ]
    return "\n".join(lines) + "\n"


def test_time_grows_with_the_number_of_areas_not_with_its_square(tmp_path: Path) -> None:
    def secs(count: int) -> float:
        path = tmp_path / f"areas{count}.py"
        path.write_text(_areas(count))
        start = time.process_time()
        assert checker.check_file(str(path)) == []
        return time.process_time() - start

    secs(50)
    few = min(secs(100) for _ in range(3))
    # Eight times the lines may take 20 times as long on a busy machine; a square takes 64 times as long.
    assert any(secs(800) < 24 * few for _ in range(2))


def test_each_rule_has_one_code() -> None:
    assert len({rule.name for rule in RULES.values()}) == len(RULES)
