"""`staging-tf1 bench`: parses the flags, runs the measurements and prints the tables."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any

from tqdm import tqdm

from staging_tf1.bench import BenchError
from staging_tf1.bench.suites import (
    TablePlan,
    classic_plans,
    own_plan,
    run_plan,
    run_quickly,
    with_pools,
    workload_plans,
)
from staging_tf1.bench.systems import POOLS, SYSTEMS, SystemName, default_systems, parse_system
from staging_tf1.bench.tables import Table, as_json, as_markdown, as_text, check_plot, describe_machine, draw
from staging_tf1.bench.workloads import FACTS, check_own, check_workload
from staging_tf1.cli.arguments import OneLineParser, complain, problem_of_output, whole_number
from staging_tf1.sources.files.tfrecord_index import cache_dir

_PROG = "staging-tf1 bench"


def _listed(names: dict[str, str]) -> str:
    return "".join(f"  {name:{max(map(len, names))}}  {text}\n" for name, text in names.items())


_EPILOG = f"""
workloads:
{_listed({name: facts.help_text for name, facts in FACTS.items()})}
systems (append ':4' to a name marked * to set the number of feed threads or processes; append '@inter_op=1',
'@intra_op=1' or '@no_spinning' to any name to set TensorFlow's thread pools for that system only):
{_listed({name + ("*" if listed.threaded else ""): listed.help_text for name, listed in SYSTEMS.items()})}
examples:
  staging-tf1 bench W1 W2 --rounds 5 --json out.json --plot out.png
  staging-tf1 bench W3 --systems hand_area:4,staged:1,staged:4
  staging-tf1 bench W1 --systems hand_classic:1,staged:1,staged:1@inter_op=1
  staging-tf1 bench --train my_module:build
  staging-tf1 bench --suite classic W2
"""


def parser() -> argparse.ArgumentParser:
    """Return the parser of `bench`."""
    parser = OneLineParser(
        prog=_PROG,
        description="Compares ways to feed a graph-mode training loop. Each runs in its own process, they take turns, "
        "and the tables show medians. docs/performance.md explains how to read the tables.",
        epilog=_EPILOG,
    )
    add = parser.add_argument
    add("workloads", metavar="WORKLOAD", nargs="*", help="the workloads to run (default: all of those below)")
    add(
        "--systems",
        metavar="A,B",
        help="the systems to measure (default: all; those marked * once for each number in --threads)",
    )
    add("--threads", metavar="N,N", default="1,4", help="numbers of feed threads or processes (default: %(default)s)")
    add(
        "--rounds",
        type=whole_number(1, 1000),
        default=5,
        metavar="N",
        help="measurements per system (default: %(default)s)",
    )
    add("--secs", type=float, default=1.5, metavar="S", help="seconds per measurement (default: %(default)s)")
    for pool, what in (("inter", "ops that run at once"), ("intra", "cores per op")):
        add(
            f"--{pool}-op",
            type=whole_number(0, 1000),
            default=0,
            metavar="N",
            help=f"{pool}_op_parallelism_threads of every session: {what} (default: chosen by TensorFlow)",
        )
    add(
        "--no-spinning",
        action="store_true",
        help="disable_thread_spinning of every session: idle threads of TensorFlow's pools sleep at once",
    )
    add("--suite", choices=["classic"], help="test the advice of TensorFlow 1's time (default workload: W2)")
    add(
        "--train",
        metavar="MODULE:BUILD",
        help="find the best number of threads or processes for your own step: build() returns (source, train), and "
        "train(batch) returns an op; or build(**feeding) calls staged(source, **feeding) and returns the op",
    )
    add("--quick", action="store_true", help="few records and five steps: checks that everything runs")
    add("--json", metavar="FILE", help="write all measurements to FILE")
    add("--plot", metavar="FILE.png", help="draw bar charts to FILE.png (needs the extra 'bench')")
    add("--markdown", action="store_true", help="print the tables as Markdown")
    add(
        "--cache",
        metavar="FOLDER",
        default=os.path.join(cache_dir(), "bench"),
        help="the folder for W5's file (default: %(default)s)",
    )
    return parser


def main(argv: list[str]) -> int:
    """Run the measurements and print the tables. Return 1 if a system failed, 130 if interrupted."""
    words = parser()
    options = words.parse_args(argv)
    try:
        plans = _plans(options)
        if options.train:
            # Otherwise each of the systems would start a process to find out.
            check_own(options.train)
        if options.plot:
            check_plot(options.plot)
        if options.json and (problem := problem_of_output("--json", options.json)) is not None:
            raise BenchError(problem)
    except BenchError as error:
        words.error(str(error))
    try:
        tables = run_quickly(plans) if options.quick else _measure(plans, options.rounds)
    except KeyboardInterrupt:
        complain(_PROG, "interrupted")
        return 130
    _show(options, tables)
    return 1 if any(outcome.failed for table in tables for outcome in table.outcomes.values()) else 0


def _plans(options: argparse.Namespace) -> list[TablePlan]:
    _check_combination(options)
    names = [check_workload(name) for name in options.workloads]
    settings = {"secs": options.secs, "folder": options.cache, "quick": options.quick}
    if options.suite:
        return classic_plans(names or ["W2"], **settings)
    if options.train:
        plans = [own_plan(options.train, secs=options.secs, folder=options.cache)]
    else:
        plans = workload_plans(names or list(FACTS), _systems(options), **settings)
    return [with_pools(plan, _pools(options)) for plan in plans]


def _pools(options: argparse.Namespace) -> dict[str, Any]:
    return {name: getattr(options, name) for name in POOLS}


def _check_combination(options: argparse.Namespace) -> None:
    if options.train and (options.workloads or options.suite or options.systems or options.quick):
        raise BenchError("--train measures your own step: remove workloads, --systems, --suite and --quick.")
    if options.suite and (options.systems or any(_pools(options).values())):
        raise BenchError(
            "--suite sets its own systems and pools: remove --systems, --inter-op, --intra-op and --no-spinning."
        )
    if not 0.01 <= options.secs <= 600:
        raise BenchError(f"--secs got {options.secs:g}, expected 0.01 to 600.")


def _systems(options: argparse.Namespace) -> list[SystemName]:
    if options.systems:
        return [parse_system(text) for text in options.systems.split(",")]
    return default_systems(_threads(options.threads))


def _threads(text: str) -> list[int]:
    count = whole_number(1, 256)
    try:
        return [count(word) for word in text.split(",")]
    except argparse.ArgumentTypeError as error:
        raise BenchError(f"--threads {error}") from None


def _measure(plans: list[TablePlan], rounds: int) -> list[Table]:
    tables = []
    with tqdm(total=rounds * sum(len(plan.requests) for plan in plans), unit=" turns", disable=None) as bar:

        def on_done(name: str) -> None:
            bar.set_postfix_str(name, refresh=False)
            bar.update()

        for plan in plans:
            bar.set_description(plan.title.split(":")[0])
            tables.append(run_plan(plan, rounds, on_done))
    return tables


def _show(options: argparse.Namespace, tables: list[Table]) -> None:
    machine = describe_machine()
    print((as_markdown if options.markdown else as_text)(machine, tables))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(as_json(machine, tables), file, indent=1)
    if options.plot:
        draw(tables, options.plot)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
