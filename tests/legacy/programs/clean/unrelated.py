"""Things that look like staging and are not: dictionaries, queue.Queue, subprocess, other people's run()."""
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
