"""Loads the graphs that TensorFlow 1.15.5 has saved, takes a step with each, and prints their values."""
from __future__ import print_function

import json
import os
import tarfile
import tempfile

import numpy as np
import tensorflow as tf

HERE = os.path.dirname(os.path.abspath(__file__))
ARCHIVE = os.path.join(HERE, "..", "..", "goldens", "saved", "graphs.tar.xz")


def load(kind, path, session):
    if kind == "meta":
        tf.train.import_meta_graph(path + ".meta").restore(session, path)
    elif kind == "saved_model":
        tf.saved_model.loader.load(session, ["train"], path)
    else:
        graph = tf.GraphDef()
        with open(path + ".pb", "rb") as file:
            graph.ParseFromString(file.read())
        tf.import_graph_def(graph, name="")


def shown(value):
    if isinstance(value, np.ndarray) and value.dtype.kind in "OS":
        return [each.decode() for each in value.ravel()]
    return " ".join("%.5g" % each for each in np.ravel(value))


def try_out(name, kind, path, feeds, fetches):
    tf.reset_default_graph()
    graph = tf.get_default_graph()
    feeds = {each + ":0": value for each, value in feeds.items()}
    fetches = [each + ":0" for each in fetches]
    with tf.Session() as session:
        load(kind, path, session)
        operations = {each.name for each in graph.get_operations()}
        session.run(tf.local_variables_initializer())
        if kind == "meta":
            session.run(tf.tables_initializer())
        coordinator = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(session, coordinator)
        for step in range(2 if "step" in operations else 1):
            if "before" in operations:
                session.run("before", feeds)
            values = session.run(["loss:0"] + fetches + (["step"] if "step" in operations else []), feeds)
            print(name, "step", step, *[shown(value) for value in values[: 1 + len(fetches)]])
        print(name, "variables", *[shown(value) for value in session.run(tf.global_variables())])
        print(name, "collections", *sorted(name for name in graph.get_all_collection_keys() if "_context" not in name))
        if "from_python" in operations:
            print(name, "shape", graph.get_tensor_by_name("shaped:0").shape)
            try:
                session.run("shaped:0")
            except tf.errors.OpError as error:
                print(name, type(error).__name__)
        coordinator.request_stop()
        coordinator.join(threads)
    if kind == "saved_model":
        tf.reset_default_graph()
        predict = tf.contrib.predictor.from_saved_model(path, tags="train")
        print(name, "predicts", shown(predict({each[:-2]: value for each, value in feeds.items()})["loss"]))


folder = tempfile.mkdtemp()
with tarfile.open(ARCHIVE) as archive:
    archive.extractall(folder)
with open(os.path.join(folder, "cases.json")) as file:
    cases = json.load(file)
for name in sorted(cases):
    try:
        try_out(name, path=os.path.join(folder, name), **cases[name])
    except Exception as error:
        print(name, "fails: %s: %s" % (type(error).__name__, str(error)[:300]))
