#!/usr/bin/env python3
"""Runs `staging-tf1 check` from a checkout, which needs nothing installed: the hook for pre-commit."""

from __future__ import annotations

import sys
from pathlib import Path

if sys.version_info < (3, 10):  # noqa: UP036, whatever python3 is
    sys.exit("staging-tf1 check needs Python 3.10 or newer, got " + sys.version.split()[0])

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from staging_tf1.cli.main import main

sys.exit(main(["check", *sys.argv[1:]]))
