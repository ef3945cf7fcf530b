"""Weights that do not depend on the random numbers of one TensorFlow."""
import numpy as np
import tensorflow as tf


class NumpyWeights(tf.train.SessionRunHook):
    """Sets every trainable variable of a new model to numbers that numpy draws."""

    def begin(self):
        self.assign = []
        for number, variable in enumerate(sorted(tf.trainable_variables(), key=lambda each: each.name)):
            drawn = np.random.RandomState(number).uniform(-0.3, 0.3, variable.shape.as_list())
            self.assign.append(tf.assign(variable, drawn.astype(np.float32)))
        self.step = tf.train.get_global_step()

    def after_create_session(self, session, coord):
        if session.run(self.step) == 0:
            session.run(self.assign)


def show(title, metrics):
    print(title, " ".join("%s=%.5f" % (name, float(metrics[name])) for name in sorted(metrics)))
