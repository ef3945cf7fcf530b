"""Prints what a program can see of how it was started. Does not use TensorFlow."""
import json
import os
import signal
import sys
import threading

print(
    json.dumps(
        {
            "argv": sys.argv,
            "name": __name__,
            "file": __file__,
            "spec": getattr(__spec__, "name", None),
            "package": __package__,
            "cwd": os.getcwd(),
            "path0": sys.path[0],
            "path": [p for p in sys.path if "bootstrap" in p],
            "doc": __doc__,
            "main": sys.modules["__main__"].__dict__ is globals(),
            "hook": sys.excepthook is sys.__excepthook__,
            "import": __import__.__module__,
            "threads": threading.active_count(),
            "sigint": str(signal.getsignal(signal.SIGINT)),
            "flags": [sys.flags.optimize, sys.warnoptions],
            "stdin": sys.stdin.read(),
        }
    )
)
