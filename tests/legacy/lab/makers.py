"""Makes data with the code of a program, in its folder and under its TensorFlow.

Usage: python makers.py FUNCTION ARGUMENTS... ; it must also run on Python 3.7.
"""

from __future__ import annotations

import glob
import json
import os
import runpy
import subprocess
import sys


def gpt2_checkpoint(folder):
    """Write a checkpoint of the initial values of the model whose hparams.json is in `folder`."""
    sys.path.insert(0, "src")
    import model
    import tensorflow as tf

    with open(os.path.join(folder, "hparams.json")) as file:
        hparams = model.default_hparams()
        hparams.override_from_dict(json.load(file))
    model.model(hparams=hparams, X=tf.placeholder(tf.int32, [1, None]))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        tf.train.Saver().save(session, os.path.join(folder, "model.ckpt"))


def slim_records(pictures, records):
    """Write pictures as the records of slim's flowers."""
    sys.path.insert(0, ".")
    import tensorflow as tf
    from datasets import dataset_utils

    with tf.python_io.TFRecordWriter(records) as writer:
        for number, path in enumerate(sorted(glob.glob(os.path.join(pictures, "*.jpg")))):
            with open(path, "rb") as file:
                example = dataset_utils.image_to_tfexample(file.read(), b"jpg", 64, 64, number % 5)
            writer.write(example.SerializeToString())


def box_records(pictures, records):
    """Write pictures as the records of object_detection, with one box each."""
    import tensorflow as tf

    def feature(kind, *values):
        return tf.train.Feature(**{kind: {"value": values}})

    with tf.python_io.TFRecordWriter(records) as writer:
        for number, path in enumerate(sorted(glob.glob(os.path.join(pictures, "*.jpg")))):
            with open(path, "rb") as file:
                encoded = file.read()
            features = {
                "image/encoded": feature("bytes_list", encoded),
                "image/format": feature("bytes_list", b"jpeg"),
                "image/filename": feature("bytes_list", os.path.basename(path).encode()),
                "image/source_id": feature("bytes_list", str(number).encode()),
                "image/height": feature("int64_list", 96),
                "image/width": feature("int64_list", 96),
                "image/object/bbox/xmin": feature("float_list", 0.1 + number / 20),
                "image/object/bbox/xmax": feature("float_list", 0.5 + number / 20),
                "image/object/bbox/ymin": feature("float_list", 0.2),
                "image/object/bbox/ymax": feature("float_list", 0.7),
                "image/object/class/text": feature("bytes_list", b"kind%d" % (1 + number % 2)),
                "image/object/class/label": feature("int64_list", 1 + number % 2),
            }
            writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())


def messages(folder, into):
    """Compile the messages of protobuf below the current folder."""
    from grpc_tools import protoc

    files = sorted(glob.glob(os.path.join(folder, "*.proto")))
    os.makedirs(into, exist_ok=True)
    assert protoc.main(["protoc", "-I.", "--python_out=" + into, *files]) == 0


def keep_data(program, folder):
    """Run a program that writes into the folder `data` beside it, and copy that folder."""
    sys.path.insert(0, os.getcwd())
    runpy.run_path(program, run_name="__main__")
    subprocess.check_call(["cp", "-r", "data/.", folder])


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
