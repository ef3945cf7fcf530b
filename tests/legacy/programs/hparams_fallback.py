"""Fallback imports, HParams, and an area made through the import that worked."""
from __future__ import print_function

try:
    from tensorflow.contrib import staging
except ImportError:
    staging = None
try:
    import tensorflow.contrib.does_not_exist as missing
except ImportError:
    missing = None

import tensorflow as tf
from tensorflow.contrib.training import HParams

hparams = HParams(batch_size=2, rate=0.5, sizes=[3, 2])
hparams.parse("rate=0.25,sizes=[4,1]")
print(sorted(hparams.values().items()), staging is None, missing is None)

area = staging.StagingArea([tf.float32], [[hparams.batch_size]])
put = area.put([tf.fill([hparams.batch_size], hparams.rate)])
(x,) = area.get()
with tf.Session() as sess:
    sess.run(put)
    print(sess.run(x * hparams.sizes[0]).tolist())
