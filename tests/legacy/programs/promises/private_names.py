"""Resolves the names below the API in a file, and prints how each is available as one JSON object."""
import importlib
import json
import sys

import tensorflow as tf


def kind_of(full):
    module, _, name = full.rpartition(".")
    try:
        value = getattr(importlib.import_module(module), name)
    except AttributeError:
        try:
            value = importlib.import_module(full)
        except ImportError as error:
            return "missing: %s" % error
    except ImportError as error:
        return "missing: %s" % error
    if type(value).__name__ == "Absent":
        try:
            value()
        except AttributeError as error:
            return "advice: %s" % error
    return "found"


with open(sys.argv[1]) as names:
    listed = [line.strip() for line in names if line.strip() and not line.startswith("#")]
print(json.dumps({name: kind_of(name) for name in listed}))
