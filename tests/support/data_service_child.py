"""Serves as a worker of the tf.data service until its standard input ends or a test kills it.

Run as `python data_service_child.py DISPATCHER PORT`. Prints a line when the dispatcher knows the worker.
"""

from __future__ import annotations

import sys

from tensorflow.data.experimental import service


def main(dispatcher: str, port: int) -> None:
    config = service.WorkerConfig(dispatcher_address=dispatcher, port=port, heartbeat_interval_ms=50)
    worker = service.WorkerServer(config)
    print(f"serving {dispatcher}", flush=True)
    sys.stdin.read()
    worker.stop()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
