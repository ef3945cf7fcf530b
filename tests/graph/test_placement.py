"""An area on the CPU with consumers on other devices gets one warning, which names the device to use."""

from __future__ import annotations

import re
import warnings
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import staging_tf1 as staging
from staging_tf1.errors import PlacementWarning
from staging_tf1.graph.area_base import areas_of
from staging_tf1.graph.areas import StagingArea
from staging_tf1.graph.placement import warn_misplaced
from staging_tf1.sources import ArraySource

CPU, GPU = "/job:localhost/replica:0/task:0/device:CPU:0", "/job:localhost/replica:0/task:0/device:GPU:0"


pytestmark = pytest.mark.usefixtures("graph")


def warned(areas: Any, devices: list[str]) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_misplaced(areas, devices)
    assert all(w.category is PlacementWarning and w.filename == __file__ for w in caught)
    return [str(w.message) for w in caught]


def test_an_area_beside_its_consumers_is_warned_of_once(graph: Any) -> None:
    area = StagingArea([tf.float32, tf.float32], shared_name="train")
    x, y = area.get()
    with tf.device("/cpu:2"):
        loss = tf.add(tf.identity(x), y, name="loss")
    put = area.put([1.0, 2.0])
    with tf.Session(config=tf.ConfigProto(device_count={"CPU": 3})) as sess:
        devices = [device.name for device in sess.list_devices()]
        assert warned(areas_of(graph), devices) == [
            f"area 'train' (made at test_placement.py:{area.made_at.lineno}) is on CPU:0, but 'loss' "
            "(AddV2), which consumes it, is on CPU:2: every step waits for the copy. Build the area "
            "there: within `with tf.device('/device:CPU:2'):`, or staged(..., device='/device:CPU:2')."
        ]
        assert warned(areas_of(graph), devices) == []
        # Only a warning: the pipeline works.
        sess.run(put)
        assert sess.run(loss) == 3.0


@pytest.mark.usefixtures("kept_in")
def test_a_session_warns_of_what_stages_elsewhere_once(graph: Any) -> None:
    with tf.device("/device:CPU:0"):
        x = staging.staged(ArraySource(np.arange(8), batch_size=2, epochs=1), name="train")
    with tf.device("/device:CPU:1"):
        tf.square(x, name="model")
    config = tf.ConfigProto(device_count={"CPU": 2})
    with pytest.warns(PlacementWarning, match=r"is on CPU:0, but 'model' \(Square\), which consumes it, is on CPU:1"):
        open_session(config)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        open_session(config)


def test_the_advice_helps(graph: Any) -> None:
    with tf.device("/device:CPU:2"):
        area = StagingArea([tf.float32])
        tf.square(area.get()[0])
    assert warned([area], ["/device:CPU:0", "/device:CPU:1", "/device:CPU:2"]) == []


@pytest.mark.parametrize(
    ("area_device", "consumer_device", "devices", "says"),
    [
        (
            "/cpu:0",
            "/gpu:0",
            [CPU, GPU],
            "is on CPU:0, but 'op' (Square), which consumes it, is on GPU:0",
        ),
        ("", "/gpu:0", [CPU, GPU], None),  # placed on the GPU automatically
        ("", "/gpu:0", [CPU], None),  # soft placement: both on the CPU
        ("/gpu:0", "/gpu:0", [CPU, GPU], None),
        ("/gpu:0", "/cpu:0", [CPU, GPU], None),  # labels used on the host on purpose
        ("/job:ps/task:1/cpu:1", "/job:ps/task:1/gpu:3", [CPU, GPU], "is on CPU:1, but 'op' (Square)"),
        ("/cpu:0", "", [CPU, GPU], None),  # no device is requested for the consumer
        ("/job:worker/task:0", "/job:worker/task:0", [CPU, GPU], None),
    ],
)
def test_when_it_warns(area_device: str, consumer_device: str, devices: list[str], says: str | None) -> None:
    with tf.device(area_device):
        area = StagingArea([tf.float32])
        batch = area.get()[0]
    with tf.device(consumer_device):
        tf.square(tf.identity(batch), name="op")
    messages = warned([area], devices)
    assert messages == [] if says is None else says in messages[0]


def test_several_consumers_are_counted() -> None:
    with tf.device("/cpu:0"):
        area = StagingArea([tf.float32])
        batch = area.get()[0]
    with tf.device("/gpu:0"):
        for _ in range(3):
            tf.square(batch, name="op")
    assert "'op' (Square) and 2 more, which consume it, are on GPU:0" in warned([area], [CPU, GPU])[0]


def start_by_hand(config: Any) -> None:
    with tf.Session(config=config) as sess:
        staging.start(sess, tf.train.Coordinator())


def open_session(config: Any) -> None:
    with staging.StagingSession(config=config):
        pass


@pytest.mark.parametrize("begin", [start_by_hand, open_session])
@pytest.mark.parametrize("device", ["/gpu:7", "/job:worker/task:1", "/job:worker/task:1/cpu:0"])
def test_a_device_that_is_not_there_is_named_with_the_users_line(begin: Any, device: str) -> None:
    with tf.Graph().as_default():
        staging.staged(ArraySource(np.arange(8), batch_size=2, epochs=1), device=device, name="train")
        with pytest.raises(tf.errors.InvalidArgumentError) as raised:
            begin(None)
    assert re.match(
        r"'train/\S+' \(made at test_placement\.py:\d+\) is on \S+, and this process has CPU:0\S*\. Use device=None or "
        r"a device that is there, or let TensorFlow choose: config=tf\.ConfigProto\(allow_soft_placement=True\)\.",
        raised.value.message,
    )
    assert raised.value.__suppress_context__


def towers(devices: list[str]) -> Any:
    return staging.staged(ArraySource(np.arange(8), batch_size=2, epochs=1), devices=devices)


@pytest.mark.parametrize("begin", [start_by_hand, open_session])
@pytest.mark.parametrize(
    ("devices", "count"), [(["/cpu:1"], 2), (["/cpu:0", "/cpu:1"], 2), (["/cpu:1", "/device:CPU:3"], 4)], ids=str
)
def test_more_cpu_devices_are_asked_for(begin: Any, devices: list[str], count: int) -> None:
    with tf.Graph().as_default():
        towers(devices)
        with pytest.raises(tf.errors.InvalidArgumentError) as raised:
            begin(None)
    cure = f"config=tf.ConfigProto(device_count={{'CPU': {count}}})."
    assert re.match(r"'staged/\S+' \(made at test_placement\.py:\d+\) is on \S+CPU:\d, and", raised.value.message)
    assert raised.value.message.endswith(f"A process has one CPU device unless it asks for more: {cure}")


def test_soft_placement_is_the_cure_that_it_says() -> None:
    with tf.Graph().as_default():
        x = staging.staged(ArraySource(np.arange(8), batch_size=2, epochs=1), device="/gpu:7")
        with staging.StagingSession(config=tf.ConfigProto(allow_soft_placement=True)) as sess:
            assert sess.run(x).tolist() == [0, 1]
