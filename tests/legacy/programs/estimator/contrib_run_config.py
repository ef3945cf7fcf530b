"""Objects of tf.contrib in the Estimator of TensorFlow: the RunConfig of contrib.learn, Experiments, and HParams."""
from __future__ import print_function

import tempfile

import tensorflow as tf

learn = tf.contrib.learn


def input_fn():
    return tf.data.Dataset.from_tensors(({"x": tf.ones([2, 2])}, tf.ones([2, 1]))).repeat(4)


def model_fn(features, labels, mode, params):
    y = tf.layers.dense(features["x"], 1, kernel_initializer=tf.constant_initializer(0.5))
    outputs = {"serving_default": tf.estimator.export.PredictOutput({"y": y})}
    if mode == learn.ModeKeys.INFER:
        return tf.estimator.EstimatorSpec(mode, predictions={"y": y}, export_outputs=outputs)
    loss = tf.reduce_mean(tf.square(y - params.target * labels))
    step = tf.train.GradientDescentOptimizer(0.1).minimize(loss, tf.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=step, eval_metric_ops={"mean": tf.metrics.mean(y)})


def estimator(config):
    params = tf.contrib.training.HParams(target=3.0)
    return tf.estimator.Estimator(model_fn, config.model_dir or tempfile.mkdtemp(), config, params)


def serving():
    rows = tf.placeholder(tf.float32, [None, 2])
    return tf.estimator.export.ServingInputReceiver({"x": rows}, {"x": rows})


def shown(metrics):
    return " ".join("%s %.4f" % item for item in sorted(metrics.items()))


some = dict(tf_random_seed=1, save_checkpoints_steps=2, save_checkpoints_secs=None, save_summary_steps=1)
CONFIGS = {
    "default": lambda: learn.RunConfig(),
    "arguments": lambda: learn.RunConfig(keep_checkpoint_max=2, gpu_memory_fraction=0.5, **some),
    "session_config": lambda: learn.RunConfig(session_config=tf.ConfigProto(allow_soft_placement=True)),
    "replace": lambda: learn.RunConfig().replace(save_checkpoints_steps=3),
    "model_dir": lambda: learn.RunConfig(model_dir=tempfile.mkdtemp()),
    "tpu": lambda: tf.contrib.tpu.RunConfig(model_dir=tempfile.mkdtemp()),
}
for name in sorted(CONFIGS):
    made = estimator(CONFIGS[name]())
    made.train(input_fn, steps=3, saving_listeners=[tf.train.CheckpointSaverListener()])
    print(name, shown(made.evaluate(input_fn, steps=1)), "%.4f" % next(made.predict(input_fn))["y"][0])
    print(name, len(made.export_savedmodel(tempfile.mkdtemp(), serving)) > 0)
both = tf.estimator.TrainSpec(input_fn, max_steps=3), tf.estimator.EvalSpec(input_fn, steps=1)
tf.estimator.train_and_evaluate(estimator(learn.RunConfig()), *both)
for config in (learn.RunConfig(), tf.estimator.RunConfig()):
    experiment = learn.Experiment(estimator(config), input_fn, input_fn, train_steps=3, eval_steps=1)
    print("experiment", shown(experiment.train_and_evaluate()[0]))
ran = learn.learn_runner.run(
    lambda run_config, hparams: learn.Experiment(estimator(run_config), input_fn, input_fn, train_steps=2, eval_steps=1),
    run_config=learn.RunConfig(model_dir=tempfile.mkdtemp()),
    hparams=tf.contrib.training.HParams(),
    schedule="train_and_evaluate",
)
print("learn_runner", shown(ran[0]))
