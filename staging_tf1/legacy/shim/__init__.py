"""What `staging-tf1 run` puts around TensorFlow 2 so that old programs see TensorFlow 1."""

from __future__ import annotations
