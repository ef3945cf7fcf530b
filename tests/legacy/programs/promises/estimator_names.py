"""Looks up names of Estimator under TF1, and prints what it finds as one JSON object."""
import json
import os
import sys
import tempfile

import tensorflow as tf

loaded = "tensorflow_estimator" in sys.modules
hook = tf.estimator.SessionRunHook is tf.train.SessionRunHook
report = {"loaded for a hook": "tensorflow_estimator" in sys.modules and not loaded, "hook": hook}


def failing(read):
    try:
        read()
    except (AttributeError, ImportError) as error:
        return "%s: %s" % (type(error).__name__, error)


def import_below():
    import tensorflow.python.estimator.run_config


if "--without-package" in sys.argv:
    sys.modules["tensorflow_estimator"] = None
    report["estimator"] = failing(lambda: tf.estimator.Estimator)
    report["inputs"] = failing(lambda: tf.estimator.inputs)
    report["contrib"] = failing(lambda: tf.contrib.estimator.add_metrics)
    report["below"] = failing(import_below)
    report["hook still there"] = tf.estimator.StopAtStepHook is tf.train.StopAtStepHook
    report["listed"] = "Estimator" in dir(tf.estimator)
    print(json.dumps(report))
    raise SystemExit

import tensorflow.estimator as as_name
from tensorflow.estimator import Estimator
from tensorflow.estimator.inputs import numpy_input_fn
from tensorflow.python.estimator.estimator import Estimator as private_estimator
from tensorflow.python.estimator.inputs import numpy_io

NAMES = """BaselineClassifier BaselineEstimator BaselineRegressor BestExporter BinaryClassHead CheckpointSaverHook
CheckpointSaverListener DNNClassifier DNNEstimator DNNLinearCombinedClassifier DNNLinearCombinedEstimator
DNNLinearCombinedRegressor DNNRegressor Estimator EstimatorSpec EvalSpec Exporter FeedFnHook FinalExporter FinalOpsHook
GlobalStepWaiterHook Head LatestExporter LinearClassifier LinearEstimator LinearRegressor LoggingTensorHook
LogisticRegressionHead ModeKeys MultiClassHead MultiHead MultiLabelHead NanLossDuringTrainingError NanTensorHook
PoissonRegressionHead ProfilerHook RegressionHead RunConfig SecondOrStepTimer SessionRunArgs SessionRunContext
SessionRunHook SessionRunValues StepCounterHook StopAtStepHook SummarySaverHook TrainSpec VocabInfo WarmStartSettings
add_metrics classifier_parse_example_spec experimental.InMemoryEvaluatorHook experimental.KMeans experimental.LinearSDCA
experimental.build_raw_supervised_input_receiver_fn experimental.call_logit_fn experimental.dnn_logit_fn_builder
experimental.linear_logit_fn_builder experimental.make_early_stopping_hook
experimental.make_stop_at_checkpoint_step_hook experimental.stop_if_higher_hook experimental.stop_if_lower_hook
experimental.stop_if_no_decrease_hook experimental.stop_if_no_increase_hook export.ClassificationOutput
export.ExportOutput export.PredictOutput export.RegressionOutput export.ServingInputReceiver
export.TensorServingInputReceiver export.build_parsing_serving_input_receiver_fn
export.build_raw_serving_input_receiver_fn inputs.numpy_input_fn inputs.pandas_input_fn regressor_parse_example_spec
tpu.InputPipelineConfig tpu.RunConfig tpu.TPUConfig tpu.TPUEstimator tpu.TPUEstimatorSpec
tpu.experimental.EmbeddingConfigSpec train_and_evaluate""".split()


def found(path):
    value = tf.estimator
    for name in path.split("."):
        value = getattr(value, name, None)
    return value is not None


def loss_of(head, logits, labels):
    with tf.Graph().as_default(), tf.Session() as sess:
        train = tf.estimator.ModeKeys.TRAIN
        logits, labels = tf.constant(logits, tf.float32), tf.constant(labels)
        spec = head.create_estimator_spec({}, train, logits, labels, train_op_fn=lambda loss: tf.no_op())
        return float(sess.run(spec.loss))


report["losses"] = [
    loss_of(tf.contrib.estimator.binary_classification_head(), [[0.0], [0.0]], [[0.0], [1.0]]),
    loss_of(tf.contrib.estimator.multi_class_head(3), [[0.0] * 3] * 2, [[0], [2]]),
    loss_of(tf.contrib.estimator.regression_head(), [[1.0], [3.0]], [[0.0], [0.0]]),
]
report["missing"] = [name for name in NAMES if not found(name)]
report["one object"] = [
    Estimator is tf.estimator.Estimator is private_estimator is as_name.Estimator,
    numpy_input_fn is tf.estimator.inputs.numpy_input_fn is numpy_io.numpy_input_fn,
    tf.contrib.estimator.add_metrics is tf.estimator.add_metrics,
    tf.contrib.tpu.TPUEstimator is tf.estimator.tpu.TPUEstimator,
    tf.contrib.estimator.stop_if_lower_hook is tf.estimator.experimental.stop_if_lower_hook,
]
report["boosted trees"] = failing(lambda: tf.estimator.BoostedTreesClassifier)
report["misspelt"] = failing(lambda: tf.estimator.Estimater)
report["contrib towers"] = failing(lambda: tf.contrib.estimator.replicate_model_fn)
report["contrib misspelt"] = failing(lambda: tf.contrib.estimator.no_such_name)


def model_fn(features, labels, mode):
    step = tf.train.get_global_step()
    return tf.estimator.EstimatorSpec(mode, loss=tf.reduce_sum(features), train_op=tf.assign_add(step, 1))


# A new process has not loaded it yet, but a fork of the server of the tests has.
sys.modules.pop("staging_tf1.feed.pipeline", None)
with tempfile.TemporaryDirectory() as folder:
    Estimator(model_fn, folder).train(lambda: (tf.constant([1.0]), None), steps=1)
report["loaded to train"] = "staging_tf1.feed.pipeline" in sys.modules
os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 0}})
strategy = tf.distribute.MirroredStrategy(["/cpu:0"])
report["strategy"] = failing(lambda: tf.estimator.RunConfig(train_distribute=strategy))
print(json.dumps(report))
