"""Drivers of the programs on sounds, series, graphs and games."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from jobs import Job, mnist, sound, write


def wavenet(clone: Path, data: Path) -> Job:
    """Recordings in VCTK's folders, and a small network."""
    for number in range(4):
        sound(data / "corpus" / "wav48" / f"p{number}" / f"p{number}_001.wav", 1.0, number)
    settings = dict(
        filter_width=2,
        sample_rate=16000,
        dilations=[1, 2, 4, 8],
        residual_channels=8,
        dilation_channels=8,
        quantization_channels=256,
        skip_channels=16,
        use_biases=True,
        scalar_input=False,
        initial_filter_width=8,
    )
    write(data / "params.json", json.dumps(settings))
    return Job(
        "train.py --data_dir={data}/corpus --wavenet_params={data}/params.json --num_steps=6 --sample_size=8000 "
        "--silence_threshold=0.0 --logdir={out}".split()
    )


def gcn(clone: Path, data: Path) -> Job:
    """Cora, which comes with the program."""
    return Job(["train.py", "--epochs=6"])


def ppo2(clone: Path, data: Path) -> Job:
    """CartPole."""
    return Job(
        "-m baselines.run --alg=ppo2 --env=CartPole-v0 --num_timesteps=1024 --num_env=1 --nsteps=128 --seed=1 "
        "--log_interval=1".split()
    )


def example(name: str) -> Callable[[Path, Path], Job]:
    """Return a driver of one of TensorFlow-Examples. All read MNIST in a fixed folder."""

    def driver(clone: Path, data: Path) -> Job:
        mnist(Path("/tmp/data"), 6144, 512)
        return Job([f"tensorflow_v1/examples/{name}.py"])

    return driver


def deepspeech(clone: Path, data: Path) -> Job:
    """A recording and its text, 12 times: threads shuffle what the program reads.

    Its decoder is compiled, and is only used after the training.
    """
    path = data / "yes.wav"
    sound(path, 1.2, 30)
    line = f"{path},{path.stat().st_size},yes go no stop"
    write(data / "train.csv", "wav_filename,wav_filesize,transcript", *[line] * 12)
    names = ("ctc_beam_search_decoder", "ctc_beam_search_decoder_batch", "Scorer")
    write(data / "overlay" / "ds_ctcdecoder.py", *(f"{name} = None" for name in names))
    return Job(
        "DeepSpeech.py --train_files={data}/train.csv --dev_files={data}/train.csv --notest --epoch=3 "
        "--train_batch_size=4 --dev_batch_size=4 --n_hidden=32 --checkpoint_dir={out}/model --summary_dir={out}/log "
        "--learning_rate=0.001 --noshow_progressbar --log_level=0".split()
    )


# Its environment, DeepMind Lab, is no package. This one gives pictures, and the action as the reward. The program is
# for Python 2: it makes names of bytes with str(), and adds a str to names that are bytes.
AGENT = """\
import glob
import sys
import types

import numpy as np

sys.modules["deepmind_lab"] = types.ModuleType("deepmind_lab")
import tensorflow as tf

import environments
import experiment


class Environment(environments.PyProcessDmLab):
    def __init__(self, level, config, num_action_repeats, seed):
        self._draw = np.random.RandomState(seed)
        self._steps = 0
        self._shape = [config["height"], config["width"], 3]

    def initial(self):
        return [self._draw.randint(0, 256, self._shape).astype(np.uint8), b"go to the door"]

    def step(self, action):
        self._steps += 1
        return np.float32(action.sum() / 20), np.array(self._steps % 7 == 0), self.initial()

    def close(self):
        pass

    def __getattr__(self, name):
        return getattr(self, name[2:-1]) if name.startswith("b'") else object.__getattribute__(self, name)


class Numpy:
    def repeat(self, names, *how):
        return np.repeat(np.array(names).astype(str), *how)

    def __getattr__(self, name):
        return getattr(np, name)


def main(arguments):
    experiment.main(arguments)
    for path in glob.glob(tf.flags.FLAGS.logdir + "/events*"):
        for event in tf.train.summary_iterator(path):
            for value in event.summary.value:
                if value.tag == "total_loss":
                    print("total_loss", value.simple_value)


environments.PyProcessDmLab = Environment
experiment.np = Numpy()
tf.app.run(main)
"""


def scalable_agent(clone: Path, data: Path) -> Job:
    """One actor in an environment of random pictures."""
    write(data / "overlay" / "agent.py", AGENT)
    return Job(
        "agent.py --logdir={out} --num_actors=1 --batch_size=1 --unroll_length=7 --total_environment_frames=400 "
        "--width=32 --height=24".split()
    )


ADANET = """\
import adanet
import numpy as np
import tensorflow as tf
from adanet.examples import simple_dnn

tf.logging.set_verbosity(tf.logging.INFO)
draw = np.random.RandomState(36)
x = draw.rand(64, 4).astype(np.float32)
y = (x.sum(1, keepdims=True) > 2).astype(np.float32)


def read():
    return tf.data.Dataset.from_tensor_slices(({"x": x}, y)).repeat().batch(16).make_one_shot_iterator().get_next()


columns = [tf.feature_column.numeric_column("x", [4])]
estimator = adanet.Estimator(
    head=tf.contrib.estimator.binary_classification_head(),
    subnetwork_generator=simple_dnn.Generator(
        feature_columns=columns, optimizer=tf.train.AdamOptimizer(0.01), layer_size=8, seed=1),
    max_iteration_steps=10,
    evaluator=adanet.Evaluator(input_fn=read, steps=2),
    config=tf.estimator.RunConfig(tf_random_seed=1, log_step_count_steps=5, save_checkpoints_steps=10))
estimator.train(read, max_steps=20)
print("end", estimator.evaluate(read, steps=2)["average_loss"])
"""


def adanet(clone: Path, data: Path) -> Job:
    """A classifier that grows by networks of the program's example."""
    write(data / "overlay" / "grow.py", ADANET)
    return Job(["grow.py"])
