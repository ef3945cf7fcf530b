"""A spawned worker and a child interpreter: each has the shim of its parent, which does not load TensorFlow itself."""
import json
import multiprocessing
import pickle
import subprocess
import sys
import threading


class Config(object):
    def __init__(self, rate):
        self.rate = rate


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
        report = pool.apply(work, (Config(0.5),))
    # A name of the shim's that does not need TensorFlow.
    code = "import collections; print(collections.Mapping is collections.abc.Mapping)"
    report["child"] = subprocess.check_output([sys.executable, "-c", code]).decode().strip()
    print(json.dumps(report))
