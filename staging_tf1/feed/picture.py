"""The pipelines of a graph as a picture, for notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from staging_tf1 import display
from staging_tf1._tf import tf
from staging_tf1.feed.pipeline import Pipeline, Producer, pipelines_of
from staging_tf1.graph.sink import Sink

__all__ = ["GraphView", "draw", "html_of"]

_ROW = 84
# Characters that fit into a box.
_WIDEST = 25


class GraphView:
    """The pipelines that the default graph has now. A notebook shows it as a picture."""

    def __init__(self) -> None:
        self._pipelines = pipelines_of(tf.get_default_graph())

    def __repr__(self) -> str:
        return "\n".join(map(str, self._pipelines)) or "The default graph has no pipeline."

    def _repr_html_(self) -> str:
        return html_of(self._pipelines) or f"<p>{self!r}</p>"


def html_of(pipelines: Sequence[Pipeline]) -> str:
    """Return the picture of the pipelines as HTML; "" if there are none."""
    title = f"The pipelines {', '.join(pipeline.name for pipeline in pipelines)}"
    return display.picture(draw(pipelines, title), title) if pipelines else ""


def draw(pipelines: Sequence[Pipeline], title: str) -> str:
    """Return an SVG picture: for each area or queue what fills it, how much it holds, and what takes from it."""
    rows = [(pipeline, tower, sink) for pipeline in pipelines for tower, sink in enumerate(pipeline.sinks)]
    picture = display.Picture(860, 20 + _ROW * len(rows), title)
    for number, (pipeline, tower, sink) in enumerate(rows):
        _draw_sink(picture, 16 + _ROW * number, pipeline, _feeding(pipeline, tower), sink)
    return picture.svg()


def _draw_sink(picture: display.Picture, top: int, pipeline: Pipeline, feeding: Sequence[Producer], sink: Sink) -> None:
    boxes = (
        (20, _source(feeding), ""),
        (240, _threads(pipeline, feeding), ""),
        (
            460,
            f"{_short(sink.name)}\n{'area' if pipeline.stages else 'queue'} of {sink.capacity}, {_device(sink)}",
            "good",
        ),
        (680, f"your step\n{_values(sink)}", "ours"),
    )
    for left, words, style in boxes:
        picture.box(left, top, 160 if left == 680 else 190, 64, words, style)
    for start, end in ((210, 240), (430, 460), (650, 680)):
        picture.arrow(f"M{start} {top + 32} H{end - 2}")


def _feeding(pipeline: Pipeline, tower: int) -> list[Producer]:
    own = [producer for producer in pipeline.producers if producer.tower == tower]
    return own or list(pipeline.producers)  # towers that share an input


def _source(feeding: Iterable[Producer]) -> str:
    source = next((producer.source for producer in feeding if producer.source is not None), None)
    if source is None:
        return "the graph\ncomputes the batches"
    size = getattr(source, "batch_size", None)
    return f"{_short(type(source).__name__)}\n{f'batches of {size}' if size else 'batches in order'}"


def _threads(pipeline: Pipeline, feeding: Iterable[Producer]) -> str:
    if pipeline.lockstep:
        return "lockstep\nthe step itself reads"
    threads = sum(producer.num_threads for producer in feeding)
    processes = sum(producer.plan.num_processes for producer in feeding)
    words = f"{threads} feed thread{'' if threads == 1 else 's'}"
    if processes:
        return f"{words}\n{processes} worker process{'' if processes == 1 else 'es'}"
    return words if pipeline.plan.one_by_one else f"{words}\nseveral batches a run"


def _device(sink: Sink) -> str:
    if sink.get is None:
        return "CPU"
    device = sink.get.outputs[0].device if sink.get.outputs else ""
    return device.rpartition("device:")[2] or "default device"


def _values(sink: Sink) -> str:
    values = sink.put.placeholders if sink.get is None else sink.get.outputs
    if not values:
        return ""
    dims = values[0].shape.as_list() if values[0].shape.rank is not None else [None]
    shown = f"{values[0].dtype.base_dtype.name} [{', '.join('?' if dim is None else str(dim) for dim in dims)}]"
    return _short(f"{shown} + {len(values) - 1} more" if len(values) > 1 else shown)


def _short(words: str) -> str:
    return words if len(words) <= _WIDEST else f"{words[: _WIDEST - 3]}..."
