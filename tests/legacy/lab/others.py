"""Drivers of the programs on sounds, series, graphs and games."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
from jobs import Job, mnist, sentences, sound, write


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


def tacotron(clone: Path, data: Path) -> Job:
    """What the program's preprocess.py writes: spectrograms, and lines of text."""
    folder = data / "training"
    folder.mkdir()
    draw = np.random.RandomState(1)
    lines = []
    for number, text in enumerate(sentences(40, 23, ["hello", "world", "good", "morning"], 4)):
        frames = 20 + number % 5 * 5
        np.save(folder / f"mel-{number}.npy", draw.rand(frames, 80).astype(np.float32))
        np.save(folder / f"spec-{number}.npy", draw.rand(frames, 1025).astype(np.float32))
        lines.append(f"spec-{number}.npy|mel-{number}.npy|{frames}|{text}")
    write(folder / "train.txt", *lines)
    small = "batch_size=4,embed_depth=16,attention_depth=16,decoder_depth=16"
    return Job(["train.py", "--base_dir={data}", "--name={out}", f"--hparams={small}", "--summary_interval=1000"])


def tacotron_2(clone: Path, data: Path) -> Job:
    """What the program's preprocess.py writes: spectrograms, and lines of text."""
    draw = np.random.RandomState(1)
    for folder in ("mels", "linear"):
        (data / folder).mkdir()
    lines = []
    for number, text in enumerate(sentences(40, 24, ["hello", "world", "good", "morning"], 4)):
        frames = 20 + number % 5 * 5
        np.save(data / "mels" / f"mel-{number}.npy", draw.uniform(-4, 4, [frames, 80]).astype(np.float32))
        np.save(data / "linear" / f"linear-{number}.npy", draw.uniform(-4, 4, [frames, 1025]).astype(np.float32))
        lines.append(f"audio-{number}.npy|mel-{number}.npy|linear-{number}.npy|{275 * frames}|{frames}|{text}")
    write(data / "train.txt", *lines)
    small = (
        "tacotron_batch_size=4,tacotron_test_size=0.1,embedding_dim=16,enc_conv_channels=16,encoder_lstm_units=16,"
        "attention_dim=16,prenet_layers=[16,16],decoder_lstm_units=16,postnet_channels=16,cbhg_conv_channels=16,"
        "cbhg_projection=16,cbhg_highway_units=16,cbhg_rnn_units=16,"
        "GL_on_GPU=False"  # it calls librosa as it was before 0.10
    )
    return Job(
        ["train.py", "--model=Tacotron", "--base_dir={out}", "--tacotron_input={data}/train.txt", f"--hparams={small}"]
    )


def spleeter(clone: Path, data: Path) -> Job:
    """Songs of 2 s in stereo, with their parts, and the program's settings for a small network."""
    parts = ["vocals", "accompaniment"]
    names = ["mix", *parts]
    for song in range(4):
        for number, name in enumerate(names):
            sound(data / "songs" / f"{song}_{name}.wav", 2.0, 3 * song + number, 8000, 2)
    songs = [",".join([*(f"{song}_{name}.wav" for name in names), "2.0"]) for song in range(4)]
    write(data / "songs.csv", ",".join([*(f"{name}_path" for name in names), "duration"]), *songs)
    settings = dict(
        train_csv="{data}/songs.csv",
        validation_csv="{data}/songs.csv",
        model_dir="model",
        training_cache="cache/training",
        mix_name="mix",
        instrument_list=parts,
        sample_rate=8000,
        frame_length=256,
        frame_step=249,  # 64 frames in 2 s, so that there is nothing to crop
        chunk_duration=2.0,
        n_chunks_per_song=1,
        T=64,
        F=64,
        n_channels=2,
        separation_exponent=2,
        mask_extension="zeros",
        learning_rate=1e-4,
        batch_size=2,
        train_max_steps=11,
        throttle_secs=600,
        random_seed=3,
        save_checkpoints_steps=300,
        save_summary_steps=100,
        model=dict(type="unet.unet", params={}),
    )
    write(data / "settings.json", json.dumps(settings).replace("{data}", str(data)))
    return Job("-m spleeter train -p {data}/settings.json -d {data}/songs --verbose".split())


def timegan(clone: Path, data: Path) -> Job:
    """The program's own sine waves."""
    return Job(
        "main_timegan.py --data_name sine --seq_len 12 --module gru --hidden_dim 8 --num_layer 2 --iteration 3 "
        "--batch_size 16 --metric_iteration 1".split()
    )


def maml(clone: Path, data: Path) -> Job:
    """The program's own sinusoids."""
    return Job(
        "main.py --datasource=sinusoid --logdir={out}/logs --metatrain_iterations=2002 --norm=None "
        "--update_batch_size=10".split()
    )


def gcn(clone: Path, data: Path) -> Job:
    """Cora, which comes with the program."""
    return Job(["train.py", "--epochs=6"])


def gat(clone: Path, data: Path) -> Job:
    """Cora, which comes with the program."""
    return Job(["execute_cora.py"])


def ppo2(clone: Path, data: Path) -> Job:
    """CartPole."""
    return Job(
        "-m baselines.run --alg=ppo2 --env=CartPole-v0 --num_timesteps=1024 --num_env=1 --nsteps=128 --seed=1 "
        "--log_interval=1".split()
    )


def deepq(clone: Path, data: Path) -> Job:
    """CartPole."""
    return Job("-m baselines.run --alg=deepq --env=CartPole-v0 --num_timesteps=1500 --seed=1 --print_freq=1".split())


def stable_baselines(clone: Path, data: Path) -> Job:
    """CartPole, with the program of the README."""
    lines = [
        "from stable_baselines import PPO2",
        "model = PPO2('MlpPolicy', 'CartPole-v1', n_steps=64, verbose=1, seed=1, n_cpu_tf_sess=1)",
        "model.learn(total_timesteps=512, log_interval=1)",
    ]
    write(data / "overlay" / "first.py", *lines)
    return Job(["first.py"])


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


def dnc(clone: Path, data: Path) -> Job:
    """The program's own sequences to copy."""
    return Job("train.py --num_training_iterations=6 --report_interval=2 --checkpoint_dir={out}".split())


def learning_to_learn(clone: Path, data: Path) -> Job:
    """The program's own functions to minimize."""
    return Job("train.py --problem=simple --num_epochs=6 --log_period=1 --evaluation_period=3".split())


def gae(clone: Path, data: Path) -> Job:
    """Cora, which comes with the program."""
    return Job(["train.py", "--epochs=4"])


def deepfm(clone: Path, data: Path) -> Job:
    """The columns of the program's competition, of random numbers."""
    draw = np.random.RandomState(34)
    names = [f"ps_reg_{n:02}" for n in (1, 2, 3)] + [f"ps_car_{n}" for n in (12, 13, 14, 15)] + ["ps_ind_01"]
    folder = data / "overlay" / "example"
    for name, count in (("train", 600), ("test", 60)):
        lines = [["id", *(["target"] if name == "train" else []), *names]]
        for number in range(count):
            target = [str(number % 3 % 2)] if name == "train" else []
            lines.append([str(number), *target, *(f"{x:.3f}" for x in draw.rand(7)), str(draw.randint(4))])
        write(folder / "data" / f"{name}.csv", *(",".join(line) for line in lines))
    write(folder / "yellowfin.py", "YFOptimizer = None")  # an optimizer from another repository, which it does not use
    (folder / "fig").mkdir()
    (folder / "output").mkdir()
    return Job(["main.py"])


def graphsage(clone: Path, data: Path) -> Job:
    """A graph of 200 nodes in the program's files."""
    draw = np.random.RandomState(35)
    count = 200
    nodes = [{"id": n, "val": n % 10 == 8, "test": n % 10 == 9} for n in range(count)]
    links = [{"source": n, "target": int(m)} for n in range(count) for m in draw.randint(0, count, 4) if n != m]
    graph = {"directed": False, "multigraph": False, "graph": {}, "nodes": nodes, "links": links}
    numbers = {str(n): n for n in range(count)}
    classes = {str(n): [int(n % 3 == k) for k in range(3)] for n in range(count)}
    for name, content in (("G", graph), ("id_map", numbers), ("class_map", classes)):
        write(data / f"toy-{name}.json", json.dumps(content))
    np.save(data / "toy-feats.npy", draw.rand(count, 8))
    return Job(
        "-m graphsage.supervised_train --train_prefix={data}/toy --model=graphsage_mean --epochs=2 --batch_size=32 "
        "--dim_1=8 --dim_2=8 --max_degree=8 --samples_1=4 --samples_2=2 --print_every=1 --base_log_dir={out}".split()
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
