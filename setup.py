"""Builds the package. Its metadata is in pyproject.toml."""

import atexit
import shutil
import tempfile

from setuptools import setup

# Not ./build, where files of earlier builds remain: modules deleted since then would still be installed.
build_base = tempfile.mkdtemp(prefix="staging_tf1-build-")
atexit.register(shutil.rmtree, build_base, ignore_errors=True)

setup(options={"build": {"build_base": build_base}})
