"""Runs the cases on TensorFlow 1.15.5 and writes the answers next to this script.

Run it with Python 3.7 and `pip install "tensorflow==1.15.5" "protobuf<3.21" "numpy<1.19"`:

    python tests/oracle/record_staging.py
"""

from __future__ import annotations

import json
import os
import sys

import staging_cases
import tensorflow as tf
from tensorflow.python.ops import data_flow_ops

HERE = os.path.dirname(os.path.abspath(__file__))


def main():
    """Write staging_goldens.json."""
    if tf.__version__ != "1.15.5":
        sys.exit("the oracle is TensorFlow 1.15.5, this is " + tf.__version__)
    recorded = {
        "recorded_by": "python tests/oracle/record_staging.py",
        "tensorflow": tf.__version__,
        "answers": staging_cases.answers(tf.compat.v1, data_flow_ops),
    }
    with open(os.path.join(HERE, "staging_goldens.json"), "w") as file:
        json.dump(recorded, file, indent=1, sort_keys=True)
        file.write("\n")


if __name__ == "__main__":
    main()
