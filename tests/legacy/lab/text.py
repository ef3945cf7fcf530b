"""Drivers of the programs that read text: language models, taggers, translation."""

from __future__ import annotations

import json
import random
from pathlib import Path

from jobs import MAKERS, WORDS, Job, sentences, write

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
SMALL_BERT = {
    "attention_probs_dropout_prob": 0.0,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.0,
    "hidden_size": 32,
    "initializer_range": 0.02,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    "num_attention_heads": 2,
    "num_hidden_layers": 2,
    "type_vocab_size": 2,
    "vocab_size": len(SPECIAL) + len(WORDS),
}


def _bert_files(data: Path, **more: object) -> None:
    write(data / "vocab.txt", *SPECIAL, *WORDS)
    write(data / "config.json", json.dumps({**SMALL_BERT, **more}))
    for name, count in (("train", 96), ("dev", 16), ("test", 16)):
        halves = [sentences(count, 1, WORDS[:30]), sentences(count, 2, WORDS[30:])]
        write(data / f"{name}.tsv", *(f"s\t{index % 2}\t*\t{halves[index % 2][index]}" for index in range(count)))


def bert_classifier(clone: Path, data: Path) -> Job:
    """CoLA's format, on sentences whose words tell the class."""
    _bert_files(data)
    return Job(
        "run_classifier.py --task_name=cola --do_train=true --data_dir={data} "
        "--vocab_file={data}/vocab.txt --bert_config_file={data}/config.json --max_seq_length=16 "
        "--train_batch_size=16 --learning_rate=1e-4 --num_train_epochs=10 --warmup_proportion=0 "
        "--output_dir={out}".split()
    )


def bert_classifier_warm_up(clone: Path, data: Path) -> Job:
    """Six steps, with two of warm-up."""
    changes = {"--warmup_proportion=0": "--warmup_proportion=0.4", "--num_train_epochs=10": "--num_train_epochs=1"}
    return Job([changes.get(word, word) for word in bert_classifier(clone, data).command])


def gpt2(clone: Path, data: Path) -> Job:
    """A vocabulary of digits, and a checkpoint of initial values, which the program's own model makes."""
    folder = data / "models" / "tiny"
    names = {str(digit): digit for digit in range(10)} | {"<|endoftext|>": 10}
    write(folder / "encoder.json", json.dumps(names))
    write(folder / "vocab.bpe", "#version: 0.2")
    write(folder / "hparams.json", json.dumps(dict(n_vocab=11, n_ctx=32, n_embd=16, n_head=2, n_layer=2)))
    sample = (
        "src/generate_unconditional_samples.py --model_name=tiny --seed=3 --nsamples=2 --batch_size=1 --length=20 "
        "--temperature=1 --top_k=5 --top_p=0.9 --models_dir={data}/models"
    )
    return Job(sample.split(), prepare=[[MAKERS, "gpt2_checkpoint", "{data}/models/tiny"]])


def nmt(clone: Path, data: Path) -> Job:
    """Pairs of sentences, with the vocabularies."""
    for language, prefix in (("vi", "v"), ("en", "e")):
        words = [prefix + word for word in WORDS]
        write(data / f"vocab.{language}", "<unk>", "<s>", "</s>", *words)
        for name, count in (("train", 200), ("dev", 10), ("test", 10)):
            write(data / f"{name}.{language}", *sentences(count, 5, words, 6))
    return Job(
        "-m nmt.nmt --src=vi --tgt=en --vocab_prefix={data}/vocab --train_prefix={data}/train --dev_prefix={data}/dev "
        "--test_prefix={data}/test --out_dir={out}/model --num_train_steps=6 --steps_per_stats=1 --num_layers=2 "
        "--num_units=32 --dropout=0.2 --metrics=bleu --attention=scaled_luong --batch_size=16 --random_seed=7 "
        "--steps_per_external_eval=100 --infer_mode=beam_search --beam_width=3".split()
    )


def char_rnn(clone: Path, data: Path) -> Job:
    """One text."""
    write(data / "text" / "input.txt", *sentences(300, 6))
    return Job(
        "train.py --data_dir {data}/text --save_dir {out} --log_dir {out}/logs --rnn_size 32 --num_layers 2 "
        "--seq_length 20 --batch_size 16 --num_epochs 1 --output_keep_prob 0.8".split()
    )


def _tagged(count: int, seed: int) -> list[list[tuple[str, str]]]:
    draw = random.Random(seed)
    names = {"B-PER": ["John", "Mary"], "B-LOC": ["Paris", "Rome"], "O": ["goes", "to", "the", "from", "and"]}
    return [[(draw.choice(names[tag]), tag) for tag in draw.choices([*names], [1, 1, 3], k=8)] for _ in range(count)]


def sequence_tagging(clone: Path, data: Path) -> Job:
    """CoNLL's format and GloVe vectors, at the places that the program's configuration names."""
    tagged = _tagged(60, 12)
    lines = [line for sentence in tagged for line in [*(f"{word} {tag}" for word, tag in sentence), ""]]
    write(data / "overlay" / "data" / "test.txt", *lines)
    words = sorted({word.lower() for sentence in tagged for word, _ in sentence})
    draw = random.Random(13)
    vectors = [f"{word} {' '.join(f'{draw.gauss(0, 1):.3f}' for _ in range(300))}" for word in words]
    write(data / "overlay" / "data" / "glove.6B" / "glove.6B.300d.txt", *vectors)
    return Job(["train.py"], prepare=[[MAKERS, "keep_data", "build_data.py", "{data}/overlay/data"]])


OPENNMT_MODEL = """\
import tensorflow as tf
import opennmt as onmt


def model():
    return onmt.models.SequenceToSequence(
        source_inputter=onmt.inputters.WordEmbedder("source_words_vocabulary", embedding_size=16),
        target_inputter=onmt.inputters.WordEmbedder("target_words_vocabulary", embedding_size=16),
        encoder=onmt.encoders.BidirectionalRNNEncoder(
            num_layers=2, num_units=16, reducer=onmt.layers.ConcatReducer(), cell_class=tf.nn.rnn_cell.LSTMCell,
            dropout=0.0),
        decoder=onmt.decoders.AttentionalRNNDecoder(
            num_layers=2, num_units=16, bridge=onmt.layers.CopyBridge(),
            attention_mechanism_class=tf.contrib.seq2seq.LuongAttention, cell_class=tf.nn.rnn_cell.LSTMCell,
            dropout=0.0))
"""


def _pairs(data: Path) -> None:
    for name, seed in (("source", 26), ("target", 27)):
        write(data / f"{name}.txt", *sentences(200, seed, length=6))


def opennmt(clone: Path, data: Path) -> Job:
    """Pairs of sentences, their vocabulary, and a small model of LSTM layers."""
    _pairs(data)
    write(data / "vocab.txt", "<blank>", "<s>", "</s>", *WORDS)
    write(data / "overlay" / "small.py", OPENNMT_MODEL)
    settings = {
        "model_dir": "model",
        "data": {
            "train_features_file": "source.txt",
            "train_labels_file": "target.txt",
            "source_words_vocabulary": "vocab.txt",
            "target_words_vocabulary": "vocab.txt",
        },
        "params": {"optimizer": "AdamOptimizer", "learning_rate": 0.01},
        "train": {"batch_size": 16, "train_steps": 6, "save_summary_steps": 1},
    }
    write(data / "overlay" / "small.yml", json.dumps(settings))  # YAML includes JSON
    return Job(
        "-m opennmt.bin.main train --config small.yml --model small.py --seed 1 --run_dir {out} "
        "--data_dir {data}".split()
    )


def tensor2tensor(clone: Path, data: Path) -> Job:
    """The program's own problem of numbers to reverse, with a Transformer."""
    problem = "--data_dir={data} --problem=algorithmic_reverse_binary40"
    records = f"tensor2tensor/bin/t2t_datagen.py {problem} --tmp_dir={{out}} --random_seed=1"
    train = (
        f"tensor2tensor/bin/t2t_trainer.py {problem} --model=transformer --hparams_set=transformer_tiny "
        "--hparams=batch_size=256 --train_steps=5 --schedule=train --output_dir={out}/model"
    )
    return Job(train.split(), prepare=[records.split()])


def seq2seq(clone: Path, data: Path) -> Job:
    """Pairs of sentences, and their vocabulary."""
    _pairs(data)
    write(data / "vocab.txt", *WORDS)
    # The program inspects the arguments of a cell; those of GRUCell cannot be seen in 1.15.5.
    cell = {"cell_class": "tensorflow.contrib.rnn.LayerNormBasicLSTMCell", "cell_params": {"num_units": 16}}
    side = {"rnn_cell": cell}
    model = {
        "attention.params": {"num_units": 16},
        "bridge.class": "seq2seq.models.bridges.ZeroBridge",
        "embedding.dim": 16,
        "encoder.class": "seq2seq.encoders.BidirectionalRNNEncoder",
        "encoder.params": side,
        "decoder.class": "seq2seq.decoders.AttentionDecoder",
        "decoder.params": side,
        "optimizer.name": "Adam",
        "optimizer.learning_rate": 0.01,
        "vocab_source": "{data}/vocab.txt",
        "vocab_target": "{data}/vocab.txt",
    }
    files = {"class": "ParallelTextInputPipeline"}
    files["params"] = {f"{name}_files": [f"{{data}}/{name}.txt"] for name in ("source", "target")}
    flags = {
        "model": "AttentionSeq2Seq",
        "model_params": json.dumps(model),
        "input_pipeline_train": json.dumps(files),
        "input_pipeline_dev": json.dumps(files),
        "output_dir": "{out}/model",
        "train_steps": 3,
        "batch_size": 16,
        "schedule": "train",
    }
    return Job(["-m", "bin.train", *(f"--{name}={value}" for name, value in flags.items())])


ELMO = """\
import sys

from bilm.data import BidirectionalLMDataset
from bilm.training import load_vocab, train

data, out = sys.argv[1:]
vocab = load_vocab(data + "/vocab.txt", 12)
options = dict(
    bidirectional=True, dropout=0.1, all_clip_norm_val=10.0, n_epochs=6, n_train_tokens=9 * 256, batch_size=8,
    n_tokens_vocab=vocab.size, unroll_steps=8, n_negative_samples_batch=16,
    char_cnn=dict(activation="relu", embedding=dict(dim=8), filters=[[1, 8], [2, 16]], max_characters_per_token=12,
                  n_characters=261, n_highway=2),
    lstm=dict(cell_clip=3, dim=32, n_layers=2, proj_clip=3, projection_dim=16, use_skip_connections=True))
train(options, BidirectionalLMDataset(data + "/train", vocab, test=False, shuffle_on_load=True), 1, out, out)
"""


def bilm(clone: Path, data: Path) -> Job:
    """Sentences and a vocabulary, and the program of bin/train_elmo.py with small numbers."""
    write(data / "train", *sentences(256, 28))
    write(data / "vocab.txt", "<S>", "</S>", "<UNK>", *WORDS)
    write(data / "overlay" / "elmo.py", ELMO)
    return Job("elmo.py {data} {out}".split())


def transformer(clone: Path, data: Path) -> Job:
    """Pairs of sentences in pieces, and their vocabulary."""
    _pairs(data)
    write(data / "vocab", *(f"{word}\t0" for word in ("<pad>", "<unk>", "<s>", "</s>", *WORDS)))
    files = " ".join(f"--{name}={{data}}/{text}.txt" for name, text in
                     (("train1", "source"), ("train2", "target"), ("eval1", "source"), ("eval2", "target"),
                      ("eval3", "target")))  # fmt: skip
    return Job(
        f"train.py {files} --vocab={{data}}/vocab --vocab_size=64 --d_model=16 --d_ff=32 --num_blocks=1 --num_heads=2 "
        "--maxlen1=10 --maxlen2=10 --batch_size=16 --warmup_steps=4 --num_epochs=2 --logdir={out}/log "
        "--evaldir={out}/eval".split()
    )
