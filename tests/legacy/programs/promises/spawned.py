"""A spawned worker and a child interpreter: each has the shim of its parent, which does not load TensorFlow itself.

The worker first runs the program that is the argument.
"""
import json
import multiprocessing
import pickle
import runpy
import subprocess
import sys
import threading


class Config(object):
    def __init__(self, rate):
        self.rate = rate


def run(program):
    runpy.run_path(program, run_name="__main__")
    sys.stdout.flush()  # the pool ends its worker with a signal


def work(config):
    import tensorflow as tf

    area = tf.contrib.staging.StagingArea([tf.float32])
    put, got = area.put([config.rate]), area.get()
    with tf.Session() as sess:
        sess.run(put)
        spawned = type(config).__module__, hasattr(tf, "placeholder"), float(sess.run(got)[0])
    again = pickle.loads(pickle.dumps(Config(2.0)))
    results = []
    thread = threading.Thread(target=lambda: results.append(hasattr(tf, "Session")))
    thread.start()
    thread.join()
    return {
        "spawned": spawned,
        "pickle": [type(again) is Config, again.rate, pickle.loads(pickle.dumps(tf.float32)) is tf.float32],
        "thread": results,
        "version": [tf.__version__, tf.VERSION, tf.version.VERSION],
    }


if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        pool.apply(run, (sys.argv[1],))
        report = pool.apply(work, (Config(0.5),))
    # A name of the shim's that does not need TensorFlow.
    code = "import collections; print(collections.Mapping is collections.abc.Mapping)"
    # It logs the first use of the name, as the program in the worker does.
    report["child"] = subprocess.check_output([sys.executable, "-c", code], stderr=subprocess.PIPE).decode().strip()
    print(json.dumps(report))
