"""`tf.contrib.staging`: the areas of this package, which a TensorFlow 1 program may build wherever TensorFlow 1 let it.

A program that builds an area for each setting, in one graph and with runs between, is valid. With the package's own
names it raises, because it is nearly always an area that is built in the training loop.
"""

from __future__ import annotations

import staging_tf1


class StagingArea(staging_tf1.StagingArea):
    """`staging_tf1.StagingArea`. One that is built again on the same line warns."""

    warns_of_repeats = True


class MapStagingArea(staging_tf1.MapStagingArea):
    """`staging_tf1.MapStagingArea`. One that is built again on the same line warns."""

    warns_of_repeats = True
