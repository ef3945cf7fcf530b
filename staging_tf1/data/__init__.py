"""Labelled images: the digits in the package, and files in the MNIST layout."""

from __future__ import annotations

from staging_tf1.data.images import DataFileError, LabelledImages, load_images

__all__ = ["DataFileError", "LabelledImages", "load_images"]
