"""A module that takes over every cell of `tf.contrib.rnn`, as google/seq2seq does, and imports one of them by name."""
import inspect
import sys

import tensorflow as tf
from tensorflow.contrib.rnn import MultiRNNCell

cells = [x for x in tf.contrib.rnn.__dict__.values() if inspect.isclass(x) and issubclass(x, tf.contrib.rnn.RNNCell)]
for cell in cells:
    setattr(sys.modules[__name__], cell.__name__, cell)
print(sorted(cell.__name__ for cell in cells))
print([issubclass(each, tf.nn.rnn_cell.RNNCell) for each in (MultiRNNCell, DropoutWrapper, ResidualWrapper)])
print([each is getattr(tf.nn.rnn_cell, each.__name__) for each in (GRUCell, LSTMCell, MultiRNNCell, DropoutWrapper)])
stacked = MultiRNNCell([DropoutWrapper(GRUCell(3)), ResidualWrapper(LSTMCell(3))])
print(stacked.output_size, stacked.state_size[0], stacked.state_size[1].c)
