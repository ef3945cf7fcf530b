"""TF1 for unmodified programs: `tf.contrib.staging` and the other names that TensorFlow 2 removed.

``staging-tf1 run script.py`` provides TF1 to a whole process. `install` does the same from inside a program. Call
it before the first import of a module that needs TF1.
"""

from __future__ import annotations

from staging_tf1.legacy.shim.installation import install
from staging_tf1.legacy.shim.settings import Settings

__all__ = ["Settings", "install"]
