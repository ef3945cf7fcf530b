"""Inputs with num_epochs whose local variables are initialized, or that may have none."""
import numpy as np
import tensorflow.compat.v1 as tf
from xml.etree import ElementTree


def names(paths, num_epochs=None):
    return tf.train.string_input_producer(paths, num_epochs=num_epochs).dequeue()


def plain():
    with tf.Graph().as_default(), tf.Session() as sess:
        name = names(["a"])
        sess.run(tf.global_variables_initializer())
        tf.train.start_queue_runners(sess=sess)
        print(sess.run(name))


def managed():
    with tf.Graph().as_default():
        name = tf.train.string_input_producer(["a"], num_epochs=1).dequeue()
        with tf.train.MonitoredTrainingSession() as sess:
            print(sess.run(name))


plain()
managed()
print(np.zeros(2).tobytes(), ElementTree.tostring(ElementTree.Element("a")))
