"""The judged findings of `staging-tf1 check` in public code, and the script that checks them."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from typing import Any

from staging_tf1.legacy.lint.checker import RULES

FOLDER = Path(__file__).parent / "corpus"
PAGE = FOLDER.parents[2] / "docs" / "rules" / "README.md"


def script() -> Any:
    found = importlib.util.spec_from_file_location("check_corpus", FOLDER / "check_corpus.py")
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules["check_corpus"] = module  # NamedTuple looks its module up
    found.loader.exec_module(module)
    return module


def test_the_corpus_is_large_and_pinned() -> None:
    sources = script().sources()
    assert len(sources) >= 300 and len({source.project for source in sources}) >= 15
    assert len({(source.project, source.path) for source in sources}) == len(sources)
    assert all(re.fullmatch(r"[0-9a-f]{40}", source.commit) for source in sources)
    assert {"tensorflow/models", "tensorflow/benchmarks"} <= {source.project for source in sources}


def test_the_findings_are_right() -> None:
    module = script()
    verdicts = module.verdicts()
    listed = {(source.project, source.path) for source in module.sources()}
    assert {(key.project, key.path) for key in verdicts} <= listed
    assert {key.code for key in verdicts} <= set(RULES) - module.NOT_JUDGED
    assert all(verdict in ("right", "false") and reason for verdict, reason in verdicts.values())
    right = sum(verdict == "right" for verdict, _ in verdicts.values())
    assert right >= module.LEAST_RIGHT * len(verdicts)
    assert all(verdict == "right" for key, (verdict, _) in verdicts.items() if key.project.startswith("tensorflow/"))


def test_the_page_tells_the_figures() -> None:
    module = script()
    verdicts = module.verdicts()
    right = sum(verdict == "right" for verdict, _ in verdicts.values())
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    sources = module.sources()
    assert f"{len(sources):,} files of {len({source.project for source in sources})} projects" in text
    assert f"{len(verdicts):,} findings, of which {right:,} are right" in text


def test_the_script_says_what_is_new_false_and_gone(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    module = script()
    text = (
        "import tensorflow\nrpc = tensorflow.contrib.rpc\nfrom tensorflow.python.framework.ops import RegisterShape\n"
    )
    text += "area = tensorflow.contrib.staging.StagingArea([tensorflow.int32])\nx = area.get()\n"
    text += "sess = tensorflow.Session()\n"
    (tmp_path / "owner" / "name").mkdir(parents=True)
    (tmp_path / "owner" / "name" / "a.py").write_text(text)
    right, gone = (module.Key("owner/name", "a.py", line, "STG120") for line in (3, 9))
    monkeypatch.setattr(module, "sources", lambda: [module.Source("owner/name", "0" * 40, "a.py")])
    monkeypatch.setattr(module, "verdicts", lambda: {right: ("right", "it is"), gone: ("right", "it was")})
    monkeypatch.setattr(sys, "argv", ["check_corpus.py", "--folder", str(tmp_path)])
    assert module.main() == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("right owner/name a.py:3 STG120 ") and lines[0].endswith("[it is]")
    assert lines[1].startswith("new   owner/name a.py:5 STG104 ")
    assert lines[2] == "gone  owner/name a.py 9 STG120"
    assert lines[-1] == "2 findings: 1 right, 0 false, 1 without a verdict"
