"""`%load_ext staging_tf1` in a real kernel: TensorFlow 1, its magics, and cells that are run twice."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from kernels import Kernel, kernel
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook

import staging_tf1
from staging_tf1.graph.callsite import current_run, shown_line

PAGE = Path(__file__).parents[2] / "docs" / "notebooks.md"
IMPORTS = "import numpy as np\nimport tensorflow as tf\nimport staging_tf1 as staging"
BUILD = """source = staging.sources.ArraySource(np.arange(100.0), batch_size=10, shuffle=True, epochs=3)
x = staging.staged(source)"""
BUILD_TWO = """train = staging.staged(staging.sources.ArraySource(np.arange(8.0), batch_size=2), name="train")
valid = staging.staged(staging.sources.ArraySource(np.arange(8.0), batch_size=2), name="valid")"""
LATE = (
    "NotebookWarning: %load_ext staging_tf1: earlier cells have Variable, three from TensorFlow 2, which does not fit "
    "into graphs of TensorFlow 1. Put %load_ext staging_tf1 into the first cell, restart the kernel, and run all cells."
)
NEW_GRAPH = "tf.reset_default_graph()"


@pytest.fixture(scope="module")
def tf1() -> Iterator[Kernel]:
    """A kernel whose first cells have made it TensorFlow 1."""
    with kernel() as started:
        first = started.run("%load_ext staging_tf1")
        assert (first.stdout, first.stderr, first.error) == ("", "", "")
        assert started.run(IMPORTS).error == ""
        yield started


@pytest.fixture
def notebook(tf1: Kernel) -> Kernel:
    """The kernel, with an empty graph."""
    assert tf1.run(NEW_GRAPH).error == ""
    return tf1


def test_the_code_of_the_notebook_is_tensorflow_1(notebook: Kernel) -> None:
    assert notebook.run("tf.contrib.staging.StagingArea").text == "staging_tf1.legacy.contrib.staging.StagingArea"
    assert notebook.run("tf.executing_eagerly(), tf.placeholder(tf.float32).dtype.name").text == "(False, 'float32')"
    assert notebook.run("np.object is object").text == "True"


# A kernel of its own: the test above has the import of TensorFlow alone.
@pytest.mark.slow
def test_the_package_may_be_what_imports_tensorflow() -> None:
    with kernel() as fresh:
        fresh.run("%load_ext staging_tf1")
        assert fresh.run("import staging_tf1; staging_tf1.StagingArea").text == "staging_tf1.graph.areas.StagingArea"
        assert fresh.run(
            "import tensorflow as tf; issubclass(tf.contrib.staging.StagingArea, staging_tf1.StagingArea)"
        ).text == ("True")
        # The stall report is around runs, too.
        assert fresh.run("tf.Session.run.__module__.split('.')[0], tf.Session().run(tf.constant(3))").error == ""


@pytest.mark.parametrize("version", ["1.x", "1", "1.15", "1.15.2", "1.x  # as in Colab", ""])
def test_the_magic_of_colab(notebook: Kernel, version: str) -> None:
    shown = notebook.run(f"%tensorflow_version {version}")
    assert (shown.stdout, shown.stderr, shown.error) == ("TensorFlow 1.x selected.\n", "", "")


def test_the_pipelines_of_the_graph(notebook: Kernel) -> None:
    assert notebook.run("%staging").stdout == "The default graph has no pipeline.\n"
    notebook.run(BUILD_TWO)
    lines = notebook.run("%staging").stdout.splitlines()
    assert [line.split(" (made at cell In[")[0] for line in lines] == ["'train'", "'valid'"]


# The table of inputs that a user may try: a cell, and what it answers.
REFUSED = {
    "%tensorflow_version 2.x": (
        "UsageError: %tensorflow_version got 2.x, but this process is TensorFlow 1 until it ends. For TensorFlow 2, "
        "restart the kernel and run the notebook without %load_ext staging_tf1.\n"
    ),
    "%tensorflow_version 3": "UsageError: %tensorflow_version got 3, expected 1.x.\n",
    "%tensorflow_version one": "UsageError: %tensorflow_version got one, expected 1.x.\n",
    "%staging x": "UsageError: %staging got 'x', expected no arguments.\n",
}


@pytest.mark.parametrize("cell", list(REFUSED))
def test_what_the_magics_refuse(notebook: Kernel, cell: str) -> None:
    shown = notebook.run(cell)
    assert (shown.stdout, shown.stderr) == ("", REFUSED[cell])


def test_it_may_be_loaded_twice(notebook: Kernel) -> None:
    again = notebook.run("%load_ext staging_tf1")
    assert (again.stderr, again.error) == ("", "")
    assert again.stdout.startswith("The staging_tf1 extension is already loaded.")
    assert notebook.run("%reload_ext staging_tf1").error == ""
    assert notebook.run("tf.contrib.staging.StagingArea").text == "staging_tf1.legacy.contrib.staging.StagingArea"
    # A process stays TensorFlow 1.
    assert "doesn't define how to unload" in notebook.run("%unload_ext staging_tf1").stdout


def test_after_values_of_tensorflow_2() -> None:
    with kernel() as late:
        late.run(
            "import tensorflow as tf\nfrom tensorflow import Variable\nfloats = tf.float32\nthree = tf.constant(3)"
        )
        shown = late.run("%load_ext staging_tf1")
        assert shown.error == ""
        assert LATE in shown.stderr
        # What earlier cells have imported is TensorFlow 1 now.
        assert late.run("tf.executing_eagerly(), tf.placeholder(tf.int32).dtype.name").text == "(False, 'int32')"


# A kernel of its own: the test above has the import, too.
@pytest.mark.slow
def test_after_an_import_alone() -> None:
    with kernel() as late:
        late.run("import tensorflow as tf")
        shown = late.run("%load_ext staging_tf1")
        assert (shown.error, "NotebookWarning" in shown.stderr) == ("", False)
        assert late.run("tf.executing_eagerly(), tf.contrib.staging.StagingArea").text == (
            "(False, staging_tf1.legacy.contrib.staging.StagingArea)"
        )


def test_after_an_installation_of_a_part() -> None:
    with kernel() as lent:
        lent.run("from staging_tf1 import legacy\nlegacy.install(only=['estimator'])")
        error = lent.run("%load_ext staging_tf1").error
    assert error.startswith("RuntimeError: staging_tf1.legacy is already installed with Settings(")
    assert error.endswith("expected all of TF1. Call install() without only=, or restart the program.")


def test_a_program_has_no_shell() -> None:
    with pytest.raises(TypeError) as raised:
        staging_tf1.load_ipython_extension(None)
    assert str(raised.value) == (
        "load_ipython_extension() got shell=None, expected IPython's shell, which %load_ext staging_tf1 passes. A "
        "program calls staging_tf1.legacy.install()."
    )
    assert current_run() is None and shown_line(__file__, 1) is None


@pytest.mark.slow  # the tests above run such cells
def test_the_cells_of_the_page_run_as_a_notebook_file(tmp_path: Path) -> None:
    cells = re.findall(r"^```text\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    notebook = new_notebook(cells=[new_code_cell(cell) for cell in cells])
    done = NotebookClient(notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": tmp_path}})
    done.execute()
    assert [cell.execution_count for cell in notebook.cells] == [1, 2, 3, 4, 5]
    shown = [each["data"]["text/plain"] for each in notebook.cells[1].outputs if each.output_type == "execute_result"]
    assert shown == ["staging_tf1.legacy.contrib.staging.StagingArea"]
    assert any(each.get("text", "").startswith("train: 60 batches, ") for each in notebook.cells[-1].outputs)


# ---- a cell that is run twice


def again(name: str, first: str) -> re.Pattern[str]:
    return re.compile(
        rf"NotebookWarning: '{name}' \(made at cell In\[\d+\], line \d\): its cell has built {first} in this graph "
        r"before\. Sessions still start what was built first: it reads its source, and nothing takes from it\. "
        r"Call tf\.reset_default_graph\(\) at the start of the cell, or build within "
        r"`with tf\.Graph\(\)\.as_default\(\):`\."
    )


def test_a_build_cell_that_is_run_twice_warns(notebook: Kernel) -> None:
    assert "NotebookWarning" not in notebook.run(BUILD).stderr
    number = int(notebook.run("len(In) - 2").text)  # of the cell before
    warned = notebook.run(BUILD)
    assert again("staged_1", rf"'staged' \(made at cell In\[{number}\], line 2\)").search(warned.stderr)
    assert warned.error == ""


def test_what_the_warning_says_is_true(notebook: Kernel) -> None:
    notebook.run(BUILD)
    notebook.run(BUILD)
    loop = "with staging.StagingSession() as sess:\n    for _ in range(5):\n        sess.run(x)\nstats = sess.stats()"
    assert notebook.run(loop).error == ""
    assert notebook.run("[(each.name, each.batches) for each in stats]").text == "[('staged', 0), ('staged_1', 5)]"
    assert notebook.run("stats[0].records > 0").text == "True"  # it was read


def test_an_edited_cell_is_the_same_cell(notebook: Kernel) -> None:
    assert "NotebookWarning" not in notebook.run(BUILD, "the cell").stderr
    notebook.run("with staging.StagingSession() as sess:\n    sess.run(x)")
    edited = notebook.run(BUILD.replace("batch_size=10", "batch_size=20"), "the cell")
    assert again("staged_1", r"'staged' \(made at cell In\[\d+\], line 2\)").search(edited.stderr)


def test_one_warning_for_a_run_that_builds_two(notebook: Kernel) -> None:
    assert "NotebookWarning" not in notebook.run(BUILD_TWO).stderr
    warned = notebook.run(BUILD_TWO).stderr
    assert again("train_1", r"'train' \(.*?\), 'valid' \(.*?\)").search(warned)
    assert warned.count("NotebookWarning: ") == 1


@pytest.mark.parametrize(
    "way", [f"{NEW_GRAPH}\n{BUILD}", "with tf.Graph().as_default():\n    x = staging.staged(tf.constant([1.0]))"]
)
def test_a_cell_with_a_graph_of_its_own_is_silent(notebook: Kernel, way: str) -> None:
    for _ in range(2):
        shown = notebook.run(way)
        assert ("NotebookWarning" in shown.stderr, shown.error) == (False, "")


def test_other_cells_may_add_pipelines(notebook: Kernel) -> None:
    notebook.run(BUILD, "one")
    assert "NotebookWarning" not in notebook.run(BUILD, "two").stderr


def test_a_loop_in_a_cell_is_still_refused(notebook: Kernel) -> None:
    body = "    y = staging.staged(source)\n    tf.Session().run(tf.constant(1))"
    error = notebook.run(f"{BUILD}\nfor _ in range(2):\n{body}").error
    assert error.startswith("BuildError: staged() is built again at cell In[")
    assert "line 4: that line built one in this graph before, and the graph has been run since." in error
