"""Looks up the names that a file lists, and prints how each is found: "there", "advice" or "missing".

Under TensorFlow 1.15.5 and without an argument, it prints the file: a line for each module, "tf.nn: relu ...", and for
each class, "tf.Session# close ...", with the public attributes that its public base classes do not have.
"""
from __future__ import print_function

import inspect
import json
import logging
import sys
import warnings

import tensorflow as tf

warnings.simplefilter("ignore")
# Folders of modules, not of names; and the same names under other roots.
SKIPPED = {"tf.compat.v1", "tf.compat.v2", "tf.pywrap_tensorflow", "tf.python", "tf.core", "tf.compiler", "tf.tools",
           "tf.contrib", "tf.include", "tf.examples", "tf.flags", "tf.app.flags", "tf.test.mock"}


def modules(module, path):
    names = [name for name in sorted(dir(module)) if name[0] != "_" and path + "." + name not in SKIPPED]
    yield path, {name: getattr(module, name) for name in names}
    for name in names:
        value = getattr(module, name)
        if inspect.ismodule(value):
            for each in modules(value, path + "." + name):
                yield each


def listed():
    classes = {}
    for path, names in modules(tf, "tf"):
        print(path + ":", *sorted(names))
        for name, value in names.items():
            if inspect.isclass(value) and value.__module__.startswith("tensorflow"):
                classes.setdefault(value, path + "." + name)
    for value, full in sorted(classes.items(), key=lambda each: each[1]):
        inherited = {name for base in value.__mro__[1:] if base in classes or base is object for name in dir(base)}
        # Of protobuf, whose classes differ.
        own = set(dir(value)) - inherited - {"Extensions", "RegisterExtension"}
        own = [name for name in sorted(own) if name[0] != "_"]
        if own:
            print(full + "#", *own)


def found(value, name):
    from staging_tf1.errors import RemovedNameError
    try:
        value = getattr(value, name)
    except RemovedNameError as error:
        return None, "advice: " + str(error)
    except Exception as error:
        return None, "missing: " + repr(error)
    return value, "advice: " + repr(value) if type(value).__name__ == "_Absent" else "there"


def looked_up(path):
    for logger in ("tensorflow", "staging_tf1", "absl"):
        logging.getLogger(logger).setLevel(logging.ERROR)
    report = {}
    for line in open(path):
        full, names = line.split()[0], line.split()[1:]
        value, how = tf, "there"
        for name in full.rstrip(":#").split(".")[1:]:
            if how == "there":
                value, how = found(value, name)
        if hasattr(value, "SerializeToString") or getattr(value, "__name__", "") == "Ignored":
            value = value()  # the fields of a message are there in its instances
        for name in names:
            report[full.rstrip(":#") + "." + name] = how if how != "there" else found(value, name)[1]
    return report


if len(sys.argv) == 1:
    listed()
else:
    report = looked_up(sys.argv[1])
    print(json.dumps({"asked": len(report), "others": {k: v for k, v in sorted(report.items()) if v != "there"}}))
