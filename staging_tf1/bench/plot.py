"""Draws a bar chart of each table, with the bound as a line."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Sequence

from staging_tf1.arguments import output_file
from staging_tf1.bench.errors import BenchError
from staging_tf1.bench.systems import SYSTEMS
from staging_tf1.bench.tables import Table

__all__ = ["check_plot", "draw"]


def check_plot(path: str) -> None:
    """Check that the charts can be drawn, before anything is measured.

    Raises:
      BenchError: matplotlib is not installed, or `path` cannot be written.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise BenchError("--plot needs matplotlib: pip install 'staging-tf1[bench]'.")
    try:
        output_file("--plot", "path", path)
    except OSError as error:
        raise BenchError(f"--plot {path!r} cannot be written: {error.strerror}.") from error
    except ValueError as error:
        raise BenchError(str(error)) from error


def draw(tables: Sequence[Table], path: str) -> None:
    """Write the charts to `path`: a bar for each median, ours in orange, and a thin line from minimum to maximum."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    drawn = [table for table in tables if table.rows]
    figure, axes = pyplot.subplots(max(1, len(drawn)), 1, figsize=(8, 4 * max(1, len(drawn))), squeeze=False)
    for axis, table in zip(axes[:, 0], drawn):
        rows = [row for row in table.rows if row.name not in ("const", "source")]
        median = [row.median_ms for row in rows]
        spread = [[row.median_ms - row.least_ms for row in rows], [row.most_ms - row.median_ms for row in rows]]
        names = [row.name for row in rows]
        colours = ["tab:orange" if _is_ours(name) else "tab:blue" for name in names]
        axis.barh(names, median, xerr=spread, color=colours, error_kw={"linewidth": 1})
        if table.bound is not None:
            middle = sorted(table.bound.ms)[len(table.bound.ms) // 2]
            axis.axvline(middle, color="tab:red", label=f"bound, {middle:.2f} ms")
            axis.legend()
        axis.invert_yaxis()
        axis.set(title=table.title, xlabel="ms per step")
    figure.tight_layout()
    figure.savefig(path, dpi=100)
    pyplot.close(figure)


def _is_ours(name: str) -> bool:
    listed = SYSTEMS.get(re.split("[:,@]", name)[0])
    return listed is not None and listed.ours
