"""Ends in the way that its argument names. Does not use TensorFlow."""
import os
import signal
import sys
import threading


def inner():
    raise ValueError("from inner")


def chained():
    try:
        inner()
    except ValueError as error:
        raise RuntimeError("from chained") from error


how = sys.argv[1]
if how == "exit 3":
    sys.exit(3)
elif how == "exit text":
    sys.exit("a last word")
elif how == "exit none":
    sys.exit()
elif how == "raise":
    chained()
elif how == "import":
    import no_such_module_anywhere
elif how == "from":
    from collections import no_such_name
elif how == "thread":
    thread = threading.Thread(target=inner, name="worker")
    thread.start()
    thread.join()
elif how == "signal":
    os.kill(os.getpid(), signal.SIGTERM)
elif how == "interrupt":
    os.kill(os.getpid(), signal.SIGINT)
elif how == "hard":
    os._exit(7)
