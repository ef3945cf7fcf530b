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
