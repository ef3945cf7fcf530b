"""Canaries: one for each private TensorFlow name that the package uses, named after it."""

from __future__ import annotations

import inspect
import logging
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf2
import tensorflow.compat.v1 as tf

from staging_tf1 import _tf

pytestmark = pytest.mark.usefixtures("graph")


def test_func_graph_is_what_functions_are_built_in(graph: Any) -> None:
    seen: list[Any] = []

    @tf2.function(autograph=False)
    def function() -> Any:
        seen.append(tf.get_default_graph())
        return tf.constant(1)

    function()
    assert isinstance(seen[0], _tf.FuncGraph)
    assert seen[0].outer_graph is graph
    assert seen[0].name == "function"


def test_config_is_op_determinism_enabled() -> None:
    from tensorflow.python.framework import config

    assert _tf.deterministic_ops() is config.is_op_determinism_enabled() is False


def test_func_graph_classes_of_control_flow_keep_their_names() -> None:
    from tensorflow.python.ops import control_flow_v2_func_graphs as classes

    for name in ("CondBranchFuncGraph", "WhileCondFuncGraph", "WhileBodyFuncGraph"):
        assert issubclass(getattr(classes, name), _tf.FuncGraph)


def test_graph_get_control_flow_context(graph: Any) -> None:
    was = tf.control_flow_v2_enabled()
    tf.disable_control_flow_v2()
    seen: list[Any] = []
    try:
        tf.cond(tf.constant(True), lambda: (seen.append(_tf.control_flow_context(graph)), 1)[1], lambda: 2)
    finally:
        if was:
            tf.enable_control_flow_v2()
    assert seen[0].IsCondContext() and not seen[0].IsWhileContext() and seen[0].outer_context is None
    assert _tf.control_flow_context(graph) is None


def test_operation_update_input_and_add_control_input() -> None:
    with tf.variable_scope("", use_resource=False):
        total = tf.get_variable("total", initializer=2.0)
    out, counted = tf.negative(total), tf.get_variable("counted", initializer=0.0, use_resource=True)
    _tf.replace_input(out.op, 0, tf.raw_ops.DeepCopy(x=total))
    _tf.add_control_input(out.op, counted.assign_add(1.0, read_value=False))
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        assert sess.run(out) == -2.0 and sess.run(counted) == 1.0
    assert out.op.inputs[0].op.type == "DeepCopy"


def test_session_make_callable_from_options() -> None:
    x = tf.placeholder(tf.float32, [])
    total = tf.get_variable("total", initializer=0.0, use_resource=True)
    add = total.assign_add(x, read_value=False)
    with tf.Session() as sess:
        sess.run(total.initializer)
        _tf.fast_callable(sess, feeds=[x], targets=[add])(np.float32(2.5))
        assert sess.run(total) == 2.5
        assert _tf.fast_callable(sess, feeds=[x], targets=[], fetches=[x * 2])(np.float32(4)) == [8]


def test_a_callable_in_the_caller_thread_can_wait_without_a_thread_of_the_pool() -> None:
    queue = tf.FIFOQueue(1, tf.float32, [])
    x = tf.placeholder(tf.float32, [])
    enqueue, dequeue = queue.enqueue(x), queue.dequeue()
    config = tf.ConfigProto(inter_op_parallelism_threads=1, intra_op_parallelism_threads=1)
    with tf.Session(config=config) as sess:
        put = _tf.fast_callable(sess, feeds=[x], targets=[enqueue], in_caller_thread=True)
        threads = [threading.Thread(target=put, args=(np.float32(number),)) for number in range(4)]
        for thread in threads:
            thread.start()
        assert sorted(sess.run(dequeue) for _ in threads) == [0, 1, 2, 3]
        for thread in threads:
            thread.join()


def test_graph_container(graph: Any) -> None:
    assert _tf.current_container(graph) == ""
    with tf.container("mine"):
        assert _tf.current_container(graph) == "mine"


def test_graph_get_function_and_its_definition(graph: Any) -> None:
    tf2.data.Dataset.range(3).map(lambda x: x + 1)
    tf.data.make_one_shot_iterator(tf2.data.Dataset.range(3))
    names = {op.type: [each.func.name for each in op.node_def.attr.values()] for op in graph.get_operations()}
    for kind, inside in (("MapDataset", "AddV2"), ("OneShotIterator", "RangeDataset")):
        (name,) = filter(None, names[kind])
        assert inside in [node.op for node in _tf.function_def(graph, name).node_def]
    assert _tf.function_def(graph, "unknown") is None


def test_op_def_registry_says_what_is_stateful() -> None:
    stateful = {"PyFunc": True, "FIFOQueueV2": True, "Timestamp": True, "AddV2": False, "no op": False}
    assert {name: _tf.is_stateful(name) for name in stateful} == stateful


def test_datasets_say_whether_their_order_is_fixed(graph: Any) -> None:
    for deterministic in (None, True, False):
        options = tf.data.Options()
        if deterministic is not None:
            options.deterministic = deterministic
        numbers = tf2.data.Dataset.range(3)
        mapped = numbers.map(lambda x: x, num_parallel_calls=2, deterministic=deterministic)
        for dataset in (mapped, numbers.with_options(options)):
            node = tf.data.experimental.to_variant(dataset).op.node_def
            assert _tf.allows_any_order(node) is (deterministic is False), node
    assert not _tf.allows_any_order(tf.no_op().node_def)


def test_operation_set_device(graph: Any) -> None:
    with tf.device("/job:ps"), tf.device("/cpu:1"):
        assert _tf.scope_device() == "/job:ps/device:CPU:1"
    assert [op.device for op in graph.get_operations()] == [""]


def test_ops_default_graph_stack() -> None:
    assert _tf.has_default_graph()
    with tf.Graph().as_default():
        assert _tf.has_default_graph()


def test_graph_session_run_lock(graph: Any) -> None:
    log = SimpleNamespace(runs=0)
    _tf.count_runs(graph, log)
    constant = tf.constant(1)
    other = tf.Graph()
    with other.as_default():
        two = tf.constant(2)
    with tf.Session() as sess, tf.Session(graph=other) as unwatched:
        sess.run(constant)
        sess.run([constant])
        unwatched.run(two)
    assert log.runs == 2
    # The wrapped lock is still a lock: ops can be added between runs.
    assert tf.constant(3).graph is graph


def test_tf_stack_extract_stack_sees_through_autograph() -> None:
    stacks: list[Any] = []

    @tf2.function
    def converted() -> Any:
        stacks.append(_tf.original_stack())
        return tf.constant(1)

    converted()
    files = [(filename, function) for filename, _, function in stacks[0]]
    assert (__file__, "converted") in files
    assert not any("__autograph_generated_file" in filename for filename, _ in files)


def test_tf_stack_filter_leaves_files_out() -> None:
    with _tf.own_frames_hidden():
        hidden = _tf.op_stack(_tf.own_variable(1.0, collections=[], name="hidden").op)
    shown = _tf.op_stack(_tf.own_variable(1.0, collections=[], name="shown").op)
    files = [[frame[0] for frame in frames] for frames in (hidden, shown)]
    assert all(__file__ in each for each in files)
    assert [any(name.startswith(_tf.PACKAGE) for name in each) for each in files] == [False, True]


def test_every_private_name_has_a_canary() -> None:
    tested = inspect.getsource(inspect.getmodule(test_every_private_name_has_a_canary))  # type: ignore[arg-type]
    public = {"tf", "Dataset"}
    assert [name for name in _tf.__all__ if name not in public and f"_tf.{name}" not in tested] == []


def test_a_run_goes_past_the_wrapper_of_one_session() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        session.run = lambda *_: pytest.fail("the wrapper was called")
        assert _tf.run_unwrapped(session, tf.constant(1)) == 1


def test_session_closed() -> None:
    with tf.Graph().as_default():
        session = tf.Session()
        assert not _tf.is_closed(session)
        session.close()
        assert _tf.is_closed(session)


def test_session_create_counter() -> None:
    before = _tf.sessions_created()
    with tf.Session():
        assert _tf.sessions_created() == before + 1


def test_session_session_is_what_is_freed() -> None:
    session = tf.Session()
    assert session.run(tf.constant(1)) == 1
    _tf.abandon(session)
    session.close()
    del session


def test_base_session_del(monkeypatch: Any) -> None:
    base = tf.Session.__base__
    monkeypatch.setattr(base, "__del__", base.__del__)
    assert "__del__" not in vars(tf.Session) and "__del__" not in vars(tf.InteractiveSession)
    _tf.never_free_sessions()
    session = tf.Session()
    session.__del__()
    assert session.run(tf.constant(1)) == 1
    session.close()


def test_eager_context_handle() -> None:
    from tensorflow.python.eager import context

    context.ensure_initialized()
    handle = context.context_safe()._context_handle
    before = sys.getrefcount(handle)
    _tf.abandon_eager_context()
    assert sys.getrefcount(handle) == before + 1


def test_file_writer_cache_and_event_writer(tmp_path: Any, monkeypatch: Any) -> None:
    cache = tf.summary.FileWriterCache
    monkeypatch.setattr(cache, "_cache", {})
    writer = cache.get(str(tmp_path))
    assert list(cache._cache.values()) == [writer]
    writer.flush()
    _tf.close_summary_writers()
    writer.flush()  # a writer marked as closed does not wait
    writer.event_writer._closed = False
    writer.close()


def test_graph_finalize_is_looked_up_at_the_graph(graph: Any) -> None:
    # A MonitoredSession calls it after it has chosen its saver, and before it restores.
    found: list[Any] = []
    _tf.call_before_finalize(graph, lambda: found.extend(graph.get_collection(tf.GraphKeys.SAVERS)))
    tf.get_variable("v", [], use_resource=True)
    with tf.train.MonitoredTrainingSession():
        assert [type(saver) for saver in found] == [tf.train.Saver]
        assert graph.finalized


def test_add_check_numerics_ops_asks_the_graph_for_its_ops(graph: Any) -> None:
    seen, hidden = tf.constant(1.0, name="seen"), tf.constant(2.0, name="hidden")
    _tf.hide_from_numeric_checks(graph, lambda: {hidden.op})
    assert {seen.op, hidden.op} <= {*graph.get_operations()}
    tf.add_check_numerics_ops()
    checked = {op.inputs[0].name for op in graph.get_operations() if op.type == "CheckNumerics"}
    assert checked == {seen.name}


def test_coordinator_registered_threads_and_clean_stop_exception_types(graph: Any, capfd: Any) -> None:
    """A queue runner in a run that only the end of the session ends, as that of a SyncReplicasOptimizer."""
    queue, never = tf.FIFOQueue(1, tf.int32, [], name="tokens"), tf.FIFOQueue(1, tf.int32, [])
    begun = tf.FIFOQueue(1, tf.int32, [])
    with tf.control_dependencies([begun.enqueue(1)]):
        value = never.dequeue()
    runner = tf.train.QueueRunner(queue, [queue.enqueue(value)])
    coord = tf.train.Coordinator(clean_stop_exception_types=[])
    with tf.Session() as session:
        filling, closing = runner.create_threads(session, coord, start=True)
        session.run(begun.dequeue())
        assert _tf.leave_to_close(coord, "other") == []
        assert _tf.leave_to_close(coord, "tokens") == [filling]
        coord.request_stop()
        coord.join(stop_grace_period_secs=100)
        assert filling.is_alive() and not closing.is_alive()
    filling.join()
    assert "CancelledError" not in capfd.readouterr().err


def test_tf_export_takes_another_component() -> None:
    from tensorflow.python.util import tf_export

    if hasattr(tf_export, "ESTIMATOR_API_NAME"):
        pytest.skip("TensorFlow 2.15 has the component")

    class Lent:
        pass

    with _tf.estimator_exports():
        tf_export.api_export("estimator.Lent", api_name=tf_export.ESTIMATOR_API_NAME)(Lent)
    assert Lent._estimator_api_names == Lent._estimator_api_names_v1 == ("estimator.Lent",)  # type: ignore[attr-defined]
    assert not hasattr(tf_export, "ESTIMATOR_API_NAME")
    assert "estimator" not in {**tf_export.API_ATTRS, **tf_export.API_ATTRS_V1}


def test_module_wrapper_logs_renamed_names() -> None:
    from types import ModuleType

    from tensorflow.python.util.module_wrapper import TFModuleWrapper

    wrapped = TFModuleWrapper(ModuleType("old"), "old", deprecation=True)
    assert wrapped._tfmw_print_deprecation_warnings
    _tf.log_no_renamed_names(wrapped)
    assert not wrapped._tfmw_print_deprecation_warnings


def test_pywrap_tfe_list_physical_devices() -> None:
    assert b"/physical_device:CPU:0" in _tf.list_physical_devices()


def test_deprecation_printed_warning() -> None:
    from tensorflow.python.util import deprecation

    logged: list[str] = []
    handler = _Collects(logged)
    tf.get_logger().addHandler(handler)
    # The process that the workers of pytest are forks of logs errors only.
    tf.get_logger().setLevel(logging.WARNING)
    try:
        deprecation._PRINTED_WARNING.clear()
        with tf.Session() as sess:
            for _ in range(2):
                tf.train.start_queue_runners(sess)
        tf.train.QueueRunner(tf.FIFOQueue(1, [tf.float32]), [tf.no_op()])
    finally:
        tf.get_logger().removeHandler(handler)
    advice = [line for line in logged if line.startswith("From ")]
    assert [line.split(": ")[1].split(" ")[0] for line in advice] == ["start_queue_runners", "QueueRunner.__init__"]
    # The newest entries are those of the last advice: for a class, its constructor's and then its own.
    assert list(deprecation._PRINTED_WARNING)[-1] is not None
    assert len(deprecation._PRINTED_WARNING) in (2, 3)


class _Collects(logging.Handler):
    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self.lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def test_eager_mode_in_a_graph(graph: Any) -> None:
    with _tf.eager_mode():
        assert int(tf.constant(3) + 4) == 7
    assert not tf.executing_eagerly() and graph.get_operations() == []


def test_session_run_and_make_callable_are_seen_and_our_own_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_tf, "_wrapper", None)
    seen: list[Any] = []

    def around(session: Any, fetches: Any, feed_dict: Any, call: Any) -> Any:
        seen.append((fetches, feed_dict))
        return call()

    x, y = tf.placeholder(tf.int32, []), tf.constant(1)
    total = x + y
    with tf.Session() as sess:
        run, call = sess.run, sess.make_callable(y)
        _tf.wrap_runs(around)
        assert run(x, {x: 7}) == 7
        assert call() == sess.make_callable(x, [x])(1) == 1
        assert _tf.run_unwrapped(sess, y) == _tf.plain_callable(sess, y)() == 1
        handle = sess.partial_run_setup([total], [x])
        assert sess.partial_run(handle, total, {x: 2}) == 3
    assert seen == [(x, {x: 7}), (y, None), (x, {x: 1}), (total, {x: 2})]


class _Noted:
    """An entry that notes what it is called with, and fetches one tensor more."""

    def __init__(self, more: Any) -> None:
        self.told: list[Any] = []
        self._more = more

    def run(self, fetches: Any, feed_dict: Any, call: Any) -> Any:
        self.told.append(("run", fetches, feed_dict))
        return call([fetches, self._more], feed_dict)

    def set_up_parts(self, fetches: Any, feeds: Any, call: Any) -> str:
        self.told.append(("set up", fetches, feeds))
        return str(call())

    def run_part(self, handle: str, fetches: Any, feed_dict: Any, call: Any) -> Any:
        self.told.append(("part", fetches, feed_dict))
        return call(fetches, feed_dict)


def test_session_run_enters_the_entry_of_its_session_only(graph: Any) -> None:
    x, y = tf.placeholder_with_default(1, []), tf.constant(2)
    double = 2 * x
    entry = _Noted(y)
    with tf.Session() as sess, tf.Session() as other:
        call = sess.make_callable(x, accept_options=True)
        _tf.enter_runs(sess, entry)
        metadata = tf.RunMetadata()
        assert sess.run(x, {x: 7}, tf.RunOptions(output_partition_graphs=True), metadata) == [7, 2]
        assert metadata.partition_graphs
        assert call(tf.RunOptions()) == [1, 2]
        assert x.eval() == 1, "of the innermost session"
        handle = sess.partial_run_setup([double], [x])
        assert sess.partial_run(handle, double, {x: 3}) == 6
        assert _tf.run_unwrapped(sess, [x, {"y": y}]) == [1, {"y": 2}]
        assert other.run(x) == 1
        wanted = [("run", x, {x: 7}), ("run", x, None), ("set up", [double], [x]), ("part", double, {x: 3})]
        assert entry.told == wanted
        _tf.enter_runs(sess, None)
        assert (sess.run(x), call()) == (1, 1) and entry.told == wanted


def test_queue_runner_runs_per_session() -> None:
    queue = tf.FIFOQueue(1, tf.int32, [])
    runner = tf.train.QueueRunner(queue, [queue.enqueue(1)])
    with tf.Session() as sess:
        assert _tf.runner_threads(runner, sess) is None
        coord = tf.train.Coordinator()
        threads = runner.create_threads(sess, coord, daemon=True, start=True)
        assert _tf.runner_threads(runner, sess) == 1
        coord.request_stop()
        coord.join(threads)


def test_graph_unsafe_unfinalize(graph: Any) -> None:
    graph.finalize()
    with _tf.reopened(graph):
        added = tf.constant(1)
    assert graph.finalized and added.graph is graph


@pytest.mark.parametrize("as_dict", [False, True])
def test_saver_var_list_and_is_built_and_allow_empty(graph: Any, tmp_path: Path, as_dict: bool) -> None:
    a, b = (tf.get_variable(name, initializer=1.0) for name in "ab")
    saver = tf.train.Saver({"x": a, "y": b} if as_dict else [a, b])
    graph.finalize()
    with tf.Session() as sess:
        sess.run([a.initializer, b.initializer])
        path = saver.save(sess, str(tmp_path / "model"), write_meta_graph=False)
        with _tf.reopened(graph):
            sess.run([a.assign(2.0), b.assign(2.0)])
        rest = _tf.saver_without(saver, [b])
        rest.restore(sess, path)
        assert sess.run([a, b]) == [1.0, 2.0]
        assert _tf.saver_without(saver, [b]) is rest and graph.finalized
        _tf.saver_without(saver, [a, b]).restore(sess, path)
        saver.restore(sess, path)
        assert sess.run([a, b]) == [1.0, 1.0]
    with _tf.reopened(graph):
        of_ops = tf.train.Saver(saver_def=saver.as_saver_def())
    assert _tf.saver_without(of_ops, [b]) is of_ops


def test_op_traceback() -> None:
    assert any(frame[0] == __file__ for frame in _tf.op_stack(tf.constant(1).op))


def test_the_ops_of_a_function_with_those_of_its_loops() -> None:
    def call(numbers: Any) -> Any:
        return tf.map_fn(lambda number: tf.cond(number > 0, lambda: tf.exp(number), lambda: number), numbers)

    function = tf.function(call, autograph=False).get_concrete_function(tf.TensorSpec([None], tf.float32))
    types = [{op.type for op in graph.get_operations()} for graph in _tf.with_inner_graphs(function.graph)]
    assert "Exp" not in types[0] and sum("Exp" in inner for inner in types) == 1


def test_graph_group_lock(graph: Any) -> None:
    graph._group_lock._ready.acquire()
    _tf.free_run_lock(graph, secs=0.01)
    _tf.free_run_lock(graph, secs=0.01)
    x = tf.constant(1)
    with tf.Session() as sess:
        assert sess.run(x) == 1


def test_trace_enabled_only_while_a_profiler_runs(tmp_path: Path) -> None:
    with _tf.profiled("before") as event:
        assert event is None
    tf2.profiler.experimental.start(str(tmp_path))
    with _tf.profiled("within", batch=3) as event:
        event.set_metadata(step=4)
    tf2.profiler.experimental.stop()
    with _tf.profiled("after") as event:
        assert event is None
    (path,) = tmp_path.rglob("*.xplane.pb")
    found = path.read_bytes()
    assert b"within" in found and b"before" not in found and b"after" not in found


def test_inner_runs_are_wrapped_and_parsed_fetches_run(monkeypatch: pytest.MonkeyPatch) -> None:
    # Put back at the end.
    monkeypatch.setattr(_tf, "_inner_wrapper", None)
    seen: list[Any] = []

    def wrapper(run: Any, session: Any, fetches: Any, feed_dict: Any, options: Any, run_metadata: Any) -> Any:
        seen.append((fetches, feed_dict, options))
        return run(fetches, feed_dict, options, run_metadata)

    _tf.wrap_inner_runs(wrapper)
    x = tf.placeholder(tf.float32, [])
    doubled, nothing = 2.0 * x, tf.no_op()
    with tf.Session() as sess:
        assert sess.run(doubled, {x: 2.0}) == 4.0
        assert seen == [(doubled, {x: 2.0}, None)]
        parsed = _tf.parsed_fetches(sess, [doubled, nothing])
        assert len(parsed.outputs) == len(parsed.targets) == 1
        assert parsed.handler.fetches() == [doubled]
        assert _tf.run_parsed(sess, parsed, {_tf.output_of(x): np.float32(3)}, None, None) == [6.0, None]
        with pytest.raises(tf.errors.InvalidArgumentError, match="must feed a value") as caught:
            _tf.run_parsed(sess, parsed, {}, None, None)
        assert caught.value.op is x.op
        handle = sess.partial_run_setup([doubled], [x])
        assert sess.partial_run(handle, doubled, {x: 1.0}) == 2.0
        assert len(seen) == 1


def test_callable_handle_and_its_release(graph: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    released: list[int] = []
    release = _tf._c_api.TF_SessionReleaseCallable
    monkeypatch.setattr(_tf._c_api, "TF_SessionReleaseCallable", lambda *a: released.append(a[1]) or release(*a))
    x = tf.placeholder(tf.float32, [])
    checked, nothing = tf.check_numerics(2.0 * x, "not finite"), tf.no_op()
    with tf.Session() as sess:
        compiled = _tf.CompiledRun(sess, _tf.parsed_fetches(sess, [checked, nothing]), [x])
        assert compiled(sess, [np.array(3, np.float32)], None) == [6.0, None]
        with pytest.raises(tf.errors.InvalidArgumentError, match="not finite") as caught:
            compiled(sess, [np.array(np.nan, np.float32)], None)
        assert caught.value.op is checked.op
        number = compiled._number
        # Its frames have the callable.
        del compiled, caught
        assert released == [number]


def test_buffer_of_options() -> None:
    empty, timed = (_tf._c_api.TF_NewBufferFromString(text) for text in (b"", b"\x10\x05"))
    assert _tf.is_default(None) and _tf.is_default(empty) and not _tf.is_default(timed)
    for buffer in (empty, timed):
        _tf._c_api.TF_DeleteBuffer(buffer)


def test_session_whose_class_replaces_an_inner_run() -> None:
    class Other(tf.Session):
        def _do_run(self, *arguments: Any) -> Any:
            return super()._do_run(*arguments)

    assert _tf.replaces_inner_run(Other()) and not _tf.replaces_inner_run(tf.Session())


def test_graph_handle_feeders(graph: Any) -> None:
    value = tf.constant(1)
    with tf.Session() as sess:
        assert not _tf.has_handle_feeds(graph)
        handle = sess.run(tf.get_session_handle(value))
        tf.get_session_tensor(handle.handle, tf.int32)
        assert isinstance(handle, _tf.TensorHandle)
        assert _tf.has_handle_feeds(graph)


def test_feeds_are_converted_as_tensorflow_does_it() -> None:
    assert _tf.as_feed_array([1, 2], np.float32).dtype == np.float32
    assert _tf.converted_number(np.int32, 3) == 3 and _tf.converted_number(np.int32, 2**40) != 2**40
    assert [type(tf.get_variable(f"v{kind}", [], use_resource=kind)) for kind in (False, True)] == [
        _tf.RefVariable,
        _tf.ResourceVariable,
    ]


def test_resource_variable_is_made_past_the_scopes_of_variable_creators(graph: Any) -> None:
    def creator(next_creator: Any, **options: Any) -> Any:
        raise AssertionError("asked")

    with tf.variable_creator_scope(creator):
        made = _tf.own_variable([1.0], trainable=False, name="made")
    assert type(made) is type(tf.Variable(0.0, use_resource=True))
    assert made.op.name == "made" and tf.global_variables()[0] is made


def test_resource_variable_of_a_variable_def_without_elements(graph: Any) -> None:
    held = _tf.own_variable([1, 2], shape=[None], trainable=False, collections=[], name="held")
    count = len(graph.get_operations())
    seen = _tf.without_elements(held)
    assert len(graph.get_operations()) == count
    assert isinstance(seen, _tf.ResourceVariable) and seen.op is held.op and seen.handle is held.handle
    assert (seen.initializer, seen.device) == (held.initializer, held.device)
    assert (seen.dtype, seen.shape.as_list(), seen.get_shape().as_list()) == (tf.float32, [0], [0])
    assert seen.to_proto() == held.to_proto()
    tensors = [tf.identity(seen), seen.value(), seen.read_value(), seen.initial_value, seen + 1.0]
    with tf.Session() as sess:
        assert sess.run(tf.is_variable_initialized(seen)) is np.False_
        sess.run(seen.initializer)
        assert [each.shape for each in sess.run(tensors)] == [(0,)] * 5
        assert sess.run(seen).tolist() == seen.eval(sess).tolist() == sess.run({"a": [seen]})["a"][0].tolist() == [1, 2]
        seen.load([3, 4], sess)
        assert sess.run(held).tolist() == [3, 4]
        sess.run(tf.assign(seen, [4, 5, 6]))
        assert sess.run(held).tolist() == [4, 5, 6]


def test_checkpoint_utils_init_from_checkpoint(graph: Any, tmp_path: Path) -> None:
    """TensorFlow calls it by its name in the module, and with the arguments of `tf.train.init_from_checkpoint`."""
    from tensorflow.python.training import checkpoint_utils

    held = _tf.own_variable([1, 2], shape=[None], trainable=False, collections=[], name="held")
    seen = _tf.without_elements(held)
    assert [*inspect.signature(checkpoint_utils._init_from_checkpoint).parameters] == [
        "ckpt_dir_or_file",
        "assignment_map",
    ]
    with tf.Session() as sess:
        sess.run(held.initializer)
        path = tf.train.Saver([held]).save(sess, str(tmp_path / "model"))
    for pairs in ({"held": seen}, [("held", seen)]):
        tf.train.init_from_checkpoint(path, pairs)
        with tf.Session() as sess:
            sess.run(seen.initializer)
            assert sess.run(held).tolist() == [1, 2]
