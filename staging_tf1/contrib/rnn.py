"""`tf.contrib.rnn`: the LSTM cell in one op. It needs Keras 2."""

from __future__ import annotations

from staging_tf1.legacy.keras_two import require

require()

from staging_tf1.legacy.contrib.lstm_block_cell import LSTMBlockCell  # noqa: E402 (TensorFlow reads the choice)

__all__ = ["LSTMBlockCell"]
