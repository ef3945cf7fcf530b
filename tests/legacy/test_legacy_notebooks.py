"""`staging-tf1 check` and `migrate` on notebooks: cells, magics, places, and unusable input."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from staging_tf1.cli import check, migrate
from staging_tf1.legacy import notebooks, source_files

IMPORTS = """%matplotlib inline
!pip install \\
  tensorflow==1.15
%tensorflow_version 1.x
import tensorflow as tf
files = !ls
text = '''
!not a command
'''"""
TRAINING = """%%time
sess = tf.Session()
for step in range(3):
    area = tf.contrib.staging.StagingArea([tf.int32])
    sess.run(area.get())
    %timeit -n1 1 + 1"""
CELLS = [
    new_markdown_cell("# Training"),
    new_code_cell(IMPORTS, outputs=[new_output("stream", text="installed")]),
    new_markdown_cell("Now it starts."),
    new_code_cell("\n  %%bash\necho 'not Python'"),
    new_code_cell(TRAINING),
    new_code_cell("area.get?"),
    new_code_cell(""),
]


def write(path: Path, *cells: Any, **metadata: Any) -> Path:
    """Write a notebook of these cells; a string is the source of a code cell."""
    made = [new_code_cell(cell) if isinstance(cell, str) else cell for cell in cells]
    nbformat.write(new_notebook(cells=made, metadata=metadata), path)
    return path


@pytest.fixture
def notebook(tmp_path: Path) -> Path:
    return write(tmp_path / "train.ipynb", *CELLS)


def sources(path: Path) -> list[str]:
    return [cell.source for cell in nbformat.read(path, as_version=4).cells]


# ---- check


def test_check_reports_cell_and_line(notebook: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check.main([str(notebook)]) == 1
    assert capsys.readouterr().out == (
        f"{notebook}:cell 5:4:12: STG101 the training loop at line 3 of cell 5 makes a new, empty area in every "
        "iteration, and the graph grows; build the area once, before the loop\n"
        f"{notebook}:cell 5:5:14: STG104 nothing is put into this area: get blocks forever\n"
        "found 2 mistakes in 1 file\n"
    )


def test_ruff_names_the_same_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "a.ipynb", *CELLS[:4], "import tensorflow as tf\n\n\nx = tf.contrib.nothing.at_all\n")
    check.main([str(path)])
    ours = capsys.readouterr().out
    found = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F811", "--output-format", "concise", path],
        capture_output=True,
        text=True,
    )
    assert found.stdout.startswith(f"{path}:cell 5:1:22: F811 ")
    assert ours.startswith(f"{path}:cell 5:4:")


def test_a_comment_suppresses_a_rule(tmp_path: Path) -> None:
    quiet = TRAINING.replace("[tf.int32])", "[tf.int32])  # noqa: STG101").replace("get())", "get())  # noqa")
    assert check.main([str(write(tmp_path / "a.ipynb", IMPORTS, quiet))]) == 0


def test_cells_are_one_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put = "put = area.put([tf.constant(1)])"
    first = "import tensorflow as tf\narea = tf.contrib.staging.StagingArea([tf.int32], capacity=1)"
    last = "with tf.Session() as sess:\n    sess.run(put)\n    sess.run(area.get())"
    assert check.main([str(write(tmp_path / "a.ipynb", first, put, last))]) == 0
    assert check.main([str(write(tmp_path / "b.ipynb", first, last.replace("    sess.run(put)\n", "")))]) == 1
    assert "b.ipynb:cell 2:2:" in capsys.readouterr().out


OPENING = "import tensorflow as tf\nsess = tf.Session()"
STARTING = "threads = tf.train.start_queue_runners(sess)"
INITIALIZING = "sess.run(tf.global_variables_initializer())"
TOO_EARLY = "STG110 threads start while variables are uninitialized: the initializer runs at line 1 of cell {}"


@pytest.mark.parametrize(
    ("cells", "counts", "found"),
    [
        ([OPENING, STARTING, INITIALIZING], [None, None, None], "cell 2:1:11: " + TOO_EARLY.format(3)),
        ([OPENING, STARTING, INITIALIZING], [1, 2, 3], "cell 2:1:11: " + TOO_EARLY.format(3)),
        ([OPENING, STARTING, INITIALIZING], [1, 2, None], "cell 2:1:11: " + TOO_EARLY.format(3)),
        ([OPENING, STARTING, INITIALIZING], [1, 3, 2], None),
        # The initializer ran again.
        ([OPENING, INITIALIZING, STARTING], [1, 4, 3], None),
        ([OPENING, INITIALIZING, STARTING], [1, 2, 3], None),
        ([OPENING, STARTING, "x = 1", INITIALIZING], [1, 4, None, 2], None),
        ([f"{OPENING}\n{STARTING}\n{INITIALIZING}", "x = 1"], [2, 1], "cell 1:3:11: STG110"),
    ],
)
def test_cells_run_in_the_order_that_they_show(
    cells: list[str], counts: list[int | None], found: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = [new_code_cell(cell, execution_count=count) for cell, count in zip(cells, counts, strict=True)]
    path = write(tmp_path / "a.ipynb", *made)
    assert check.main([str(path)]) == int(found is not None)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:-1] == [] if found is None else len(lines) == 2 and lines[0].startswith(f"{path}:{found}")


def test_a_folder_holds_notebooks_too(notebook: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (notebook.parent / ".ipynb_checkpoints").mkdir()
    write(notebook.parent / ".ipynb_checkpoints" / "train-checkpoint.ipynb", *CELLS)
    assert check.main([str(notebook.parent)]) == 1
    assert "found 2 mistakes in 1 file" in capsys.readouterr().out


# ---- migrate


def test_migrate_changes_cells_and_leaves_the_rest(notebook: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = json.loads(notebook.read_text())
    report = notebook.with_name("report.json")
    assert migrate.main(["--write", "--report", str(report), str(notebook)]) == 1
    left = "left: %tensorflow_version 1.x: remove it: the code imports tensorflow.compat.v1 now"
    assert capsys.readouterr().out == (
        f"{notebook}:cell 2:4: {left}\n1 file read, 1 changed, 2 changes, 1 thing left to do by hand\n"
    )
    new = "import tensorflow.compat.v1 as tf\nimport staging_tf1\n\ntf.disable_v2_behavior()"
    expected = [cell.source for cell in CELLS]
    expected[1] = IMPORTS.replace("import tensorflow as tf", new)
    expected[4] = TRAINING.replace("tf.contrib.staging", "staging_tf1")
    assert sources(notebook) == expected
    after = json.loads(notebook.read_text())
    for cell in (*before["cells"], *after["cells"]):
        del cell["source"]
    assert after == before  # outputs, ids and metadata
    (file,) = json.loads(report.read_text())["files"]
    assert [(each["cell"], each["line"]) for each in file["changes"]] == [(2, 5), (5, 4)]
    assert file["left"] == [{"cell": 2, "line": 4, "what": "%tensorflow_version 1.x", "do": left.rpartition("x: ")[2]}]
    # A second time there is nothing to change, and the file is not written.
    text = notebook.read_bytes()
    migrate.main(["--write", str(notebook)])
    assert notebook.read_bytes() == text


def test_the_diff_names_the_cells(notebook: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = notebook.read_bytes()
    migrate.main(["--diff", str(notebook)])
    out = capsys.readouterr().out
    assert [line for line in out.splitlines() if line.startswith("+++")] == [
        f"+++ {notebook}:cell 2",
        f"+++ {notebook}:cell 5",
    ]
    assert "-    area = tf.contrib.staging.StagingArea([tf.int32])\n+    area = staging_tf1.StagingArea" in out
    assert "_ipython_line_" not in out and "_next_cell_" not in out
    assert notebook.read_bytes() == text


# ---- unusable input


def _invalid(path: Path) -> None:
    path.write_text("import tensorflow as tf\n")


def _list(path: Path) -> None:
    path.write_text("[1, 2]")


def _no_cells(path: Path) -> None:
    path.write_text(json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}}))


def _old(path: Path) -> None:
    path.write_text(json.dumps({"nbformat": 3, "nbformat_minor": 0, "metadata": {}, "worksheets": []}))


def _of_r(path: Path) -> None:
    write(path, "x <- 1", language_info={"name": "R"})


def _of_r_that_never_ran(path: Path) -> None:
    write(path, "x <- 1", kernelspec={"name": "ir", "display_name": "R", "language": "R"})


def _binary(path: Path) -> None:
    path.write_bytes(b"\xff\xfe")


def _open_bracket(path: Path) -> None:
    write(path, "import tensorflow as tf", new_markdown_cell("text"), "x = 1\ny = (", "z = 1)")


def _two(path: Path) -> None:
    write(path, "import tensorflow as tf", "x = 1\nprint 'old'")


def _folder(path: Path) -> None:
    path.mkdir()


UNUSABLE = [
    (_invalid, "{}: is not a notebook: it is not JSON"),
    (_list, "{}: is not a notebook: it has no cells"),
    (_no_cells, "{}: is not a notebook: The notebook is invalid and is missing an expected key: cells"),
    (
        _old,
        "{}: has notebook format 3, expected 4. Convert it: jupyter nbconvert --to notebook --inplace FILE",
    ),
    (_of_r, "{}: is a notebook of R, not of Python"),
    (_of_r_that_never_ran, "{}: is a notebook of R, not of Python"),
    (_binary, "{}: is not a notebook: it is not UTF-8"),
    (_open_bracket, "{}:cell 3:2: is not valid Python: '(' was never closed"),
    (
        _two,
        "{}:cell 2:2: is Python 2 (a print statement: \"print 'old'\"). Convert it first with 2to3 -w (part of Python "
        "up to 3.12) or futurize (from the package 'future')",
    ),
    (_folder, "{}: contains no Python files"),
]


@pytest.mark.parametrize("command", [check, migrate], ids=["check", "migrate"])
@pytest.mark.parametrize(("make", "message"), UNUSABLE)
def test_unusable_notebooks(
    make: Any, message: str, command: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.ipynb"
    make(path)
    assert command.main([str(path)]) == 2
    assert capsys.readouterr().err == f"staging-tf1 {command.__name__.rpartition('.')[2]}: {message.format(path)}\n"


def test_without_nbformat(notebook: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "nbformat", None)
    assert check.main([str(notebook)]) == 2
    needs = f"{notebook}: needs nbformat: pip install 'staging-tf1[notebook]'\n"
    assert capsys.readouterr().err == f"staging-tf1 check: {needs}"


# ---- the text

LINES = st.sampled_from(
    "x = 1|%time x = 2|!ls|files = !ls -l|a, b = %sql x|y = 3 % 2|if x:|    %reset -f|    pass|x?|x.y??|?x|'''|\"\"\"|"
    "f(|)|!a \\|  b|# !c|\\|  |".split("|")
)


@given(st.lists(st.lists(LINES, max_size=8).map("\n".join), max_size=4))
def test_any_cells_come_back_as_they_were(cells: list[str]) -> None:
    content = nbformat.writes(new_notebook(cells=[new_code_cell(cell) for cell in cells]))
    text, notebook = notebooks.as_python(content)
    kept = {number: cell for number, cell in enumerate(cells, start=1) if not cell.startswith("%%")}
    assert notebook.sources(text) == (kept or {1: ""})
    # Each line is where it was.
    lines = enumerate(text.split("\n"), start=1)
    places = [notebook.place(text, number) for number, line in lines if line != "_next_cell_"]
    expected = [(number, line) for number, cell in kept.items() for line in range(1, cell.count("\n") + 2)]
    assert places == (expected or [(1, 1)])


@pytest.mark.parametrize(
    ("line", "python"),
    [
        ("%time f()", "_ipython_line_0_"),
        ("x = %env HOME", "x = _ipython_line_0_"),
        ("x[0], y = !ls", "x[0], y = _ipython_line_0_"),
        ("f?", "_ipython_line_0_"),
        ("x = 3 % 2", "x = 3 % 2"),
        ("x %= 2", "x %= 2"),
        ("x = y != 2", "x = y != 2"),
        ("# is it?", "# is it?"),
    ],
)
def test_what_only_ipython_understands(line: str, python: str) -> None:
    assert notebooks.as_python(nbformat.writes(new_notebook(cells=[new_code_cell(line)])))[0] == python


def test_ipython_agrees(tmp_path: Path) -> None:
    """What it changes before Python sees the code is what stands as a name."""
    transform = __import__("IPython.core.inputtransformer2", fromlist=["x"]).TransformerManager().transform_cell
    for cell in (IMPORTS, "x = %env HOME", "f?", "x = (a\n  % b)", "if x:\n    !ls", "'''\n%a\n'''"):
        text = notebooks.as_python(nbformat.writes(new_notebook(cells=[new_code_cell(cell)])))[0]
        assert ("_ipython_line_" in text) == ("get_ipython()" in transform(cell)), cell
    assert source_files.NOTEBOOK == ".ipynb"
