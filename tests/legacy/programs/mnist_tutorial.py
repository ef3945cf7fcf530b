"""The MNIST tutorial: files in a folder, batches by next_batch, and a softmax regression on staged input."""
from __future__ import print_function

import gzip
import os
import struct
import tempfile

import numpy as np
import tensorflow as tf
from tensorflow.examples.tutorials.mnist import input_data

BATCH = 16


def write_files(folder):
    rng = np.random.RandomState(7)
    for name, count in [("train", 90), ("t10k", 30)]:
        images = rng.randint(0, 256, (count, 28, 28)).astype(np.uint8)
        labels = (images[:, 14, 14] // 26).astype(np.uint8)
        with gzip.open(os.path.join(folder, name + "-images-idx3-ubyte.gz"), "wb") as f:
            f.write(struct.pack(">4I", 2051, count, 28, 28) + images.tobytes())
        with gzip.open(os.path.join(folder, name + "-labels-idx1-ubyte.gz"), "wb") as f:
            f.write(struct.pack(">2I", 2049, count) + labels.tobytes())


here = os.getcwd()
os.chdir(tempfile.mkdtemp())
os.mkdir("MNIST_data")
write_files("MNIST_data")
mnist = input_data.read_data_sets("MNIST_data", one_hot=True, validation_size=20, seed=3)
plain = input_data.read_data_sets("MNIST_data", dtype=tf.uint8, reshape=False, validation_size=0, seed=4)
fake = input_data.read_data_sets("MNIST_data", fake_data=True, one_hot=True)
os.chdir(here)

for part in (mnist.train, mnist.validation, mnist.test, plain.train):
    print(part.num_examples, part.images.shape, part.images.dtype, part.labels.shape, part.labels.dtype)
np.random.seed(11)
for _ in range(7):
    images, labels = plain.train.next_batch(40)
    print(images.shape, images.sum(), labels[:12], plain.train.epochs_completed)
images, labels = plain.test.next_batch(4, shuffle=False)
print(images.sum(), labels)
fake_images, fake_labels = fake.train.next_batch(2, fake_data=True)
print(sum(fake_images[0]), fake_labels, fake.train.num_examples)

x_in = tf.placeholder(tf.float32, [BATCH, 784])
y_in = tf.placeholder(tf.float32, [BATCH, 10])
area = tf.contrib.staging.StagingArea([tf.float32, tf.float32], [[BATCH, 784], [BATCH, 10]])
put = area.put([x_in, y_in])
x, y = area.get()
weights = tf.Variable(tf.zeros([784, 10]))
biases = tf.Variable(tf.zeros([10]))
loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(labels=y, logits=tf.matmul(x, weights) + biases))
train = tf.train.GradientDescentOptimizer(0.01).minimize(loss)


def feed():
    images, labels = mnist.train.next_batch(BATCH)
    return {x_in: images, y_in: labels}


with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    sess.run(put, feed_dict=feed())
    for step in range(8):
        value, _, _ = sess.run([loss, train, put], feed_dict=feed())
        print("step %d loss %.5f" % (step, value))
    value, _ = sess.run([loss, train])
    print("last loss %.5f epochs %d" % (value, mnist.train.epochs_completed))
