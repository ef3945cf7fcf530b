"""Prints numbers and arrays, and uses names of numpy 1.18, from the main thread and from another one."""
from __future__ import print_function

import threading

import numpy as np
import tensorflow as tf

with tf.Session() as sess:
    print(sess.run([tf.constant(1), tf.constant(2.5), tf.constant(True), tf.constant("a")]))
    print(sess.run({"loss": tf.constant(0.25), "step": tf.constant(3, tf.int64)}))
    print(sess.run((tf.constant([0.1, 2.0]), tf.constant([[1, 2], [3, 4]]))))
    print("loss %s" % sess.run(tf.constant(1e-7)), [sess.run(tf.constant(1e20))], "{}".format(sess.run(tf.constant(3))))
rng = np.random.RandomState(0)
print([np.float16(0.1), np.float64(1e16), np.complex64(1 + 2j), np.str_("x"), np.bytes_(b"y"), np.bool_(False)])
print(np.arange(2000), np.arange(2000.0).reshape(1000, 2))
print(repr(np.arange(2000).reshape(1000, 2)), repr(np.zeros((0, 3))), repr(np.array([1.5], np.float32)))
print(rng.randn(3, 4), rng.randn(2, 2).astype(np.float32) * 1e-9, np.array([np.nan, np.inf, -1]))
print(np.array([1e10, 1]), np.array([True, False]), np.array(["a", "bc"]), np.array([None, 1, "x"]), np.array(3.0))
print(repr(np.array([(1, 2.5)], dtype=[("a", int), ("b", float)])), np.array([1 + 2j, 3]))
print(np.array(["2019-01-01"], "datetime64[D]"), np.ma.array([1, 2], mask=[0, 1]), repr(np.matrix([[1, 2]])))
print(np.dtype(np.float32), repr(np.dtype("i4")), [np.dtype(np.uint8)], np.finfo(np.float32).eps, [np.iinfo("i2").max])
np.set_printoptions(precision=3, suppress=True)
print(rng.randn(4), [np.float32(0.123456789)])
thread = threading.Thread(target=lambda: print("thread", [np.float32(2.5), np.int64(3)]))
thread.start()
thread.join()
values = np.array([[1, 2], [3, 4]], np.int16)
print(values.tostring(), values.tostring("F"), values[0, 1].tostring(), values.T.tostring(order="C"))
print(np.fromstring(values.tostring(), dtype=np.int16), np.fromstring("1 2", sep=" "), np.fromstring("ab", np.uint8))
numbers = np.fromstring(b"\1\2", np.uint8, 1)
numbers[0] = 7
print(numbers)
print([kind.__name__ for kind in np.sctypes["float"][:3]], np.asscalar(np.array([2])), np.float_(1), np.Inf, np.alen([1]))
print(np.cast["float32"]([1, 2]), np.nbytes[np.int16], np.obj2sctype("f4").__name__, np.issubsctype("f4", np.floating))
print(np.find_common_type([np.float32], [np.int64]), np.find_common_type([np.int8], [np.float32]), np.mat([1, 2]))
print(np.msort([[2, 1], [0, 3]]), np.asfarray([1]).dtype, np.math.sqrt(4), np.lib.pad([1], 1, "constant"), np.issctype(np.int8))
print(np.array([1, 2], copy=False), np.array(values, copy=False) is values, np.array(values, dtype=float, copy=False).dtype)
print(np.array([[1], [2, 3]]).shape, np.asarray([[1], [2, 3]]).shape)
