"""What a notebook shows of sources, pipelines and figures."""

from __future__ import annotations

import base64
import re
import xml.etree.ElementTree as ElementTree
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from kernels import kernel

import staging_tf1 as staging
from staging_tf1 import sources
from staging_tf1.feed.picture import GraphView

_SVG = "{http://www.w3.org/2000/svg}"


def table(html: str) -> list[list[str]]:
    """Return the cells of the first table, row by row. It must be well-formed."""
    root = ElementTree.fromstring(html[html.index("<table>") : html.index("</table>") + len("</table>")])
    return [["".join(cell.itertext()) for cell in row] for row in root.iter("tr")]


def caption(html: str) -> str:
    return re.findall("<caption>(.*?)</caption>", html)[0]


def words(html: str) -> list[str]:
    """Return the texts of the picture, which must be well-formed."""
    (content,) = re.findall(r'src="data:image/svg\+xml;base64,([^"]+)"', html)
    return [text.text or "" for text in ElementTree.fromstring(base64.b64decode(content)).iter(f"{_SVG}text")]


def pairs(**options: Any) -> sources.ArraySource:
    return sources.ArraySource({"x": np.zeros((100, 3), "f4"), "y": np.arange(100)}, batch_size=8, **options)


@pytest.fixture(autouse=True)
def graph() -> Any:
    with tf.Graph().as_default() as graph:
        yield graph


def test_a_source() -> None:
    html = pairs(shuffle=True, seed=3, epochs=2)._repr_html_()
    assert caption(html) == "ArraySource(100 records, batch_size=8, shuffle=True, seed=3, epochs=2)"
    assert table(html) == [["batches", "26"], ["x", "float32 [?, 3]"], ["y", "int64 [?]"]]


def test_a_source_without_an_end_and_names_with_markup() -> None:
    html = sources.ArraySource({"<b>": np.arange(4)}, batch_size=2)._repr_html_()
    assert table(html) == [["batches", "unknown or endless"], ["<b>", "int64 [2]"]]


def test_a_stream_is_not_read_to_show_it() -> None:
    def batches() -> Any:
        raise AssertionError("it was read")

    assert table(sources.GeneratorSource(batches)._repr_html_()) == [["batches", "unknown or endless"]]


def test_pipelines() -> None:
    staging.staged(pairs(), name="train", num_threads=2, capacity=3)
    staging.staged(pairs(), name="valid", lockstep=True)
    staging.staged(tf.random.uniform([4]), name="noise")
    assert words(GraphView()._repr_html_()) == [
        *("ArraySource", "batches of 8", "2 feed threads", "several batches a run"),
        *("train", "area of 3, default device"),
        *("your step", "float32 [?, 3] + 1 more"),
        *("ArraySource", "batches of 8", "lockstep", "the step itself reads", "valid", "area of 2, default device"),
        *("your step", "float32 [?, 3] + 1 more"),
        *("the graph", "computes the batches", "1 feed thread", "noise", "area of 2, default device"),
        *("your step", "float32 [4]"),
    ]
    assert str(GraphView()).splitlines()[0].startswith("'train' (made at test_html.py:")


def test_towers_have_a_row_each() -> None:
    staging.staged(pairs(), name="towers", devices=["/cpu:0", "/cpu:0"])
    shown = words(GraphView()._repr_html_())
    assert [each for each in shown if each.startswith("towers")] == ["towers/0", "towers/1"]
    assert "area of 2, CPU:0" in shown


def test_a_runner_and_no_pipeline() -> None:
    assert GraphView()._repr_html_() == "<p>The default graph has no pipeline.</p>"
    runner = staging.CustomRunner(pairs(), name="a_name_that_is_too_long_for_its_box", num_processes=1)
    shown = words(runner._repr_html_())
    assert "a_name_that_is_too_lon..." in shown and "1 worker process" in shown


def test_a_session_and_its_figures() -> None:
    batch = staging.staged(pairs(epochs=1), name="train")
    with staging.StagingSession() as sess:
        for _ in range(3):
            sess.run(batch)
        html = sess._repr_html_()
        assert "train" in words(html)
        assert html.startswith("<p>StagingSession (made at test_html.py:")
        rows = table(html)
    assert rows[0][:2] == ["pipeline", "batches"]
    assert rows[1][:2] == ["train", "3"]
    assert rows[1][-1].startswith(("compute-bound", "input-bound"))
    closed = sess._repr_html_()
    assert ", closed</p>" in closed and "<img" not in closed
    assert table(closed)[1][:2] == ["train", "3"]
    assert table(sess.stats()[0]._repr_html_())[1:] == table(closed)[1:]
    assert sess.stats() == list(sess.stats())  # otherwise an ordinary list


def test_a_notebook_shows_them() -> None:
    with kernel() as notebook:
        notebook.run("%load_ext staging_tf1")
        notebook.run("import numpy as np\nimport tensorflow as tf\nimport staging_tf1 as staging")
        notebook.run("source = staging.sources.ArraySource(np.arange(100.0), batch_size=10, epochs=1)")
        notebook.run("x = staging.staged(source, name='train')")
        assert caption(notebook.run("source").html) == "ArraySource(100 records, batch_size=10, epochs=1)"
        assert "train" in words(notebook.run("%staging").html)
        notebook.run("with staging.StagingSession() as sess:\n    for _ in range(4):\n        sess.run(x)")
        assert table(notebook.run("sess.stats()").html)[1][:2] == ["train", "4"]
