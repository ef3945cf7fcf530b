"""Records the output of the programs under TensorFlow 1.15.5 in goldens/.

Usage: python tests/legacy/record_goldens.py PYTHON [PROGRAM...]
where PYTHON is an interpreter (3.7) with "tensorflow==1.15.5" "protobuf<3.21" "numpy<1.19" pandas, and for the programs
in keras_io/ "keras==2.2.5" "h5py<3".
The environment variable STAGING_TF1_ORACLE can name it instead. PROGRAM is a name such as mnist_tutorial; without one,
all programs are recorded. save_graphs.py saves what the program in saved/ loads.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Sequence

# Reads the version from the metadata, because importing TensorFlow takes seconds. On Python 3.7 the module is a
# separate package.
VERSION = """
try:
    from importlib.metadata import version
except ImportError:
    from importlib_metadata import version
print(version("tensorflow"))
"""
HERE = pathlib.Path(__file__).parent
FOLDERS = ("", "estimator", "contrib", "keras_io", "saved")


def main() -> None:
    interpreter = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("STAGING_TF1_ORACLE")
    if not interpreter:
        sys.exit(__doc__)
    found = subprocess.run([interpreter, "-c", VERSION], capture_output=True, text=True, check=True)
    if found.stdout.strip() != "1.15.5":
        sys.exit(f"{interpreter} has TensorFlow {found.stdout.strip()}, expected 1.15.5.")
    recorded = sum(record(interpreter, folder, sys.argv[2:]) for folder in FOLDERS)
    print(f"recorded {recorded} programs")


def record(interpreter: str, folder: str, chosen: Sequence[str]) -> int:
    """Record the programs of a folder; return how many there are."""
    found = (HERE / "programs" / folder).glob("*.py")
    programs = sorted(str(path) for path in found if not chosen or path.stem in chosen)
    if not programs:
        return 0
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    command = [interpreter, "-W", "ignore", str(HERE / "run_programs.py"), *programs]
    ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    printed: dict[str, str] = json.loads(ran.stdout.splitlines()[-1])
    for name, text in printed.items():
        if "Traceback" in text or not text:
            sys.exit(f"{name} failed:\n{text}")
        (HERE / "goldens" / folder / f"{name}.txt").write_text(text)
    return len(printed)


if __name__ == "__main__":
    main()
