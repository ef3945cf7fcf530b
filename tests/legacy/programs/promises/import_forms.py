"""Tries every form of import that old code uses, and prints the results as one JSON object."""
import importlib
import json
import os
import sys

report = {"loaded before": sorted(m for m in sys.modules if m.partition(".")[0] in ("tensorflow", "numpy", "keras"))}
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import library_of_two  # a library is the first to import TensorFlow
import tensorflow as tf
import tensorflow.contrib.staging
import tensorflow.contrib.staging as as_name
from tensorflow import contrib
from tensorflow.contrib import staging as from_contrib
from tensorflow.contrib.staging import StagingArea
from tensorflow.python.framework import ops
from tensorflow.core.framework import graph_pb2
from tensorflow.python.ops import data_flow_ops
from tensorflow.python.ops.data_flow_ops import MapStagingArea
import tensorflow.compat.v1 as compat_v1
from tensorflow.compat import v1 as from_compat
from tensorflow.compat.v1 import placeholder
from tensorflow.gfile import GFile
from tensorflow.train import AdamOptimizer
import tensorflow.train as train

area = tf.contrib.staging.StagingArea
report["areas"] = {
    "attribute": area.__module__,
    "import package": tensorflow.contrib.staging.StagingArea is area,
    "import as": as_name.StagingArea is area,
    "from tensorflow": contrib.staging.StagingArea is area,
    "from contrib": from_contrib.StagingArea is area,
    "from staging": StagingArea is area,
    "data_flow_ops": data_flow_ops.StagingArea is area,
    "map from data_flow_ops": MapStagingArea is tf.contrib.staging.MapStagingArea,
    "import_module": importlib.import_module("tensorflow.contrib.staging").StagingArea is area,
    "__import__": __import__("tensorflow").contrib.staging.StagingArea is area,
    "__import__ fromlist": __import__("tensorflow.contrib.staging", fromlist=["x"]).StagingArea is area,
}
star = {}
exec("from tensorflow.contrib.staging import *\nfrom tensorflow import *", star)
report["star"] = star["StagingArea"] is area and star["placeholder"] is tf.placeholder and "contrib" in star
function_globals = {"__name__": __name__}
exec("def late():\n    import tensorflow.contrib.staging as s\n    return s", function_globals)
report["one object"] = {
    "tensorflow": sys.modules["tensorflow"] is tf and tensorflow is tf and importlib.import_module("tensorflow") is tf,
    "contrib": sys.modules["tensorflow.contrib"] is tf.contrib is contrib,
    "staging": sys.modules["tensorflow.contrib.staging"] is tf.contrib.staging is as_name is from_contrib,
    "late": function_globals["late"]() is as_name,
    "paths": [isinstance(m.__path__, list) for m in (contrib, as_name)],
    "compat": compat_v1 is from_compat and placeholder is compat_v1.placeholder,
    "gfile": GFile is tf.gfile.GFile and AdamOptimizer is tf.train.AdamOptimizer and train.Saver is tf.train.Saver,
    "reload": importlib.reload(as_name) is as_name,
    "below the API": tf.python is sys.modules["tensorflow.python"] and tf.core.framework.graph_pb2 is graph_pb2,
}
report["tf1"] = {
    name: name in dir(tf) or hasattr(tf, name)
    for name in ("placeholder", "Session", "gfile", "app", "flags", "ConfigProto", "contrib", "estimator")
}
report["graph mode"] = not tf.executing_eagerly()
report["static shape"] = tf.placeholder(tf.float32, [3]).shape[0].value
report["reference variable"] = tf.Variable(1.0).dtype.name
report["protos"] = graph_pb2.GraphDef is not None and ops.Graph is tf.Graph
report["hook"] = issubclass(tf.estimator.SessionRunHook, tf.train.SessionRunHook)


def failing(action):
    try:
        action()
    except Exception as error:
        return "%s: %s" % (type(error).__mro__[2].__name__, error)
    return "nothing was raised"


def fallback():
    try:
        from tensorflow.contrib import lookups
    except ImportError as error:
        return str(error)


def deep():
    import tensorflow.contrib.crf.python.no_such_module


def from_strict():
    from tensorflow.contrib.framework import no_such_thing


report["removed"] = {
    "attribute": failing(lambda: tf.contrib.lookups),
    "from": fallback(),
    "deep": failing(deep),
    "strict": failing(from_strict),
    "misspelt": failing(lambda: tf.contrib.stagin),
    "lost op": failing(lambda: tf.contrib.image.connected_components(tf.zeros([2, 2]))),
    "top": failing(lambda: tf.no_such_name),
    "staging": failing(lambda: tf.staging.put),
    "hasattr": [hasattr(tf.contrib, "lookups"), hasattr(tf.contrib, "staging"), hasattr(tf, "no_such_name")],
}
report["offered"] = {
    "nest": tf.contrib.framework.nest.flatten([1, [2]]),
    "defun": callable(tf.contrib.eager.defun),
    "hparams": tf.contrib.training.HParams(rate=0.5).parse("rate=2").rate,
    "map_and_batch": callable(tf.contrib.data.map_and_batch),
    "balance": callable(tf.contrib.training.GreedyLoadBalancingStrategy),
    "global step": tf.contrib.framework.get_or_create_global_step().name,
}

from tensorflow.python.data.experimental.ops import threadpool
from tensorflow.python.distribute import all_reduce
from tensorflow.python.framework import ops as framework_ops
from tensorflow.python.ops import array_ops, control_flow_ops, random_ops, variables

report["private names"] = {
    "variable": variables.VariableV1 is tf.Variable,
    "initialized": variables.is_variable_initialized is tf.is_variable_initialized,
    "tensor": isinstance(tf.constant(1.0), framework_ops.Tensor),
    "slices": framework_ops.IndexedSlices is tf.IndexedSlices,
    "conversion": callable(framework_ops.register_tensor_conversion_function),
    "control flow": [
        getattr(control_flow_ops, name) is getattr(tf, name) for name in ("cond", "case", "while_loop", "Assert")
    ],
    "arrays": array_ops.stack is tf.stack and array_ops.unstack is tf.unstack,
    "crop": random_ops.random_crop is tf.random_crop,
    "still there": [framework_ops.Graph is tf.Graph, array_ops.concat is tf.concat],
    "missing": failing(lambda: variables.NoSuchName),
    "removed": [failing(lambda: threadpool.PrivateThreadPool(4)), failing(lambda: all_reduce.build_ring_all_reduce())],
}

import numpy as np
import collections, inspect
from keras.utils import np_utils
from keras.utils.np_utils import to_categorical
import keras.utils.np_utils
import keras.utils.np_utils as np_utils_module

report["old names"] = {
    "np": [np.object is object, np.float is float, np.int is int, np.zeros(2, np.bool).dtype.name],
    "again": np.object is object,
    "collections": collections.Mapping is collections.abc.Mapping,
    "getargspec": inspect.getargspec(lambda a, b=2, *c: 0).args,
    "np_utils": [
        categorical([1, 0]).tolist()
        for categorical in (
            np_utils.to_categorical,
            to_categorical,
            keras.utils.np_utils.to_categorical,
            np_utils_module.to_categorical,
        )
    ],
}

# Old test suites monkeypatch; the patch must affect the program only.
genuine = tf.Session
tf.Session = "patched"
report["patched"] = tf.Session
tf.Session = genuine

import library_of_one

report["library sees"] = library_of_two.sees()
report["named package sees"] = library_of_one.sees()

print(json.dumps(report))
