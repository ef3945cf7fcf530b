"""Written by hand: numpy_input_fn and pandas_input_fn, which feed queues, for linear and baseline regressors."""
import tempfile

import numpy as np
import pandas as pd
import tensorflow as tf
from common import show

tf.logging.set_verbosity(tf.logging.ERROR)

rng = np.random.RandomState(11)
rooms = rng.randint(1, 7, 100).astype(np.float32)
area = (rooms * 18 + rng.normal(0, 5, 100)).astype(np.float32)
price = (area * 0.4 + rooms * 3).astype(np.float32)

columns = [tf.feature_column.numeric_column("rooms"), tf.feature_column.numeric_column("area")]
fed = tf.estimator.inputs.numpy_input_fn(
    {"rooms": rooms, "area": area / 100}, price, batch_size=25, num_epochs=None, shuffle=False
)
checked = tf.estimator.inputs.numpy_input_fn(
    {"rooms": rooms, "area": area / 100}, price, batch_size=40, num_epochs=1, shuffle=False, num_threads=1
)
linear = tf.estimator.LinearRegressor(columns, tempfile.mkdtemp(), optimizer=tf.train.FtrlOptimizer(0.5))
linear.train(fed, steps=40)
show("linear", linear.evaluate(checked))
print(" ".join("%.4f" % each["predictions"][0] for each in linear.predict(checked))[:48])

frame = pd.DataFrame({"rooms": rooms, "area": area / 100})
fed = tf.estimator.inputs.pandas_input_fn(
    frame, pd.Series(price), batch_size=25, num_epochs=4, shuffle=False, queue_capacity=100
)
linear = tf.estimator.LinearRegressor(columns, tempfile.mkdtemp())
linear.train(fed)
show("pandas", linear.evaluate(checked))

baseline = tf.estimator.BaselineRegressor(tempfile.mkdtemp(), optimizer=tf.train.GradientDescentOptimizer(0.005))
baseline.train(fed, max_steps=10)
show("baseline", baseline.evaluate(checked))
