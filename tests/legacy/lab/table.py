"""The programs of the lab, one row each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import images
import others
import text
from jobs import Job

BERT_LOSS = r"^INFO:tensorflow:Loss for final step: (\d+\.\d+)"


@dataclass(frozen=True)
class Row:
    """One program of a repository."""

    name: str
    repository: str  # owner/name on GitHub
    commit: str
    program: str  # as the table of the page shows it
    driver: Callable[[Path, Path], Job]  # (clone, folder for data) -> how to start it
    input: str  # what it reads, for the table
    steps: int  # how many figures are compared; a program that prints more is stopped there
    figures: str  # a regular expression; the first group that matches is the figure
    clone: str = ""  # folder of the clone; default: the repository's own name
    folder: str = ""  # where it is started, below the clone
    deterministic: bool = True  # False: it must run, and what it prints is not compared
    to_the_end: bool = False  # not stopped after `steps` figures
    flags: tuple[str, ...] = ()  # of staging-tf1 run
    packages: tuple[str, ...] = ()  # what must be installed
    environment: Mapping[str, str] = field(default_factory=dict)
    limit_secs: int = 400
    note: str = ""  # a remark for the table
    known: str = ""  # why it stops or differs, if it does

    def __post_init__(self) -> None:
        object.__setattr__(self, "clone", self.clone or self.repository.partition("/")[2])


BERT = ("google-research/bert", "eedf5716ce1268e56f0a50264a88cafad334ac61")
MODELS = ("tensorflow/models", "7b5606a5d6e469a090bce3b443915747a01e3521")
EXAMPLES = ("aymericdamien/TensorFlow-Examples", "6dcbe14649163814e72a22a999f20c5e247ce988")
BASELINES = ("openai/baselines", "ea25b9e8b234e6ee1bca43083f8f3cf974143998")

# What left tf.contrib before 1.15.5, which gets it for the program.
LITE = "lite=tensorflow.lite lite.python=tensorflow.lite.python"
GAN = "gan=tensorflow_gan"
# The messages of sonnet were made by an older protobuf.
OLD_MESSAGES = {"PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python"}
SONNET = ("--package=sonnet",)
SONNET_PACKAGES = ("dm-sonnet 1.36", "tensorflow-probability")

ROWS = [
    Row("bert_classifier", *BERT, "run_classifier.py", text.bert_classifier, "CoLA's format, 96 sentences", 1,
        BERT_LOSS,
        note="Few and small steps, so that the schedule below matters little: the loss moves by only 0.2 %."),
    Row("bert_warm_up", *BERT, "run_classifier.py, with warm-up", text.bert_classifier_warm_up,
        "CoLA's format, 96 sentences", 1, r"^INFO:tensorflow:Loss for final step: (\d+\.\d+)", deterministic=False,
        note="The program reads the global step for its learning rate while it assigns the next one; see below."),
    Row("gpt2", "openai/gpt-2", "9b63575ef42771a015060c964af2c3da4cf7c8ab", "generate_unconditional_samples.py",
        text.gpt2, "a checkpoint of initial values", 2, r"^([\d<|>a-z]{10,})$", packages=("fire", "regex")),
    Row("nmt", "tensorflow/nmt", "0be864257a76c151eef20ea689755f08bc1faf4e", "nmt.py", text.nmt,
        "200 pairs of sentences", 6, r"step \d+ lr .* ppl ([\d.]+)"),
    Row("char_rnn", "sherjilozair/char-rnn-tensorflow", "4bff62d34ba6d536f052145cd3f8f79b6fa11365", "train.py",
        text.char_rnn, "one text of 20 kB", 20, r"train_loss = ([\d.]+)"),
    Row("sequence_tagging", "guillaumegenthial/sequence_tagging", "5cb9890e7c52e35a1239378da43a8de7be508003",
        "train.py", text.sequence_tagging, "60 tagged sentences", 3, r"- f1 ([\d.]+)|acc ([\d.]+) - f1"),
    Row("wavenet", "ibab/tensorflow-wavenet", "3c973c038c8c2c20fef0039f111cb04139ff594b", "train.py", others.wavenet,
        "4 recordings of 1 s", 5, r"loss = ([\d.]+)", packages=("librosa",)),
    Row("gcn", "tkipf/gcn", "39a4089fe72ad9f055ed6fdb9746abdcfebc4d81", "train.py", others.gcn, "Cora", 6,
        r"train_loss= ([\d.]+)", folder="gcn", environment={"PYTHONPATH": ".."}, packages=("networkx",)),
    Row("baselines_ppo2", *BASELINES, "run.py --alg=ppo2", others.ppo2, "CartPole", 4,
        r"loss/value_loss +\| ([\d.e-]+)", packages=("gym",)),
    Row("cifar10_towers", *MODELS, "tutorials/image/cifar10/cifar10_multi_gpu_train.py", images.cifar10_multi_gpu,
        "1,000 random pictures", 2, r"loss = ([\d.]+)", folder="tutorials/image/cifar10", deterministic=False,
        note="16 threads shuffle its input."),
    Row("slim", *MODELS, "research/slim/train_image_classifier.py", images.slim, "24 pictures", 3,
        r"loss = ([\d.]+)", folder="research/slim", deterministic=False, note="Threads shuffle its input."),
    Row("pix2pix", "affinelayer/pix2pix-tensorflow", "0f2174424356162920fc25067e63db2bcf19f4e7", "pix2pix.py",
        images.pix2pix, "4 pairs of pictures", 3, r"discrim_loss ([\d.]+)"),
    Row("tf_cnn_benchmarks", "tensorflow/benchmarks", "aef6daa90a467a1fc7ce8395cd0067e5fda1ecff",
        "scripts/tf_cnn_benchmarks", images.tf_cnn_benchmarks, "synthetic pictures", 5,
        r"^\d+\timages/sec.*\t([\d.]+)$", folder="scripts/tf_cnn_benchmarks"),
    Row("examples_kmeans", *EXAMPLES, "2_BasicModels/kmeans.py", others.example("2_BasicModels/kmeans"),
        "pictures in MNIST's format", 6, r"Avg Distance: ([\d.]+)", deterministic=False,
        note="K-means adds to the counts of its clusters while it reads them; nothing orders the two."),
    Row("examples_forest", *EXAMPLES, "2_BasicModels/random_forest.py", others.example("2_BasicModels/random_forest"),
        "pictures in MNIST's format", 2, r"Loss: (-?[\d.]+)",
        known="Its ops are in a binary of TensorFlow 1; [out_of_reach.md](out_of_reach.md) names a package instead."),
    Row("tensorpack", "tensorpack/tensorpack", "f128a5c6cb443f72c93e9941eaeb2c99c88b62b6",
        "examples/keras/mnist-keras.py", images.tensorpack, "pictures in MNIST's format", 2,
        r"validation_cross_entropy_loss: ([\d.]+)", folder="examples/keras", deterministic=False,
        environment={"PYTHONPATH": "../..", "CUDA_VISIBLE_DEVICES": "0,1", "TENSORPACK_DATASET": "{data}"},
        note="It shuffles by the clock. Two towers, with StagingInput.",
        packages=("msgpack", "msgpack_numpy", "tabulate", "termcolor", "tqdm", "psutil", "pyzmq")),
    Row("nvidia_resnet", "NVIDIA/DeepLearningExamples", "729963dd47e7c8bd462ad10bfac7a7b0b604e6dd",
        "TensorFlow/Classification/ConvNets/main.py", images.nvidia_resnet, "synthetic pictures", 3,
        r"total_ips : ([\d.]+)", folder="TensorFlow/Classification/ConvNets", deterministic=False,
        known="dllogger is only on GitHub, DALI on NVIDIA's index, and horovod must be built against the installed "
        "TensorFlow. With stand-ins for the three it trains on 2.21."),
    Row("tensor2tensor", "tensorflow/tensor2tensor", "06862886125f5b5d262e2b0e6ffeba059dc0d57d",
        "t2t-trainer", text.tensor2tensor, "numbers to reverse", 1, r"Loss for final step: (\d+\.\d+)",
        deterministic=False, note="Threads shuffle its input.",
        flags=("--package=tensorflow_gan", "--package=tensorflow_hub"),
        environment={"PYTHONPATH": ".", "LAB_EARLIER": GAN},
        packages=("gym", "sympy", "tensorboard", "tensorflow-gan", "tensorflow-hub", "tensorflow-probability")),
    Row("deepspeech", "mozilla/DeepSpeech", "0e40db695332bf1aa6589ca62f5520509214a35f",
        "DeepSpeech.py", others.deepspeech, "a recording, 12 times", 3, r"loss: ([\d.]+)",
        flags=("--package=attrdict",), environment={"LAB_EARLIER": LITE},
        packages=("python_speech_features", "pyxdg", "attrdict", "tables", "progressbar2", "pandas")),
    Row("scalable_agent", "deepmind/scalable_agent", "6c0c8a701990fab9053fb338ede9c915c18fa2b1",
        "experiment.py", others.scalable_agent, "random pictures as games", 1, r"total_loss (-?[\d.]+)",
        flags=SONNET, environment=OLD_MESSAGES, packages=SONNET_PACKAGES, to_the_end=True),
    Row("object_detection", "apacha/Mensural-Detector", "05c91204cf268feaae84cd079dbe7a1852fba216",
        "object_detection/train.py", images.object_detection, "8 pictures with boxes", 1, r"^INFO.*loss = ([\d.]+)",
        environment={"PYTHONPATH": ".:slim", **OLD_MESSAGES}, packages=("matplotlib",),
        note="A copy of object_detection and slim of tensorflow/models."),
    Row("adanet", "tensorflow/adanet", "92611622e4f200f3852e1c6f6e0a7e786a345fa5",
        "simple_dnn", others.adanet, "64 rows", 3, r"^INFO.*:loss = ([\d.]+), step|^end ([\d.]+)", to_the_end=True),
]  # fmt: skip
