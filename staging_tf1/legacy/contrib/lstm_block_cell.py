"""`tf.contrib.rnn.LSTMBlockCell`: an LSTM cell whose step is one op."""

from __future__ import annotations

import contextlib
from typing import Any

from staging_tf1._tf import tf

_OP = "LSTMBlockCell"


class LSTMBlockCell(tf.nn.rnn_cell.BasicLSTMCell):  # type: ignore[misc]
    """An LSTM cell of `num_units` units, with the variables of `tf.nn.rnn_cell.LSTMCell`, in one op.

    The state is an `LSTMStateTuple` of c and h, each [B, num_units]. `forget_bias` is added to the forget gate.
    `cell_clip` limits c to -cell_clip .. cell_clip; None is no limit. With `use_peephole`, the gates also depend on c.

    Raises ValueError when it is called with inputs of an unknown size, or with a state that is not a pair.
    """

    def __init__(
        self,
        num_units: int,
        forget_bias: float = 1.0,
        cell_clip: float | None = None,
        use_peephole: bool = False,
        dtype: Any = None,
        reuse: bool | None = None,
        name: str = "lstm_cell",
    ) -> None:
        super().__init__(num_units, forget_bias=forget_bias, reuse=reuse, name=name, dtype=dtype)
        self._block = {
            "forget_bias": forget_bias,
            "cell_clip": -1.0 if cell_clip is None else cell_clip,
            "use_peephole": use_peephole,
        }
        self._units = num_units
        self._peepholes: tuple[Any, ...] = ()

    def build(self, inputs_shape: Any) -> None:
        """Create the variables kernel and bias, and those of the peepholes."""
        super().build(inputs_shape)
        if self._block["use_peephole"]:
            self.built = False  # a layer that is built only reuses variables
            self._peepholes = tuple(self.add_weight(f"w_{gate}_diag", shape=[self._units]) for gate in "ifo")
            self.built = True

    def call(self, inputs: Any, state: Any) -> Any:
        """Return the output [B, num_units] and the new state for inputs [B, D]."""
        if len(state) != 2:
            raise ValueError(f"LSTMBlockCell got a state of {len(state)} parts, expected the pair (c, h).")
        c, h = state
        wci, wcf, wco = self._peepholes or [tf.zeros([self._units], inputs.dtype)] * 3
        step = tf.raw_ops.LSTMBlockCell(
            x=inputs, cs_prev=c, h_prev=h, w=self._kernel, wci=wci, wcf=wcf, wco=wco, b=self._bias, **self._block
        )
        return step.h, tf.nn.rnn_cell.LSTMStateTuple(step.cs, step.h)


def _gradient(op: Any, *gradients: Any) -> Any:
    """Return the gradients of the op's inputs: x, c, h, w, the three peepholes and b."""
    x, c_prev, h_prev, w, wci, wcf, wco, b = op.inputs
    i, c, f, o, ci, co, _ = op.outputs
    by_c, by_h = gradients[1], gradients[6]
    d_c_prev, d_gates, d_wci, d_wcf, d_wco = tf.raw_ops.LSTMBlockCellGrad(
        x=x, cs_prev=c_prev, h_prev=h_prev, w=w, wci=wci, wcf=wcf, wco=wco, b=b, i=i, cs=c, f=f, o=o, ci=ci, co=co,
        cs_grad=by_c, h_grad=by_h, use_peephole=op.get_attr("use_peephole"),
    )  # fmt: skip
    # Each gate is a function of [x, h] * w + b.
    d_x, d_h_prev = tf.split(
        tf.matmul(d_gates, w, transpose_b=True), [tf.shape(x)[1], tf.shape(h_prev)[1]], axis=1, num=2
    )
    d_x.set_shape(x.shape)
    d_h_prev.set_shape(h_prev.shape)
    d_w = tf.matmul(tf.concat([x, h_prev], 1), d_gates, transpose_a=True)
    return d_x, d_c_prev, d_h_prev, d_w, d_wci, d_wcf, d_wco, tf.reduce_sum(d_gates, 0)


with contextlib.suppress(KeyError):  # another package has registered it, or this module is reloaded
    tf.RegisterGradient(_OP)(_gradient)
