"""The cases that run on both TensorFlows, in the syntax of Python 3.7: no annotations, no import of either.

Each case takes `tf` (the graph-mode API) and `areas` (a module with both kinds of area), builds in its own default
graph, and returns plain data.
"""

from __future__ import annotations

import threading


def _plain(value):
    """Convert numpy scalars, arrays, bytes and tuples to JSON values."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in sorted(value.items())}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, bytes):
        return value.decode()
    return value.tolist() if hasattr(value, "tolist") else value


def fifo_order_and_sizes(tf, areas):
    """Elements come back in the order of the puts; size counts them."""
    area = areas.StagingArea([tf.int32], shapes=[[]])
    x = tf.placeholder(tf.int32, [])
    put, got, size = area.put([x]), area.get(), area.size()
    log = []
    with tf.Session() as sess:
        for i in range(5):
            sess.run(put, {x: i})
            log.append(sess.run(size))
        for _ in range(5):
            log.append(sess.run(got))
            log.append(sess.run(size))
    return log


def forms(tf, areas):
    """The return value of get, as Python types and static shapes."""
    plain = areas.StagingArea([tf.float32, tf.int64], shapes=[[2, None], None])
    single = areas.StagingArea([tf.float32])
    named = areas.StagingArea([tf.float32, tf.int64], names=["x", "y"], shapes=[[2], []])
    from_single, from_plain, from_named = single.get(), plain.get(), named.get()
    return {
        "single": type(from_single).__name__,
        "plain": [type(from_plain).__name__, [t.shape.rank for t in from_plain], [t.dtype.name for t in from_plain]],
        "named": [type(from_named).__name__, {k: t.shape.as_list() for k, t in from_named.items()}],
        "put": [
            type(single.put(tf.constant(1.0))).__name__,
            isinstance(plain.size(), tf.Tensor),
            plain.size().dtype.name,
        ],
        "clear": type(plain.clear()).__name__,
        "peek": type(plain.peek(0)).__name__,
    }


def properties(tf, areas):
    """The properties of a named and a shared area."""
    area = areas.StagingArea(
        [tf.float32, tf.int64],
        shapes=[[2], []],
        names=["x", "y"],
        shared_name="s",
        capacity=3,
        memory_limit=999,
    )
    return {
        "name": [area.name, areas.StagingArea([tf.int32]).name, areas.StagingArea([tf.int32]).name],
        "dtypes": [dtype.name for dtype in area.dtypes],
        "shapes": [shape.as_list() for shape in area.shapes],
        "rest": [list(area.names), area.capacity, area.memory_limit],
        "attributes": [area.put({"x": tf.zeros([2]), "y": tf.zeros([], tf.int64)}).get_attr("capacity")],
    }


def dicts(tf, areas):
    """Dictionaries in, dictionaries out, in any order of the keys."""
    area = areas.StagingArea([tf.float32, tf.string], names=["b", "a"])
    put, got = area.put({"a": tf.constant("text"), "b": tf.constant(1.5)}), area.get()
    with tf.Session() as sess:
        sess.run(put)
        return sess.run(got)


def peek_and_clear(tf, areas):
    """Peek counts from the oldest element and takes nothing."""
    area = areas.StagingArea([tf.int32])
    x, i = tf.placeholder(tf.int32, []), tf.placeholder(tf.int32, [])
    put, peeked, got, size, clear = area.put([x]), area.peek(i), area.get(), area.size(), area.clear()
    with tf.Session() as sess:
        for value in (7, 8, 9):
            sess.run(put, {x: value})
        log = [sess.run(peeked, {i: n}) for n in (2, 0, 1)]
        log += [sess.run(got), sess.run(peeked, {i: 0}), sess.run(size)]
        sess.run(clear)
        return [*log, sess.run(size)]


def capacity(tf, areas):
    """A put beyond the capacity waits for a get: the size never exceeds the capacity."""
    area = areas.StagingArea([tf.int32], capacity=2)
    x = tf.placeholder(tf.int32, [])
    put, got, size = area.put([x]), area.get(), area.size()
    with tf.Session() as sess:

        def feed():
            for i in range(20):
                sess.run(put, {x: i})

        feeder = threading.Thread(target=feed)
        feeder.start()
        sizes, values = [], []
        for _ in range(20):
            sizes.append(int(sess.run(size)))
            values.append(sess.run(got)[0])
        feeder.join()
        return {"values": values, "at_most": max(sizes) <= 2, "left": sess.run(size)}


def memory_limit(tf, areas):
    """The kernel rejects an element that is too large if its size is only known at run time."""
    area = areas.StagingArea([tf.int32], memory_limit=16)
    x = tf.placeholder(tf.int32, [None])
    put, size = area.put([x]), area.size()
    with tf.Session() as sess:
        sess.run(put, {x: [0] * 4})
        try:
            sess.run(put, {x: [0] * 5})
        except tf.errors.ResourceExhaustedError as error:
            return [type(error).__name__, sess.run(size)]
    return "accepted"


def shared(tf, areas):
    """Two areas with the same shared_name are one store."""
    first, second = (areas.StagingArea([tf.int32], shared_name="same") for _ in range(2))
    put, got, size = first.put([tf.constant(4)]), second.get(), second.size()
    with tf.Session() as sess:
        sess.run(put)
        return [sess.run(size), sess.run(got), sess.run(first.size())]


def in_cond(tf, areas):
    """A put in one branch and a get in the other."""
    area = areas.StagingArea([tf.int32], shapes=[[]])
    fill = tf.placeholder(tf.bool, [])

    def put():
        with tf.control_dependencies([area.put([tf.constant(3)])]):
            return tf.constant(-1)

    either, size = tf.cond(fill, put, lambda: area.get()[0]), area.size()
    with tf.Session() as sess:
        return [sess.run(either, {fill: f}) for f in (True, True, False)] + [sess.run(size)]


def _map(tf, areas, ordered):
    area = areas.MapStagingArea([tf.int64, tf.string], ordered=ordered)
    k = tf.placeholder(tf.int64, [])
    put, (key, popped) = area.put(k, [k * 10, tf.as_string(k)], indices=[0, 1]), area.get()
    (same, pop), peeked, size = area.get(k), area.peek(k), area.size()
    log = [same is k]
    with tf.Session() as sess:
        for i in (5, 1, 9, 3):
            sess.run(put, {k: i})
        log += [sess.run(peeked, {k: 9}), sess.run(pop, {k: 9}), sess.run(size)]
        pairs = [sess.run([key, popped]) for _ in range(3)]
        sess.run(put, {k: 2})
        sess.run(area.clear())
        return [*log, pairs if ordered else sorted(pairs, key=lambda pair: pair[0]), sess.run(size)]


def map_ordered(tf, areas):
    """Pop by key; pop the smallest key."""
    return _map(tf, areas, True)


def map_unordered(tf, areas):
    """Pop by key; pop any key (sorted afterwards)."""
    return _map(tf, areas, False)


def _map_incomplete(tf, areas, ordered):
    area = areas.MapStagingArea([tf.int32, tf.float32], names=["n", "x"], ordered=ordered)
    put_n = area.put(tf.constant(1, tf.int64), {"n": tf.constant(7)})
    put_x = area.put(tf.constant(1, tf.int64), {"x": tf.constant(0.5)})
    sizes = [area.size(), area.incomplete_size()]
    key = tf.constant(1, tf.int64)
    got_x, got_n = area.get(key, indices=["x"])[1], area.get(key, indices=[0])[1]
    log = []
    with tf.Session() as sess:
        for step in (put_x, put_n, got_x, got_n):
            result = sess.run(step)
            log.append([result, sess.run(sizes)])
    return log


def map_incomplete_unordered(tf, areas):
    """Components are put one by one and taken one by one."""
    return _map_incomplete(tf, areas, False)


def map_incomplete_ordered(tf, areas):
    """Components are put one by one and taken one by one."""
    return _map_incomplete(tf, areas, True)


def map_repeated_part(tf, areas):
    """A component that is already present is rejected."""
    area = areas.MapStagingArea([tf.int32, tf.int32])
    put = area.put(tf.constant(1, tf.int64), [tf.constant(7)], indices=[0])
    with tf.Session() as sess:
        sess.run(put)
        try:
            sess.run(put)
        except tf.errors.OpError as error:
            return type(error).__name__
    return "accepted"


CASES = [
    fifo_order_and_sizes,
    forms,
    properties,
    dicts,
    peek_and_clear,
    capacity,
    memory_limit,
    shared,
    in_cond,
    map_ordered,
    map_unordered,
    map_incomplete_unordered,
    map_incomplete_ordered,
    map_repeated_part,
]


def answers(tf, areas):
    """Return the answer of every case, each from its own graph."""
    found = {}
    for case in CASES:
        with tf.Graph().as_default():
            found[case.__name__] = _plain(case(tf, areas))
    return found
