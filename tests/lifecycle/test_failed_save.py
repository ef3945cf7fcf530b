"""A checkpoint that the disk has no room for ends the training with an error that names the folder."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from forked import ForkServer

# No file may become larger than the limit, which the system sets for a process. The first checkpoint is saved before.
PROGRAM = """
import resource, signal, sys
import numpy as np
import tensorflow.compat.v1 as tf
import staging_tf1 as staging
from staging_tf1.errors import CheckpointError

tf.disable_v2_behavior()
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
folder, way = sys.argv[1:]
x = staging.staged(staging.sources.ArraySource(np.ones(64, np.float32), batch_size=2))
w = tf.get_variable("w", [300_000], use_resource=True)
train = tf.group(tf.train.get_or_create_global_step().assign_add(1), w.assign_add(tf.ones([300_000]) * x[0]))
options = dict(checkpoint_dir=folder, save_checkpoint_steps=5, save_summaries_steps=None)
if way == "StagingSession":
    opened = staging.StagingSession(**options)
else:
    opened = tf.train.MonitoredTrainingSession(**options, hooks=[staging.StagingHook(save_on_stop=way == "on stop")])
try:
    with opened as sess:
        for step in range(12):
            if step == 3:
                resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
            sess.run(train)
except CheckpointError as error:
    print(error)
"""


# The others differ by who starts the session, and by another wrapper around the saver.
@pytest.mark.slow_cases("StagingHook|on stop")
@pytest.mark.parametrize("way", ["StagingSession", "StagingHook", "on stop"])
def test_a_file_too_large_is_an_error_of_the_checkpoint(way: str, tmp_path: Path, fork_server: ForkServer) -> None:
    folder = tmp_path / "run"
    said = fork_server.run("-c", PROGRAM, str(folder), way).stdout.splitlines()[-1]
    assert said.startswith(f"checkpoint '{folder}/model.ckpt-")
    assert f"cannot be saved in the folder '{folder}' (" in said
    assert re.search(r"MiB are free\): OutOfRangeError: \S*model\.ckpt\S+; File too large\. Free space there, ", said)
    assert "raise the limit of file sizes (ulimit -f). The checkpoints before it are complete." in said
    assert list(folder.glob("*_temp*")) == []
    assert list(folder.glob("model.ckpt-0.index")) != []
