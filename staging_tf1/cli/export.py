"""`staging-tf1 export`: a SavedModel of the meta graph that a training run has saved beside its checkpoint."""

from __future__ import annotations

import argparse
import difflib
from typing import Any

from staging_tf1.arguments import INT64_MAX
from staging_tf1.cli.arguments import OneLineParser, complain, whole_number
from staging_tf1.errors import StagingError
from staging_tf1.quiet import import_quietly

_PROG = "staging-tf1 export"
_EPILOG = """
example:
  staging-tf1 train --logdir out
  staging-tf1 export out served --input image=staged/Identity:0 --output label=ArgMax:0

Tensors have the names of the training graph. An input stands where a batch comes in, or later: staged(name="train") of
a dict returns train/Identity:0, train/Identity_1:0 and so on, in the order of its sorted keys. Outputs may need nothing
else that is fed.
"""


def main(argv: list[str]) -> int:
    """Run the command. Return 1 if the model cannot be exported."""
    options = make_parser().parse_args(argv)
    import_quietly()
    from staging_tf1._tf import tf
    from staging_tf1.lifecycle.export import export_saved_model, last_checkpoint

    try:
        checkpoint = last_checkpoint(options.checkpoint)
        meta = options.meta_graph or f"{checkpoint}.meta"
        with tf.Graph().as_default() as graph:
            _import(meta)
            inputs = _tensors(graph, meta, "--input", options.inputs)
            outputs = _tensors(graph, meta, "--output", options.outputs)
            export_saved_model(
                options.folder, inputs, outputs, checkpoint=checkpoint, batch_size=options.batch_size, graph=graph
            )
    except (StagingError, OSError, ValueError, tf.errors.OpError) as error:
        complain(_PROG, str(error).removeprefix("export_saved_model(): "))
        return 1
    print(f"exported {checkpoint} to {options.folder}: {', '.join(inputs)} -> {', '.join(outputs)}")
    return 0


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of `export`."""
    parser = OneLineParser(
        prog=_PROG,
        usage=f"{_PROG} [options] CHECKPOINT FOLDER --input NAME=TENSOR --output NAME=TENSOR",
        description="Writes a SavedModel of what was trained, without the areas and queues that fed it.",
        epilog=_EPILOG,
    )
    add = parser.add_argument
    add("checkpoint", metavar="CHECKPOINT", help="a checkpoint, such as model.ckpt-100, or its folder for the last one")
    add("folder", metavar="FOLDER", help="where to write; may exist if it is empty")
    for kind, meaning in (("input", "a tensor to feed"), ("output", "a tensor to return")):
        add(
            f"--{kind}",
            dest=f"{kind}s",
            type=_named,
            action="append",
            required=True,
            metavar="NAME=TENSOR",
            help=f"{meaning}, and its name in the signature; may be given again",
        )
    add("--meta-graph", metavar="FILE", help="the saved graph (default: CHECKPOINT.meta)")
    add(
        "--batch-size",
        type=_size,
        metavar="N",
        help="the first dimension of the inputs, or 'any' (default: as in the graph)",
    )
    return parser


def _size(text: str) -> int | str:
    return text if text == "any" else whole_number(1, INT64_MAX)(text)


def _named(text: str) -> tuple[str, str]:
    name, equals, tensor = text.partition("=")
    if not (name and equals and tensor):
        raise argparse.ArgumentTypeError(f"got {text!r}, expected NAME=TENSOR, such as image=staged/Identity:0")
    return name, tensor


def _import(meta: str) -> None:
    from staging_tf1._tf import tf

    if not tf.gfile.Exists(meta):
        raise ValueError(f"{meta}, the saved graph, does not exist. Give its file with --meta-graph.")
    try:
        tf.train.import_meta_graph(meta, clear_devices=True)
    except Exception as error:  # of many types, if the file is damaged
        reason = str(error).strip().split("\n")[0]
        raise ValueError(f"{meta} is not a saved graph: {type(error).__name__}: {reason}") from error


def _tensors(graph: Any, meta: str, option: str, named: list[tuple[str, str]]) -> dict[str, Any]:
    tensors: dict[str, Any] = {}
    for name, tensor in named:
        if name in tensors:
            raise ValueError(f"{option} got {name!r} twice, expected another name for each tensor.")
        try:
            tensors[name] = graph.get_tensor_by_name(tensor if ":" in tensor else f"{tensor}:0")
        except (KeyError, ValueError):
            names = [output.name for op in graph.get_operations() for output in op.outputs]
            close = difflib.get_close_matches(tensor, names, 8)
            like = f" There are {', '.join(close)}." if close else ""
            raise ValueError(
                f"{meta} has no tensor {tensor!r}, expected a name such as staged/Identity:0.{like}"
            ) from None
    return tensors
