"""`staging-tf1 train`: parses the flags, trains and prints the results."""

from __future__ import annotations

import argparse
import importlib.util
import logging
import os
import sys
from typing import TYPE_CHECKING

from tqdm import tqdm

from staging_tf1.arguments import scheme_of
from staging_tf1.cli.arguments import OneLineParser, complain, local_path, problem_of_output, whole_number
from staging_tf1.cluster.layout import Layout
from staging_tf1.data import DataFileError, LabelledImages, load_images
from staging_tf1.errors import ClusterError, StagingError
from staging_tf1.progress import is_terminal
from staging_tf1.quiet import import_quietly
from staging_tf1.recipes.settings import LogdirError, Settings, WorkflowError
from staging_tf1.recipes.workflows import WORKFLOWS, check_workflow, examples_of

if TYPE_CHECKING:
    from staging_tf1 import Cluster
    from staging_tf1.recipes.training import Result

_PROG = "staging-tf1 train"
_DEFAULTS = Settings()
# The flag, its type and its help. The upper bounds only protect the memory from typing errors.
_NUMBERS = (
    ("--batch-size", whole_number(1, 10**6), "examples per batch"),
    ("--epochs", whole_number(1, 10**6), "passes over the training data"),
    ("--threads", whole_number(1, 256), "feed threads"),
    ("--processes", whole_number(0, 256), "worker processes, in place of feed threads; 0 uses threads"),
    ("--capacity", whole_number(1, 10_000), "capacity of the staging area, in batches"),
    ("--seed", whole_number(0, 2**31 - 1), "random seed; with one thread, the same seed gives the same losses"),
)
# Seconds between updates of the progress bar where each one remains: in a file, and under `staging-tf1 launch`.
_SECS_PER_LINE = 2.0
# What matplotlib writes without further libraries.
_PICTURES = (".png", ".svg", ".pdf")
_EPILOG = """
On a cluster that TF_CONFIG describes, each worker trains on its share of the examples. The chief tests and reports.

examples:
  staging-tf1 train
  staging-tf1 train --workflow classic --threads 2
  staging-tf1 train --epochs 2 --trace trace.json --plot curve.png
  staging-tf1 train --data mnist.npz --epochs 2 --batch-size 128 --logdir /tmp/mnist
  staging-tf1 launch --workers 2 --ps 1 -- staging-tf1 train --trace {task}.json
"""


def parser() -> argparse.ArgumentParser:
    """Return the parser of `train`."""
    parser = OneLineParser(
        prog=_PROG,
        description="Trains a small model in graph mode on images of handwritten digits, and reports how well "
        "the input pipeline kept up with it.",
        epilog=_EPILOG,
    )
    add = parser.add_argument
    add(
        "--workflow",
        choices=list(WORKFLOWS),
        default=_DEFAULTS.workflow,
        help="how batches get into the graph. classic: feed threads, a shuffle queue and a staging area with a "
        "hand-written put; staged: staged(); lockstep: staged(lockstep=True), without threads (default: %(default)s)",
    )
    add(
        "--data",
        type=local_path,
        metavar="FILE.npz",
        help="an .npz file with x_train, y_train, x_test and y_test (default: the 1,797 UCI digits)",
    )
    for flag, kind, help_text in _NUMBERS:
        default = getattr(_DEFAULTS, flag.strip("-").replace("-", "_"))
        add(flag, type=kind, default=default, metavar="N", help=f"{help_text} (default: {default})")
    add("--logdir", metavar="FOLDER", help="write checkpoints and TensorBoard summaries to FOLDER")
    add("--trace", metavar="FILE.json", help="write a timeline for chrome://tracing or ui.perfetto.dev")
    add("--plot", metavar="FILE.png", help="draw loss, accuracy, examples/s and waiting (needs the extra 'bench')")
    return parser


def main(argv: list[str]) -> int:
    """Train and print the results. Return 1 if a file or folder cannot be used, 130 if interrupted."""
    words = parser()
    flags = vars(words.parse_args(argv))
    path = flags.pop("data")
    settings = Settings(**flags)
    try:
        settings.check()
    except ValueError as error:
        words.error(str(error))
    try:
        # Before TensorFlow is imported, which takes seconds.
        layout = Layout.from_tf_config(os.environ.get("TF_CONFIG"))
        job = None if layout.task is None else layout.task.job
        if job == "evaluator":
            raise ClusterError(
                f"TF_CONFIG makes this process {layout.task}, but the chief tests the model. Leave it out."
            )
        if job == "ps":
            _cluster(settings).serves()
            return 0
        data = load_images(path)
        if layout.is_chief:
            _make_folder(settings.logdir)
        _check_output("--trace", settings.trace)
        if layout.is_chief:
            _check_plot(settings.plot)
        _train(data, settings)
    except (ClusterError, DataFileError, LogdirError, WorkflowError, _OutputError) as error:
        complain(_PROG, error)
        return 1
    except KeyboardInterrupt:
        complain(_PROG, "interrupted")
        return 130
    return 0


def _make_folder(path: str | None) -> None:
    if path is None or scheme_of(path):  # TensorFlow makes the folder of another file system
        return
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise LogdirError(f"--logdir {path!r} cannot be created: {error.strerror}. Choose another folder.") from error
    if not os.access(path, os.W_OK | os.X_OK):
        raise LogdirError(f"--logdir {path!r} is not writable. Choose another folder.")


class _OutputError(StagingError):
    """A file of the run cannot be written; the message names its flag."""


def _check_output(flag: str, path: str | None) -> None:
    if path is not None and (problem := problem_of_output(flag, path)) is not None:
        raise _OutputError(problem)


def _check_plot(path: str | None) -> None:
    if path is None:
        return
    if importlib.util.find_spec("matplotlib") is None:
        raise _OutputError("--plot needs matplotlib: pip install 'staging-tf1[bench]'.")
    _check_output("--plot", path)
    if not path.lower().endswith(_PICTURES):
        raise _OutputError(f"--plot got {path!r}, expected a name that ends with {', '.join(_PICTURES)}.")


def _train(data: LabelledImages, settings: Settings) -> None:
    cluster = _cluster(settings)
    from staging_tf1.recipes.training import train

    total = examples_of(data, settings, cluster)
    every = _SECS_PER_LINE if cluster.is_distributed or not is_terminal() else 0.1
    quiet = not cluster.is_chief
    with tqdm(
        total=total, desc=settings.workflow, unit=" examples", unit_scale=True, mininterval=every, disable=quiet
    ) as bar:

        def on_step(count: int, loss: float) -> None:
            bar.set_postfix(loss=f"{loss:.4f}", refresh=False)
            bar.update(count)

        result = train(data, settings, on_step, cluster)
    if settings.plot is not None and cluster.is_chief:
        from staging_tf1.recipes.curve import draw

        draw(result.points, f"{settings.workflow}, batches of {settings.batch_size}", settings.plot)
    report(result, cluster, len(data.x_train) * settings.epochs)


def _cluster(settings: Settings) -> Cluster:
    """Import TensorFlow, keep it quiet, and return this process's cluster."""
    # Importing TensorFlow takes seconds, which --help should not.
    import_quietly()
    import staging_tf1
    from staging_tf1._tf import tf

    # In graph mode TensorFlow warns at length that its queue runners are deprecated, which does not help here.
    tf.logging.set_verbosity(tf.logging.ERROR)
    cluster = staging_tf1.Cluster.from_environment()
    check_workflow(settings, cluster)
    if cluster.is_distributed:
        _log_waiting()
    return cluster


def _log_waiting() -> None:
    """Print which task this one waits for, and other information, which Python drops by default."""
    logger = logging.getLogger("absl")
    logger.addHandler(_AboveTheBar())
    logger.setLevel(logging.INFO)
    logger.propagate = False


class _AboveTheBar(logging.Handler):
    """Prints on stderr, and the progress bar again below."""

    def emit(self, record: logging.LogRecord) -> None:
        tqdm.write(f"{_PROG}: {self.format(record)}", file=sys.stderr)


def report(result: Result, cluster: Cluster, total: int) -> None:
    """Print the results of a training run: the pipelines first, the accuracy last. A worker prints one line.

    `total` is the number of examples of all workers.
    """
    trained = f"trained on {result.examples:,}{f' of {total:,}' if cluster.is_distributed else ''} examples"
    if not cluster.is_chief:
        print(f"{cluster.job} {cluster.index} {trained} in {result.secs:.1f} s")
        return
    for pipeline in result.pipelines:
        print(pipeline)
    rate = result.examples / result.secs
    print(f"{trained} in {result.secs:.1f} s ({rate:,.0f} examples/s)")
    print(f"test accuracy {result.accuracy:.3f} ({result.correct} of {result.tested})")
