"""Runs the `staging-tf1` command as `python -m staging_tf1`."""

from __future__ import annotations

import sys

from staging_tf1.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
