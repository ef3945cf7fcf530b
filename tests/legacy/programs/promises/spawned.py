"""Spawned workers, a child interpreter, threads and pickles: each sees the TF1 of its parent."""
import json
import multiprocessing
import pickle
import subprocess
import sys
import threading

import tensorflow as tf


class Config(object):
    def __init__(self, rate):
        self.rate = rate


def work(config):
    area = tf.contrib.staging.StagingArea([tf.float32])
    put, got = area.put([config.rate]), area.get()
    with tf.Session() as sess:
        sess.run(put)
        return type(config).__module__, tf.__version__, hasattr(tf, "placeholder"), float(sess.run(got)[0])


if __name__ == "__main__":
    report = {}
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        report["spawned"] = pool.apply(work, (Config(0.5),))
    again = pickle.loads(pickle.dumps(Config(2.0)))
    report["pickle"] = [type(again) is Config, again.rate, pickle.loads(pickle.dumps(tf.float32)) is tf.float32]
    results = []
    thread = threading.Thread(target=lambda: results.append(hasattr(tf, "Session")))
    thread.start()
    thread.join()
    report["thread"] = results
    code = "import tensorflow as tf; print(hasattr(tf.contrib, 'staging'))"
    report["child"] = subprocess.check_output([sys.executable, "-c", code]).decode().strip()
    report["version"] = [tf.__version__, tf.VERSION, tf.version.VERSION]
    print(json.dumps(report))
