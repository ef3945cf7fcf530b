"""Builds the package; its metadata stands in pyproject.toml."""

import atexit
import shutil
import tempfile

from setuptools import setup

# Not ./build, where the files of an earlier build stay behind: a module that has been deleted since would be
# installed all the same.
build_base = tempfile.mkdtemp(prefix="staging_tf1-build-")
atexit.register(shutil.rmtree, build_base, ignore_errors=True)

setup(options={"build": {"build_base": build_base}})
