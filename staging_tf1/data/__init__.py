"""Images with labels to train on: the digits that ship with the package, and files in MNIST's layout."""

from __future__ import annotations

from staging_tf1.data.images import DataFileError, LabelledImages, load_images

__all__ = ["DataFileError", "LabelledImages", "load_images"]
