"""TF1 for code that is not changed: `tf.contrib.staging` and the rest of what `import tensorflow` once meant.

``staging-tf1 run script.py`` does this for a whole process. `install` does it from inside one, and is to be
called before the first module that wants TF1 is imported.
"""

from __future__ import annotations

from staging_tf1.legacy.installation import install
from staging_tf1.legacy.settings import Settings

__all__ = ["Settings", "install"]
