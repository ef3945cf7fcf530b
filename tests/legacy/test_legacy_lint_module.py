"""The table of scopes below `staging-tf1 check`, and what the rules leave alone because it is not certain."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from staging_tf1.legacy.lint import checker
from staging_tf1.legacy.lint.module import Module


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("import tensorflow as tf\ntf.train.Saver()", "tensorflow.train.Saver"),
        ("import tensorflow.compat.v1 as tf\ntf.train.Saver()", "tensorflow.train.Saver"),
        ("import tensorflow\ntensorflow.compat.v1.train.Saver()", "tensorflow.train.Saver"),
        ("from tensorflow import train\ntrain.Saver()", "tensorflow.train.Saver"),
        ("from tensorflow.train import Saver as S\nS()", "tensorflow.train.Saver"),
        ("import tensorflow as tf\nt = tf.train\nt.Saver()", "tensorflow.train.Saver"),
        ("import tensorflow as tf\na, t = 1, tf.train\nt.Saver()", "tensorflow.train.Saver"),
        (
            "try:\n    import tensorflow.compat.v1 as tf\nexcept ImportError:\n    import tensorflow as tf\ntf.x()",
            "tensorflow.x",
        ),
        ("def f():\n    import tensorflow as tf\n    tf.x()", "tensorflow.x"),
        ("def f():\n    def g():\n        nonlocal tf\n        tf.x()\n    import tensorflow as tf", "tensorflow.x"),
        ("def f():\n    global tf\n    import tensorflow as tf\ntf.x()", "tensorflow.x"),
        ("import tensorflow as tf\nclass A:\n    tf = 1\n    def f(self):\n        tf.x()", "tensorflow.x"),
        ("import tensorflow as tf\n[tf.x() for y in z]", "tensorflow.x"),
        ("import tensorflow as tf\n[tf.x() for tf in z]", ""),
        ("import tensorflow as tf\ndef f(tf):\n    tf.x()", ""),
        ("import tensorflow as tf\ndef f(y=tf.x()):\n    tf = 1", "tensorflow.x"),
        ("import tensorflow as tf\ntf = object()\ntf.x()", ""),
        ("a = b\nb = a\na.x()", ""),
        ("from . import train\ntrain.Saver()", "..train.Saver"),
        ("def train(): pass\ntrain.Saver()", ""),
        ("match y:\n    case [tf]:\n        tf.x()", ""),
    ],
)
def test_names_are_resolved_by_scope_and_import(text: str, name: str) -> None:
    module = Module(ast.parse(text))
    assert module.full_name(module.calls[-1].func) == name


START = """import tensorflow as tf
import numpy as np
area = tf.contrib.staging.StagingArea([tf.float32])
rate = tf.get_variable("rate", [])
batch = tf.train.batch([tf.zeros([])], 8)
"""
LOOP = "with tf.Session() as sess:\n    for step in range(9):\n        sess.run(rate)\n"
STEP = "        {}\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        # an area that other code may hold
        ("area.get()\ntf.Session()", ["STG104"]),
        ("area.put([1.0])\ntf.Session()", ["STG105"]),
        ("area.get()", []),  # another module may import it
        ("def f():\n    a = tf.contrib.staging.StagingArea([tf.int32])\n    return a.get()", ["STG104"]),
        ("area.get()\nf(area)\ntf.Session()", []),
        ("area.get()\nall = [area]\ntf.Session()", []),
        ("area.get()\nput = area.put\ntf.Session()", []),
        ("a = tf.contrib.staging.StagingArea([tf.int32], shared_name='a')\na.get()\ntf.Session()", []),
        ("class A: pass\nA.a = tf.contrib.staging.StagingArea([tf.int32])\nA.a.get()\ntf.Session()", []),
        # a loop that repeats the same op
        (LOOP + STEP.format("sess.run(tf.assign(rate, 1.0))"), ["STG102"]),
        (LOOP + STEP.format("rate.assign_add(1.0)"), ["STG102"]),
        (LOOP + STEP.format("if step == 3: sess.run(tf.assign(rate, 1.0))"), []),
        (LOOP + STEP.format("sess.run(tf.assign(rates[step], 1.0))"), []),
        (LOOP + STEP.format("sess.run(tf.assign(next(rates), 1.0))"), []),
        (LOOP + STEP.format("with tf.Graph().as_default(): tf.assign(rate, 1.0)"), []),
        (LOOP + STEP.format("with graph.as_default(): tf.assign(rate, 1.0)"), []),
        (LOOP + STEP.format("tf.assign(rate, 1.0); break"), []),
        (LOOP + STEP.format("x = [tf.assign(r, 1.0) for r in tf.trainable_variables()]"), []),
        (LOOP.replace("range(9)", "(1, 2)") + STEP.format("tf.assign(rate, 1.0)"), []),
        ("for i in range(3):\n    sess = tf.Session()\n    sess.run(tf.assign(rate, 1.0))", []),
        (LOOP + STEP.format("a = tf.contrib.staging.StagingArea([tf.int32]); a.put([1]); a.get()"), ["STG101"]),
        (LOOP + STEP.format("a = tf.contrib.staging.StagingArea([tf.int32]); areas.append(a)"), []),
        (
            LOOP + STEP.format("with tf.device('/gpu:%d' % step):") + "            "
            "a = tf.contrib.staging.StagingArea([tf.int32]); a.put([1]); a.get()",
            [],
        ),
        # queue runners that nothing starts
        ("tf.Session().run(batch)", ["STG111"]),
        ("tf.Session().run([rate, batch + 1.0])", ["STG111"]),
        ("tf.Session().run(tf.shape(batch))", []),
        ("tf.Session().run(tf.cond(rate > 1.0, lambda: batch, lambda: 0.0))", []),
        ("tf.Session().run(batch, {batch: 1.0})", []),
        ("def f(sess):\n    sess.run(batch)", []),
        ("import other\ntf.Session().run(batch)", []),
        ("tf.train.start_queue_runners(sess)\ntf.Session().run(batch)", []),
        ("import staging_tf1\nstaging_tf1.start(sess)\ntf.Session().run(batch)", []),
        # threads before the initializer
        (
            "sess = tf.Session()\ntf.train.start_queue_runners(sess)\nsess.run(tf.global_variables_initializer())",
            ["STG110"],
        ),
        (
            "sess = tf.Session()\ninit(sess)\ntf.train.start_queue_runners(sess)\n"
            "sess.run(tf.global_variables_initializer())",
            [],
        ),
        (
            "sess = tf.Session()\nif x:\n    tf.train.start_queue_runners(sess)\n"
            "sess.run(tf.global_variables_initializer())",
            [],
        ),
        ("def f(sess):\n    tf.train.start_queue_runners(sess)\n    sess.run(tf.global_variables_initializer())", []),
        # an array
        ("np.zeros(3)[1:].tostring()", ["STG119"]),
        ("for row in np.zeros([2, 2]):\n    row.tostring()", ["STG119"]),
        ("def f(x):\n    x.tostring()\nf(np.zeros(3))", []),
        ("image.transpose(1).tostring()", []),
    ],
)
def test_a_finding_is_certain_or_absent(text: str, found: list[str], tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(START + text + "\n")
    result = checker.check_file(str(tmp_path / "a.py"))
    assert not isinstance(result, str) and [finding.code for finding in result] == found


OWN = """import tensorflow.compat.v1 as tf
import staging_tf1 as staging
batch = staging.staged(records)
labels = tf.one_hot(indices=batch["label"], depth=10)
def model(images, size=10):
    hidden = tf.matmul(images, tf.zeros([784, size]))
    return hidden, tf.nn.softmax(hidden)
def count(images):
    return images.shape[0], tf.nn.softmax(images)
logits, predicted = model(batch["image"], size=10)
loss = tf.losses.softmax_cross_entropy(onehot_labels=labels, logits=logits)
train_op = tf.train.AdamOptimizer().minimize(loss)
runner = staging.CustomRunner(records)
sess = tf.Session()
sess.run(tf.global_variables_initializer())
"""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("sess.run(train_op)", True),
        ("sess.run({'loss': loss})", True),
        ("sess.run(predicted)", True),
        ("sess.run(runner.get_inputs())", True),
        ("import mine\nsess.run(train_op)", True),
        ("import mine.deep\nfrom mine import sizes\nfrom mine.deep import image\nsess.run(train_op)", True),
        ("sess.run(count(batch['image'])[0])", False),
        ("sess.run(other(batch['image']))", False),
        ("sess.run(tf.shape(batch['image']))", False),
        ("sess.run(loss, {batch['image']: images})", False),
        ("staging.start(sess)\nsess.run(train_op)", False),
        ("runner.start_threads(sess)\nsess.run(train_op)", False),
        ("getattr(staging, 'start')(sess)\nsess.run(train_op)", False),
        ("exec(text)\nsess.run(train_op)", False),
        ("import unknown\nsess.run(train_op)", False),
        ("import mine.absent\nsess.run(train_op)", False),
        ("import mine.broken\nsess.run(train_op)", False),
        ("import mine.starting\nsess.run(train_op)", False),
        ("import mine.deeper\nsess.run(train_op)", False),  # imports mine.starting
    ],
)
def test_an_input_is_unstarted_only_if_no_module_of_the_program_starts_it(
    text: str, found: bool, tmp_path: Path
) -> None:
    package = tmp_path / "mine"
    package.mkdir()
    (package / "__init__.py").write_text("import numpy as np\nsizes = np.ones(3)\n")
    (package / "deep.py").write_text("from . import sizes\nimage = sizes\n")
    (package / "deeper.py").write_text("def f():\n    from .starting import go\n")
    (package / "starting.py").write_text("def go(sess, staging):\n    staging.start(sess)\n")
    (package / "broken.py").write_text("x = (\n")
    (tmp_path / "a.py").write_text(OWN + text + "\n")
    result = checker.check_file(str(tmp_path / "a.py"))
    assert not isinstance(result, str) and [finding.code for finding in result] == ["STG111"] * found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("batch = staging.staged(records)\nsess.run(batch)", "the first step fails; use staging.StagingSession()"),
        (
            "from staging_tf1 import CustomRunner as R\nsess.run(R(records).get_inputs())",
            "the first step blocks forever; use staging.StagingSession()",
        ),
        ("sess.run(tf.train.batch([tf.zeros([])], 8))", "tf.train.start_queue_runners(sess, coord)"),
    ],
)
def test_an_unstarted_input_says_what_starts_it(text: str, message: str, tmp_path: Path) -> None:
    start = "import tensorflow.compat.v1 as tf\nimport staging_tf1 as staging\nsess = tf.Session()\n"
    (tmp_path / "a.py").write_text(f"{start}{text}\n")
    (finding,) = checker.check_file(str(tmp_path / "a.py"))
    assert not isinstance(finding, str) and message in finding.message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("StagingArea([tf.int64], names=['y']).put({'y': x})", "component 'y' is int32, but the area declares int64"),
        ("StagingArea([tf.int32, tf.int64], None, ['a', 'b']).put({'a': x, 'b': x})", "component 'b' is int32"),
        ("MapStagingArea([tf.int64], names=['y']).put(1, {'y': x})", "component 'y' is int32"),
        ("MapStagingArea([tf.int64]).put(1, [x])", "component 0 is int32"),
        ("StagingArea([tf.int32, tf.int64], names=['a', 'b']).put({'a': x, 'b': f(x)})", ""),
        ("StagingArea([tf.int64], names=names).put({'y': x})", ""),
        ("StagingArea([tf.int64], names=[*names]).put({'y': x})", ""),
        ("StagingArea([tf.int64], names=['y']).put({**values})", ""),
        ("StagingArea([tf.int64], names=['y', 'y']).put({'y': x})", ""),
    ],
)
def test_dtypes_are_compared_by_place_and_by_name(text: str, message: str, tmp_path: Path) -> None:
    start = (
        "import tensorflow as tf\nfrom staging_tf1 import MapStagingArea, StagingArea\nx = tf.zeros([2], tf.int32)\n"
    )
    (tmp_path / "a.py").write_text(f"{start}{text}\n")
    result = checker.check_file(str(tmp_path / "a.py"))
    assert not isinstance(result, str) and len(result) == bool(message)
    assert all(message in finding.message for finding in result)


def test_deep_and_circular_code_is_read(tmp_path: Path) -> None:
    names = [f"a{number} = a{number + 1}.f()" for number in range(500)]
    added = " + ".join(["y"] * 1000)
    path = tmp_path / "a.py"
    path.write_text("\n".join(["import tensorflow", *names, "a500 = a0", "sess.run(a0)", f"x = {added}", ""]))
    assert checker.check_file(str(path)) == []
