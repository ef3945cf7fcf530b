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
DISTRIBUTIONS = " ".join(
    f"distributions.python.ops.{name}=tensorflow.python.ops.distributions.{name}"
    for name in ("bernoulli", "categorical")
)
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
    Row("bert_pretraining", *BERT, "run_pretraining.py", text.bert_pretraining, "10 documents of 6 sentences", 1,
        BERT_LOSS, note="Few and small steps, so that the schedule below matters little."),
    Row("albert_classifier", "google-research/albert", "b772393d3dae115b493258ce8e37c17b2cc62100",
        "run_classifier.py", text.albert_classifier, "CoLA's format, 96 sentences", 1,
        r"^INFO:tensorflow:Loss for final step: (\d+\.\d+)", environment={"PYTHONPATH": ".."},
        packages=("sentencepiece", "tensorflow_hub"),
        note="Few and small steps, so that the schedule below matters little."),
    Row("electra", "google-research/electra", "8a46635f32083ada044d7e9ad09604742600ee7b", "run_pretraining.py",
        text.electra, "10 documents of 6 sentences", 5, r"loss: ([\d.]+)", deterministic=False,
        note="Its first loss is equal. Its optimizer is BERT's, which is the likely cause of the others; see below."),
    Row("gpt2", "openai/gpt-2", "9b63575ef42771a015060c964af2c3da4cf7c8ab", "generate_unconditional_samples.py",
        text.gpt2, "a checkpoint of initial values", 2, r"^([\d<|>a-z]{10,})$", packages=("fire", "regex")),
    Row("xlnet", "zihangdai/xlnet", "bbaa3a6fa0b3a2ee694e8cf66167434f9eca9660", "train_gpu.py", text.xlnet,
        "400 sentences", 5, r"\| loss ([\d.]+)", packages=("sentencepiece",)),
    Row("nmt", "tensorflow/nmt", "0be864257a76c151eef20ea689755f08bc1faf4e", "nmt.py", text.nmt,
        "200 pairs of sentences", 6, r"step \d+ lr .* ppl ([\d.]+)"),
    Row("char_rnn", "sherjilozair/char-rnn-tensorflow", "4bff62d34ba6d536f052145cd3f8f79b6fa11365", "train.py",
        text.char_rnn, "one text of 20 kB", 20, r"train_loss = ([\d.]+)"),
    Row("cnn_text", "dennybritz/cnn-text-classification-tf", "18762b459e21d9c70e5c242f8d43fc4e6db37a0d", "train.py",
        text.cnn_text, "120 sentences of two classes", 6, r"step \d+, loss ([\d.]+)"),
    Row("word2vec", "chiphuyen/stanford-tensorflow-tutorials", "51e53daaa2a32cfe7a1966f060b28dbbd081791c",
        "examples/04_word2vec.py", text.word2vec, "one text of 400,000 words", 1,
        r"Average loss at step \d+: +([\d.]+)", folder="examples", packages=("matplotlib",)),
    Row("ptb", *MODELS, "tutorials/rnn/ptb/ptb_word_lm.py", text.ptb, "three texts of 80 sentences", 3,
        r"Perplexity: ([\d.]+)", folder="tutorials/rnn/ptb"),
    Row("sequence_tagging", "guillaumegenthial/sequence_tagging", "5cb9890e7c52e35a1239378da43a8de7be508003",
        "train.py", text.sequence_tagging, "60 tagged sentences", 3, r"- f1 ([\d.]+)|acc ([\d.]+) - f1"),
    Row("tf_ner", "guillaumegenthial/tf_ner", "e9bca45c7a3d73e1b7ee5ce12ff4f33e4598f9d9", "lstm_crf/main.py",
        text.tf_ner, "40 tagged sentences", 1, r"Loss for final step: (\d+\.\d+)", folder="models/lstm_crf",
        environment={"PYTHONPATH": "{clones}/tf_metrics"},
        note="Needs a clone of guillaumegenthial/tf_metrics."),
    Row("neuroner", "Franck-Dernoncourt/NeuroNER", "3817feaf290c1f6e03ae23ea964e68c88d0e7a88", "neuroner",
        text.neuroner, "20 tagged sentences", 2, r"accuracy: +([\d.]+)%", packages=("spacy", "pycorenlp")),
    Row("wavenet", "ibab/tensorflow-wavenet", "3c973c038c8c2c20fef0039f111cb04139ff594b", "train.py", others.wavenet,
        "4 recordings of 1 s", 5, r"loss = ([\d.]+)", packages=("librosa",)),
    Row("tacotron", "keithito/tacotron", "d26c763342518d4e432e9c4036a1aff3b4fdaa1e", "train.py", others.tacotron,
        "40 spectrograms", 4, r"loss=([\d.]+)", deterministic=False,
        note="A thread shuffles its input.",
        packages=("librosa", "unidecode", "inflect")),
    Row("timegan", "jsyoon0823/TimeGAN", "8f6181cb9b9d2fa0c930cd902411d9ac8a308e07", "main_timegan.py",
        others.timegan, "its own sine waves", 3, r"([eg]_loss(?:_[suvt])?: [\d.]+)", packages=("scikit-learn",)),
    Row("maml", "cbfinn/maml", "a7f45f1bcd7457fe97b227a21e89b8a82cc5fa49", "main.py", others.maml,
        "its own sinusoids", 2, r"Iteration \d+: ([\d.]+)"),
    Row("gcn", "tkipf/gcn", "39a4089fe72ad9f055ed6fdb9746abdcfebc4d81", "train.py", others.gcn, "Cora", 6,
        r"train_loss= ([\d.]+)", folder="gcn", environment={"PYTHONPATH": ".."}, packages=("networkx",)),
    Row("gat", "PetarV-/GAT", "5af87e7fce2b90ae1cbd621cd58059036a3c7436", "execute_cora.py", others.gat, "Cora", 3,
        r"Training: loss = ([\d.]+)", packages=("networkx",)),
    Row("baselines_ppo2", *BASELINES, "run.py --alg=ppo2", others.ppo2, "CartPole", 4,
        r"loss/value_loss +\| ([\d.e-]+)", packages=("gym",)),
    Row("baselines_deepq", *BASELINES, "run.py --alg=deepq", others.deepq, "CartPole", 4,
        r"mean 100 episode reward +\| ([\d.e-]+)", packages=("gym",)),
    Row("stable_baselines", "hill-a/stable-baselines", "259f27868f0d727d990f50e04da6e3a5d5367582", "PPO2",
        others.stable_baselines, "CartPole", 4, r"value_loss +\| ([\d.e-]+)", packages=("gym", "cloudpickle")),
    Row("cifar10", *MODELS, "tutorials/image/cifar10/cifar10_train.py", images.cifar10, "1,000 random pictures", 3,
        r"loss = ([\d.]+)", folder="tutorials/image/cifar10", deterministic=False,
        note="16 threads shuffle its input."),
    Row("cifar10_towers", *MODELS, "tutorials/image/cifar10/cifar10_multi_gpu_train.py", images.cifar10_multi_gpu,
        "1,000 random pictures", 2, r"loss = ([\d.]+)", folder="tutorials/image/cifar10", deterministic=False,
        note="16 threads shuffle its input."),
    Row("slim", *MODELS, "research/slim/train_image_classifier.py", images.slim, "24 pictures", 3,
        r"loss = ([\d.]+)", folder="research/slim", deterministic=False, note="Threads shuffle its input."),
    Row("facenet", "davidsandberg/facenet", "096ed770f163957c1e56efa7feeb194773920f6e", "src/train_softmax.py",
        images.facenet, "24 pictures of 4 persons", 3, r"Loss ([\d.]+)", deterministic=False,
        note="Threads shuffle its input.", packages=("scikit-learn", "h5py")),
    Row("dcgan", "carpedm20/DCGAN-tensorflow", "62c9a2a7f74505cad30858bf40307c93e5bd9293", "main.py", images.dcgan,
        "pictures in MNIST's format", 4, r"d_loss: ([\d.]+)"),
    Row("pix2pix", "affinelayer/pix2pix-tensorflow", "0f2174424356162920fc25067e63db2bcf19f4e7", "pix2pix.py",
        images.pix2pix, "4 pairs of pictures", 3, r"discrim_loss ([\d.]+)"),
    Row("monodepth", "mrharicot/monodepth", "b76bee4bd12610b482163871b7ff93e931cb5331", "monodepth_main.py",
        images.monodepth, "8 stereo pairs", 0, r"loss: ([\d.]+)", deterministic=False, to_the_end=True,
        note="It prints no figure before step 100."),
    Row("tf_cnn_benchmarks", "tensorflow/benchmarks", "aef6daa90a467a1fc7ce8395cd0067e5fda1ecff",
        "scripts/tf_cnn_benchmarks", images.tf_cnn_benchmarks, "synthetic pictures", 5,
        r"^\d+\timages/sec.*\t([\d.]+)$", folder="scripts/tf_cnn_benchmarks"),
    Row("gazeml", "swook/GazeML", "27f4e780c6720bf10735dc08597af9d895f14491", "src/elg_train.py", images.gazeml,
        "40 pictures of eyes", 2, r"heatmaps_mse = ([\d.e-]+)", folder="src", deterministic=False,
        note="Threads prepare its input."),
    Row("examples_kmeans", *EXAMPLES, "2_BasicModels/kmeans.py", others.example("2_BasicModels/kmeans"),
        "pictures in MNIST's format", 6, r"Avg Distance: ([\d.]+)", deterministic=False,
        note="K-means adds to the counts of its clusters while it reads them; nothing orders the two."),
    Row("examples_forest", *EXAMPLES, "2_BasicModels/random_forest.py", others.example("2_BasicModels/random_forest"),
        "pictures in MNIST's format", 2, r"Loss: (-?[\d.]+)",
        known="Its ops are in a binary of TensorFlow 1; [out_of_reach.md](out_of_reach.md) names a package instead."),
    Row("examples_rnn", *EXAMPLES, "3_NeuralNetworks/dynamic_rnn.py", others.example("3_NeuralNetworks/dynamic_rnn"),
        "its own series", 4, r"Minibatch Loss= ([\d.]+)"),
    Row("examples_dataset", *EXAMPLES, "5_DataManagement/tensorflow_dataset_api.py",
        others.example("5_DataManagement/tensorflow_dataset_api"), "pictures in MNIST's format", 2,
        r"Minibatch Loss= ([\d.]+)"),
    Row("spleeter", "deezer/spleeter", "47b990e5f2dde57a8dcdfdc911e584f8c96442b3", "spleeter train", others.spleeter,
        "4 songs of 2 s", 4, r"loss = (\d+\.\d+)|Loss for final step: (\d+\.\d+)",
        packages=("librosa", "ffmpeg-python", "pandas", "requests", "the program ffmpeg")),
    Row("tacotron_2", "Rayhane-mamah/Tacotron-2", "ab5cb08a931fc842d3892ebeb27c8b8734ddd4b8", "train.py",
        others.tacotron_2, "40 spectrograms", 4, r" loss=([\d.]+)", deterministic=False,
        note="Threads shuffle its input.",
        packages=("librosa", "unidecode", "inflect", "scikit-learn", "tqdm", "matplotlib", "pyaudio", "sounddevice")),
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
    Row("opennmt", "OpenNMT/OpenNMT-tf", "d2071c759a383d6d60b1e5a39d36db0a36c7ceef",
        "onmt-main train", text.opennmt, "200 pairs of sentences", 6, r"loss = ([\d.]+)",
        environment={"PYTHONPATH": "."}, packages=("pyonmttok", "rouge", "sacrebleu")),
    Row("tensor2tensor", "tensorflow/tensor2tensor", "06862886125f5b5d262e2b0e6ffeba059dc0d57d",
        "t2t-trainer", text.tensor2tensor, "numbers to reverse", 1, r"Loss for final step: (\d+\.\d+)",
        deterministic=False, note="Threads shuffle its input.",
        flags=("--package=tensorflow_gan", "--package=tensorflow_hub"),
        environment={"PYTHONPATH": ".", "LAB_EARLIER": GAN},
        packages=("gym", "sympy", "tensorboard", "tensorflow-gan", "tensorflow-hub", "tensorflow-probability")),
    Row("seq2seq", "google/seq2seq", "7f485894d412e8d81ce0e07977831865e44309ce",
        "bin/train.py", text.seq2seq, "200 pairs of sentences", 1, r"Loss for final step: (\d+\.\d+)",
        deterministic=False, note="Threads shuffle its input.", environment={"LAB_EARLIER": DISTRIBUTIONS}),
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
    Row("bilm", "allenai/bilm-tf", "7cffee2b0986be51f5e2a747244836e1047657f4",
        "bin/train_elmo.py", text.bilm, "256 sentences", 2, r"train_perplexity=([\d.]+)", packages=("h5py",)),
    Row("transformer", "Kyubyong/transformer", "fb023bb097e08d53baf25b46a9da490beba51a21",
        "train.py", text.transformer, "200 pairs of sentences", 2, r"L([\d.]+)", packages=("sentencepiece", "tqdm")),
    Row("tflearn", "tflearn/tflearn", "db5176773299b67a2a75c5889fb2aba7fd0fea8a",
        "examples/nlp/bidirectional_lstm.py", text.tflearn, "140 random texts", 3, r"val_loss: ([\d.]+)",
        environment={"PYTHONPATH": "."}),
    Row("dnc", "deepmind/dnc", "d3d94b3b1f1efc282481910054f82047caf37f65",
        "train.py", others.dnc, "its own sequences", 2, r"^INFO.*Avg training loss (\d+\.\d+)", flags=SONNET,
        environment=OLD_MESSAGES, packages=SONNET_PACKAGES),
    Row("learning_to_learn", "deepmind/learning-to-learn", "f3c1a8d176b8ea7cc60478bfcfdd10a7a52fd296",
        "train.py", others.learning_to_learn, "its own functions", 6, r"Error: ([-\d.]+)", flags=SONNET,
        environment=OLD_MESSAGES, packages=(*SONNET_PACKAGES, "dill", "mock")),
    Row("gae", "tkipf/gae", "0ebbe9b9a8f496eb12deb9aa6a62e7016b5a5ac3",
        "train.py", others.gae, "Cora", 4, r"train_loss= ([\d.]+)", folder="gae", environment={"PYTHONPATH": ".."},
        packages=("networkx", "scikit-learn")),
    Row("graphsage", "williamleif/GraphSAGE", "a0fdef95dca7b456dab01cb35034717c8b6dd017",
        "graphsage/supervised_train.py", others.graphsage, "200 nodes", 4, r"train_loss= ([\d.]+)",
        environment={"PYTHONPATH": "{clones}/networkx"},
        note="Needs networkx 1.11, here in a folder of the clones."),
    Row("deepfm", "ChenglongChen/tensorflow-DeepFM", "a43dd5ff1f61a275c8a6e0fd659e200af64093cc",
        "example/main.py", others.deepfm, "600 rows", 6, r"train-result=(-?[\d.]+)", folder="example",
        environment={"PYTHONPATH": ".."}, packages=("scikit-learn", "pandas", "matplotlib")),
    Row("adanet", "tensorflow/adanet", "92611622e4f200f3852e1c6f6e0a7e786a345fa5",
        "simple_dnn", others.adanet, "64 rows", 3, r"^INFO.*:loss = ([\d.]+), step|^end ([\d.]+)", to_the_end=True),
    Row("pointnet", "charlesq34/pointnet", "2618f72bc1a0fd21b074096e748016960d44ef55",
        "train.py", images.pointnet, "64 clouds of points", 2, r"^mean loss: ([\d.]+)", packages=("h5py",),
        note="What kernels round differently grows: the third loss differs by 2 %."),
    Row("mnist_vae", "hwalsuklee/tensorflow-mnist-VAE", "e7903ac398aa5fc3eec8470177abf6ef78d9cac1",
        "run_main.py", images.mnist_vae, "pictures in MNIST's format", 2, r"L_tot ([\d.]+)",
        packages=("scipy", "pillow")),
    Row("cyclegan", "vanhuyz/CycleGAN-TensorFlow", "befe2f57032ee6c25d0dbd1f497f5b5432375da5",
        "train.py", images.cyclegan, "2 pictures", 1, r"D_Y_loss +: ([\d.]+)",
        note="It updates a discriminator while it reads it for the loss of a generator; nothing orders the two. The "
        "figure is the other loss."),
    Row("tf_unet", "jakeret/tf_unet", "0dcdf2ff1ebcc2ee59997d127a0c0be847168884",
        "scripts/launcher.py", images.tf_unet, "its own circles", 6, r"Minibatch Loss= ([\d.]+)",
        packages=("matplotlib", "pillow")),
    Row("ugatit", "taki0112/UGATIT", "d508e8f5188e47000d79d8aecada0cc9119e0d56",
        "main.py", images.ugatit, "2 pictures", 3, r"d_loss: ([\d.]+)", packages=("opencv-python-headless",)),
]  # fmt: skip
