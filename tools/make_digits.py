"""Makes staging_tf1/data/digits.npz from scikit-learn's copy of the UCI digits.

    pip install scikit-learn && python tools/make_digits.py

Every fifth image of each class, in the order of the original file, is for testing; the rest is for training. The
same input gives the same file, byte for byte.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

TARGET = Path(__file__).parent.parent / "staging_tf1" / "data" / "digits.npz"


def main() -> None:
    digits = load_digits()
    images, labels = digits.images.astype(np.uint8), digits.target.astype(np.uint8)
    if not np.array_equal(images, digits.images):
        raise SystemExit("got pixels that are not whole numbers, expected the UCI digits with values from 0 to 16")
    is_test = np.zeros(len(labels), bool)
    for label in range(10):
        is_test[np.flatnonzero(labels == label)[4::5]] = True
    np.savez_compressed(
        TARGET,
        x_train=images[~is_test],
        y_train=labels[~is_test],
        x_test=images[is_test],
        y_test=labels[is_test],
    )
    print(f"{TARGET}: {np.sum(~is_test)} images for training, {np.sum(is_test)} for testing")


if __name__ == "__main__":
    main()
