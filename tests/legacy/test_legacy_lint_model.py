"""The model below `staging-tf1 check`: names, origins, calls, what a run executes, and what leaves the file's sight."""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path

import pytest

from staging_tf1.legacy.lint import checker
from staging_tf1.legacy.lint.configuration import Configuration
from staging_tf1.legacy.lint.flow.analysis import Analysis
from staging_tf1.legacy.lint.flow.graph import GLOBAL_INIT, LOCAL_INIT, bit
from staging_tf1.legacy.lint.model import reader

AREA = """
import tensorflow as tf
import staging_tf1
area = staging_tf1.StagingArea([tf.float32])
put, got = area.put([tf.zeros([])]), area.get()
sess = tf.Session()
"""


def analysed(text: str, before: str = "") -> Analysis:
    source = before + textwrap.dedent(text)
    return Analysis("a.py", source.splitlines(), reader.read(ast.parse(source)))


def names(analysis: Analysis) -> list[str]:
    return [analysis.program.name(call) for call in analysis.program.calls]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("import tensorflow as tf\ntf.train.Saver()", "tensorflow.train.Saver"),
        ("import tensorflow.compat.v1 as tf\ntf.train.Saver()", "tensorflow.train.Saver"),
        ("import tensorflow\ntensorflow.compat.v1.train.Saver()", "tensorflow.train.Saver"),
        ("from tensorflow import train\ntrain.Saver()", "tensorflow.train.Saver"),
        ("from tensorflow.train import Saver as S\nS()", "tensorflow.train.Saver"),
        ("import tensorflow as tf\nt = tf.train\nt.Saver()", "tensorflow.train.Saver"),
        (
            "try:\n    import tensorflow.compat.v1 as tf\nexcept ImportError:\n    import tensorflow as tf\ntf.x()",
            "tensorflow.x",
        ),
        ("def f():\n    import tensorflow as tf\n    tf.x()", "tensorflow.x"),
        ("import tensorflow as tf\ndef f(tf):\n    tf.x()", ""),
        ("import tensorflow as tf\ntf = object()\ntf.x()", ""),
        ("from . import train\ntrain.Saver()", "..train.Saver"),
        ("def train(): pass\ntrain.Saver()", ""),
    ],
)
def test_names_are_resolved_by_scope_and_import(text: str, name: str) -> None:
    assert names(analysed(text))[-1] == name


@pytest.mark.parametrize(
    ("text", "called"),
    [
        ("def run(): pass\nsess.run(x)", []),
        ("class A:\n    def run(self): pass\nA().run()", ["run"]),
        ("class A:\n    def go(self): self.run()\n    def run(self): pass", ["run"]),
        ("class B:\n    def run(self): pass\nclass A(B):\n    def go(self): self.run()", ["run"]),
        ("def run(): pass\nclass A:\n    def go(self): run()", ["run"]),
        ("class A:\n    def run(self): pass\n    def go(self): run()", []),
        ("def run(): pass\nalias = run\nalias()", ["run"]),
        ("def f():\n    def run(): pass\n    return run\nf()()", ["run"]),
        ("def outer():\n    def run(): pass\nrun()", []),
        ("def run(): pass\ndef f(run):\n    run()", []),
        ("x = x.run()\nx = x.run()", []),
    ],
)
def test_a_call_calls_what_python_would_call(text: str, called: list[str]) -> None:
    analysis = analysed(text)
    last = max(analysis.program.calls, key=lambda call: call.line)
    assert [one.name for one in analysis.values.callees(last.node, last.scope)] == called


def test_a_name_belongs_to_the_scope_that_binds_it() -> None:
    analysis = analysed(
        """
        x = 1
        class A:
            x = 2
            def f(self, y):
                return [x for x in y]
        def g():
            global x
            x = 3
        def h():
            n = 0
            def i():
                nonlocal n
                n = 1
        """
    )
    module = analysis.program.reading.module
    assert [ast.unparse(one.value) for one in module.variables["x"].bindings if one.value] == ["1", "3"]
    outer = next(scope for scope in analysis.program.reading.functions if scope.name == "h")
    assert len(outer.variables["n"].bindings) == 2
    method = next(scope for scope in analysis.program.reading.functions if scope.name == "f")
    assert method.find("x") is module.variables["x"]


def moves(text: str) -> list[tuple[bool, bool, bool, bool]]:
    """(may put, puts, may get, gets) of each run."""
    analysis = analysed(text, AREA)
    (area,) = analysis.program.areas
    put, get = bit(area, "put"), bit(area, "get")
    return [
        (bool(run.may & put), bool(run.must & put), bool(run.may & get), bool(run.must & get))
        for run in analysis.sessions.runs
    ]


PUTS, GETS, MAY_PUT = (True, True, False, False), (False, False, True, True), (True, False, False, False)
BOTH, NEITHER = (True, True, True, True), (False, False, False, False)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sess.run(put)", PUTS),
        ("sess.run(tf.reduce_sum(got))", GETS),
        ("step = tf.group(put, tf.square(got))\nsess.run(step)", BOTH),
        ("with tf.control_dependencies([put]):\n    step = tf.identity(got)\nsess.run(step)", BOTH),
        ("ops = []\nops.append(put)\nsess.run(ops)", PUTS),
        ("ops = []\nif x:\n    ops.append(put)\nsess.run(ops)", MAY_PUT),
        ("ops = [put] if x else []\nsess.run(ops)", MAY_PUT),
        ("ops = {'a': put}\nsess.run(ops)", PUTS),
        ("ops = [put, tf.no_op()]\nsess.run(ops[1])", MAY_PUT),
        ("def f():\n    return put, got\na, b = f()\nsess.run(a)", PUTS),
        ("def f():\n    return put, got\na, b = f()\nsess.run(b)", GETS),
        ("def f(op):\n    return tf.group(op)\nsess.run(f(put))", PUTS),
        ("class A:\n    def __init__(self):\n        self.op = put\nsess.run(A().op)", PUTS),
        (
            "class A:\n    def __init__(self, o):\n        self.op = o\n    def go(self):\n        sess.run(self.op)\n"
            "A(put)",
            PUTS,
        ),
        ("x = sess.run\nsess.run(tf.zeros([]))", NEITHER),
        ("value = sess.run(put)\nsess.run(tf.constant(value))", PUTS),
    ],
)
def test_a_run_executes_what_its_fetches_depend_on(text: str, expected: tuple[bool, ...]) -> None:
    assert moves(text)[0] == expected


def test_a_run_returns_values_not_ops() -> None:
    assert moves("value = sess.run(put)\nsess.run(tf.constant(value))")[1] == NEITHER


@pytest.mark.parametrize(
    ("text", "out"),
    [
        ("print(put)", False),
        ("def f(op):\n    tf.identity(op)\nf(put)", False),
        ("from other import f\nf(put)", True),
        ("from other import f\nf(tf.group(put))", True),
        ("tf.add_to_collection('train', put)", True),
        ("def f():\n    return put", True),
        ("def f():\n    return put\nsess.run(f())", False),
        ("tf.train.SessionRunArgs(put)", True),
        ("something.op = put", True),
    ],
)
def test_ops_that_other_code_may_run_are_known(text: str, out: bool) -> None:
    analysis = analysed(text, AREA)
    assert bool(analysis.escapes.ops & bit(analysis.program.areas[0], "put")) is out


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("import tensorflow as tf\ns = tf.Session()\ns.run(x)", True),
        ("import tensorflow as tf\nwith tf.train.MonitoredTrainingSession() as s:\n    s.run(x)", True),
        ("def f(sess):\n    sess.run(x)", True),
        (
            "class A:\n    def __init__(self, session):\n        self.s_sess = session\n"
            "    def f(self):\n        self.s_sess.run(x)",
            True,
        ),
        ("import subprocess\nsubprocess.run(x)", False),
        ("class App:\n    def run(self, x): pass\nsess = App()\nsess.run(x)", False),
        ("def f(app):\n    app.run(x)", False),
    ],
)
def test_sessions_are_known_by_their_making_or_their_name(text: str, is_one: bool) -> None:
    assert bool(analysed(text).sessions.runs) is is_one


def test_initializers_are_followed() -> None:
    analysis = analysed(
        """
        import tensorflow as tf
        init = tf.group(tf.global_variables_initializer(), tf.local_variables_initializer())
        with tf.Session() as sess:
            sess.run(init)
            tf.global_variables_initializer().run()
        """
    )
    first, second = analysis.sessions.runs
    assert first.must == GLOBAL_INIT | LOCAL_INIT and second.must == GLOBAL_INIT


def test_two_sessions_of_one_name_are_two() -> None:
    analysis = analysed(
        """
        import tensorflow as tf
        with tf.Session() as sess:
            sess.run(x)
        with tf.Session() as sess:
            sess.run(x)
            sess.run(y)
        """
    )
    first, second, third = (run.call for run in analysis.sessions.runs)
    assert not analysis.sessions.same_session(first, second)
    assert analysis.sessions.same_session(second, third)


def test_deep_and_circular_code_is_read(tmp_path: Path) -> None:
    names = [f"a{number} = a{number + 1}.f()" for number in range(500)]
    added = " + ".join(["y"] * 1000)
    path = tmp_path / "a.py"
    path.write_text("\n".join(["import tensorflow", *names, "a500 = a0", "sess.run(a0)", f"x = {added}", ""]))
    assert checker.check_file(str(path), Configuration()) == []
