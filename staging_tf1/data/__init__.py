"""Labelled images for training: the digits that ship with the package, and files in the layout of MNIST."""

from __future__ import annotations

from staging_tf1.data.images import DataFileError, LabelledImages, load_images

__all__ = ["DataFileError", "LabelledImages", "load_images"]
