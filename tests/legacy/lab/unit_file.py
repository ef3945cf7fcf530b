"""Runs one file of TensorFlow's unit tests, and writes a line of JSON before and after each test.

Usage: python unit_file.py FILE RESULTS; tests that RESULTS already has are left out, so that a run can be continued
after a test that ended the process. It must also run on Python 3.7, for TensorFlow 1.15.5.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
import traceback
import unittest


class Recorder(unittest.TestResult):
    """Writes what becomes of each test."""

    def __init__(self, path):
        super().__init__()
        self._path = path

    def startTest(self, test):
        super().startTest(test)
        self.write(test, "ended", "the process ended")

    def addSuccess(self, test):
        self.write(test, "passed", "")

    def addSkip(self, test, reason):
        self.write(test, "skipped", reason)

    def addError(self, test, err):
        self.write(test, "failed", said(err))

    def addFailure(self, test, err):
        self.write(test, "failed", said(err))

    def addExpectedFailure(self, test, err):
        self.write(test, "passed", "")

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self.write(test, "failed", said(err))

    def write(self, test, outcome, error):
        name = str(test.id() if hasattr(test, "id") else test)
        with open(self._path, "a") as file:
            file.write(json.dumps({"test": name, "outcome": outcome, "error": error}) + "\n")


def said(err):
    """Return the error in one line, and print its traceback."""
    traceback.print_exception(*err)
    line = " ".join("".join(traceback.format_exception_only(*err[:2])).split())
    # Without the folders of this machine.
    return re.sub(r'"/[^"]*/', '"', line)[:300]


def tests_of(suite):
    """Return the tests of a suite and of those in it."""
    for each in suite:
        if isinstance(each, unittest.TestSuite):
            yield from tests_of(each)
        else:
            yield each


def main():
    path, results = sys.argv[1:]
    done = set()
    if os.path.exists(results):
        with open(results) as file:
            done = {json.loads(line)["test"] for line in file}
    recorder = Recorder(results)
    name = os.path.splitext(os.path.basename(path))[0]
    sys.argv[1:] = []
    try:
        from absl import flags

        spec = importlib.util.spec_from_file_location(name, path)
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        flags.FLAGS(sys.argv)
    except Exception:
        recorder.write(f"{name}.import", "failed", said(sys.exc_info()))
        return
    for test in tests_of(unittest.defaultTestLoader.loadTestsFromModule(module)):
        if test.id() not in done and not test.id().endswith(".test_session"):
            unittest.TestSuite([test]).run(recorder)


if __name__ == "__main__":
    main()
