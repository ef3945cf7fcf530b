"""Code that only looks like staging: dictionaries, queue.Queue, subprocess, run() of other classes."""
import queue
import subprocess
import threading

import numpy as np
import tensorflow.compat.v1 as tf

cache = {}
work = queue.Queue()


def worker():
    while True:
        item = work.get()
        cache.get(item)
        subprocess.run(["true"], check=False)
        work.task_done()


threading.Thread(target=worker, daemon=True).start()
table = np.zeros(4)
for step in range(10):
    work.put(step)
    table[step % 4] = cache.get(step, 0)
    subprocess.run(["true"], check=False)
print(tf.__version__, table.sum())
