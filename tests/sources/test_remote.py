"""Record files with a URL, from a web server on loopback that counts requests and fails where a test says so."""

from __future__ import annotations

import gzip
import re
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from object_server import Handler, ObjectServer, serving
from resuming import resumed_steps
from stalls import SECS, Reports

import staging_tf1 as staging
from staging_tf1 import sources
from staging_tf1.cli.main import main
from staging_tf1.errors import CorruptRecordError, RecordFileError, ResumeError, StagingWarning
from staging_tf1.sources import ArrayRecordSource, TFRecordSource
from staging_tf1.sources.files import store
from staging_tf1.testing import assert_deterministic, assert_resumes_everywhere, assert_works_in_processes

pytest.importorskip("aiohttp")

WRITERS = {TFRecordSource: sources.write_tfrecords, ArrayRecordSource: sources.write_array_records}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAGING_TF1_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try again at once."""
    monkeypatch.setattr(store, "_WAITS", (0.0,) * 4)


@pytest.fixture
def server() -> Iterator[ObjectServer]:
    with serving() as running:
        yield running


def records(count: int = 20, first: int = 0, nbytes: int = 20_000) -> list[bytes]:
    """Records of one size, which are farther from each other than one request reads."""
    return [b"%06d" % number + bytes([number % 251]) * (nbytes - 6) for number in range(first, first + count)]


@pytest.fixture
def put(server: ObjectServer, tmp_path: Path) -> Callable[..., str]:
    """Write a record file, store it, and return its local path."""

    def store(name: str, content: list[bytes], kind: Any = TFRecordSource) -> str:
        path = str(tmp_path / name)
        WRITERS[kind](content, path)
        server.put(f"/train/{name}", Path(path).read_bytes())
        return path

    return store


def everything(source: Any) -> list[bytes]:
    return [record for k in range(source.num_batches) for record in source.batch(k).tolist()]


# What is read.


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("shuffle", [False, True])
def test_records_are_those_of_local_files(kind: Any, shuffle: bool, server: ObjectServer, put: Any) -> None:
    local = [put(f"{name}.rec", records(7, 7 * place), kind) for place, name in enumerate("abc")]
    options = dict(batch_size=4, epochs=2, shuffle=shuffle, seed=5)
    source = kind(f"{server.url}/train/*.rec", **options)
    assert source.files == [f"{server.url}/train/{name}.rec" for name in "abc"]
    expected = kind(local, **options)
    assert everything(source) == everything(expected)
    fingerprint = source.fingerprint()
    assert fingerprint.pop("file_versions") and fingerprint == expected.fingerprint()
    assert everything(kind([f"{server.url}/train/c.rec", local[0]], batch_size=14, epochs=1)) == [
        *records(7, 14),
        *records(7),
    ]


def test_every_promise_of_a_source_is_kept(server: ObjectServer, put: Any) -> None:
    made = []
    for kind in WRITERS:
        put(f"{kind.__name__}.rec", records(), kind)
        url = f"{server.url}/train/{kind.__name__}.rec"
        made.append(kind(url, batch_size=3, epochs=2, shuffle=True, seed=1))
        assert_resumes_everywhere(made[-1])
        assert_deterministic(made[-1], threads=4)
    assert_works_in_processes(sources.zip_records(made), processes=1)


def test_a_compressed_file_is_unpacked_once(server: ObjectServer, put: Any, tmp_path: Path) -> None:
    server.put("/z", gzip.compress(Path(put("a.rec", records())).read_bytes()))
    assert everything(TFRecordSource(f"{server.url}/z", batch_size=7, epochs=1)) == records()
    server.reset()
    assert everything(TFRecordSource(f"{server.url}/z", batch_size=7, epochs=1)) == records()
    assert server.count("GET") == 0
    folder = tmp_path / "copies"
    server.put("/y", server.objects["/z"])
    source = TFRecordSource(f"{server.url}/y", batch_size=7, epochs=1, local_cache=folder)
    assert everything(source) == records() and copies(folder) == []
    # A plain file takes its place.
    server.put("/z", Path(put("a.rec", records(5))).read_bytes())
    assert everything(TFRecordSource(f"{server.url}/z", batch_size=7, epochs=1)) == records(5)
    server.reset()
    TFRecordSource(f"{server.url}/z", batch_size=7)
    assert server.count("GET") == 0


def test_a_corrupt_record_is_named_and_skipped(server: ObjectServer, put: Any) -> None:
    content = bytearray(Path(put("a.rec", records(4))).read_bytes())
    content[20_016 + 50] ^= 1
    server.put("/a", bytes(content))
    with pytest.raises(
        CorruptRecordError, match=rf"^{server.url}/a: record 1, at byte 20016, is corrupt: its checksum"
    ):
        TFRecordSource(f"{server.url}/a", batch_size=4, epochs=1).batch(0)
    source = TFRecordSource(f"{server.url}/a", batch_size=4, epochs=1, skip_corrupt=True)
    assert len(source.batch(0)) == 3 and source.num_skipped == 1
    server.put("/cut", bytes(content[:30_000]))
    with pytest.raises(
        CorruptRecordError, match=rf"^{server.url}/cut: record 1, at byte 20016, is corrupt: the file ends"
    ):
        TFRecordSource(f"{server.url}/cut", batch_size=4)


@pytest.mark.parametrize("url", ["memory://folder/a.rec", "file://{folder}/a.rec", "simplecache::{server}/train/a.rec"])
def test_other_stores_and_chains_of_fsspec(url: str, server: ObjectServer, put: Any, tmp_path: Path) -> None:
    url = url.format(folder=tmp_path, server=server.url)
    if url.startswith("memory"):
        sources.write_tfrecords(records(), url)
    else:
        put("a.rec", records())
    for files in (url, url.replace("a.rec", "*.rec")):
        source = TFRecordSource(files, batch_size=6, epochs=1)
        assert source.files == [url] and everything(source) == records()


# Requests.


def test_an_index_is_built_once(server: ObjectServer, put: Any) -> None:
    for name in "abc":
        put(f"{name}.rec", records(2))
    TFRecordSource(f"{server.url}/train/*.rec", batch_size=1)
    files = [f"/train/{name}.rec" for name in "abc"]
    assert sorted(path for method, path in server.requests if method == "GET" and path != "/train/") == files
    server.reset()
    TFRecordSource(f"{server.url}/train/*.rec", batch_size=1)
    # This server lists names without sizes.
    assert {path for method, path in server.requests if method == "GET"} == {"/train/"}
    assert sorted(path for method, path in server.requests if method == "HEAD" and path != "/train/") == files


def test_an_epoch_reads_each_byte_once(server: ObjectServer, put: Any) -> None:
    put("a.rec", records(40))
    source = TFRecordSource(f"{server.url}/train/a.rec", batch_size=8, epochs=1, shuffle=True, seed=1)
    server.reset()
    assert sorted(everything(source)) == records(40)
    assert server.sent <= 1.05 * len(server.objects["/train/a.rec"])


@pytest.mark.parametrize(
    ("nbytes", "numbers", "requests"),
    [(100, [18, 3, 11, 3, 7], 1), (20_000, [18, 3, 11, 3, 7], 4), (20_000, list(range(10, 20)), 1)],
)
def test_records_close_to_each_other_take_one_request(
    nbytes: int, numbers: list[int], requests: int, server: ObjectServer, put: Any
) -> None:
    wanted = records(20, nbytes=nbytes)
    put("a.rec", wanted)
    source = TFRecordSource(f"{server.url}/train/a.rec", batch_size=len(numbers), epochs=1).select(numbers)
    server.reset()
    assert source.batch(0).tolist() == [wanted[number] for number in numbers]
    assert server.count("GET") == requests


def test_requests_of_a_batch_are_under_way_at_the_same_time(server: ObjectServer, put: Any) -> None:
    for place, name in enumerate("ab"):
        put(f"{name}.rec", records(8, 8 * place))
    source = TFRecordSource(f"{server.url}/train/*", batch_size=4, epochs=1).select([0, 4, 9, 13])
    together = threading.Barrier(4)

    def wait_for_the_others(request: Handler) -> bool:
        if request.command == "GET":
            together.wait(60)
        return False

    server.fault = wait_for_the_others
    assert source.batch(0).tolist() == [records(16)[number] for number in (0, 4, 9, 13)]


# Answers that fail, or are wrong.


def status(code: int) -> Callable[[Handler], bool]:
    return lambda request: bool(request.answer(code)) or True


unavailable, too_many, forbidden = map(status, (503, 429, 403))


def cut(request: Handler) -> bool:
    request.answer(206, bytes(5000), cut=1000)
    return True


def short(request: Handler) -> bool:
    request.answer(206, bytes(5000))
    return True


def hung_up(request: Handler) -> bool:
    request.close_connection = True
    return True


def wrong(request: Handler) -> bool:
    """Answer with as many bytes as are wanted, of another file."""
    first, last = re.findall(r"\d+", request.headers["Range"])
    request.answer(206, bytes(int(last) + 1 - int(first)), etag=request.store.etags[request.path])
    return True


def flipped(request: Handler) -> bool:
    """Answer with one wrong byte in the first record."""
    first, last = map(int, re.findall(r"\d+", request.headers["Range"]))
    content = bytearray(request.store.objects[request.path])
    content[first + 30] ^= 1
    request.answer(206, bytes(content[first : last + 1]), etag=request.store.etags[request.path])
    return True


def another_size(request: Handler) -> bool:
    request.answer(200, bytes(7), etag="another")
    return True


def whole(request: Handler) -> bool:
    content = request.store.objects[request.path]
    request.answer(200, content, etag=request.store.etags[request.path])
    return True


# What a server does for some time, and how often.
PASSING: list[tuple[str, Callable[[Handler], bool], int]] = [
    *(("GET", fault, 2) for fault in (unavailable, too_many, cut, short, hung_up)),
    *(("HEAD", fault, 2) for fault in (unavailable, hung_up)),
    *(("GET", fault, 1) for fault in (wrong, flipped, whole)),
    ("HEAD", another_size, 1),
]


@pytest.mark.thinned
@pytest.mark.parametrize("as_uint8", [False, True])
@pytest.mark.parametrize(("command", "fault", "times"), PASSING)
def test_what_passes_is_tried_again(
    command: str, fault: Any, times: int, as_uint8: bool, server: ObjectServer, put: Any, quick: None
) -> None:
    options: dict[str, Any] = dict(batch_size=4, epochs=1, as_uint8=as_uint8, shuffle=True, seed=1)
    expected = TFRecordSource([put("a.rec", records(8)), put("b.rec", records(8, 8))], **options)
    # A look at a new file cannot tell that it is wrong.
    left = dict.fromkeys(["/train/a.rec", "/train/b.rec", "/train/"], 0 if fault is another_size else times)

    def some(request: Handler) -> bool:
        with server.lock:
            fails = request.command == command and left[request.path] > 0
            left[request.path] -= fails
        return fails and bool((fault if request.path != "/train/" else unavailable)(request))

    server.fault = some
    source = TFRecordSource(f"{server.url}/train/*", **options)
    for k in range(source.num_batches):
        left.update(dict.fromkeys(left, times))
        assert source.batch(k).tolist() == expected.batch(k).tolist()


FAILURES = {
    "missing": (status(404), r"record file {url} does not exist\. Check the URL\."),
    "forbidden": (
        forbidden,
        r"no permission to read {url} \(ClientResponseError: 403, .*\)\. Check the URL, and the credentials that its "
        r"driver finds\.",
    ),
    "unavailable": (unavailable, r"cannot read {url}, tried 5 times: ClientResponseError: 503, .*\."),
    "cut": (cut, r"cannot read {url}, tried 5 times: ClientPayloadError: .*\."),
    "short": (short, r"cannot read {url}, tried 5 times: OSError: got 5000 bytes, expected 20016\."),
    "no ranges": (
        whole,
        r"cannot read {url}, tried 2 times: the server sent the whole file in place of bytes 20016 to 40032\. Records "
        r"are read by ranges: use a server that supports them, or copy the file to this machine\.",
    ),
}


@pytest.mark.parametrize(("fault", "message"), FAILURES.values(), ids=FAILURES)
def test_a_failed_read_names_the_url(fault: Any, message: str, server: ObjectServer, put: Any, quick: None) -> None:
    put("a.rec", records(8))
    source = TFRecordSource(url := f"{server.url}/train/a.rec", batch_size=1, epochs=1)
    server.fault = lambda request: request.command == "GET" and fault(request)
    with pytest.raises(RecordFileError, match=rf"^{message.format(url=re.escape(url))}$"):
        source.batch(1)
    server.fault = lambda request: False
    assert source.batch(1).tolist() == records(8)[1:2]


@pytest.mark.parametrize("name", ["missing", "forbidden", "unavailable"])
def test_a_file_that_cannot_be_looked_at_is_named(name: str, server: ObjectServer, put: Any, quick: None) -> None:
    fault, message = FAILURES[name]
    server.fault = fault
    reason = message.replace("ClientResponseError: 503, .*", "FileNotFoundError: .*")
    reason = reason.replace("ClientResponseError: 403, .*", "FileNotFoundError: .*")
    for kind in WRITERS:
        with pytest.raises(RecordFileError, match=f"^{reason.format(url=server.url + '/x')}$"):
            kind(f"{server.url}/x", batch_size=1)


def test_a_glob_that_matches_nothing_is_named(server: ObjectServer, put: Any) -> None:
    put("a.rec", records(1))
    server.put("/train/a.rec.index.npy", b"an index that was uploaded, too")
    assert TFRecordSource(f"{server.url}/train/*", batch_size=1).files == [f"{server.url}/train/a.rec"]
    message = rf"^no file matches '{server.url}/train/\*\.none'\. Check the path; globs support \*, \? and \*\*\.$"
    with pytest.raises(RecordFileError, match=message):
        TFRecordSource(f"{server.url}/train/*.none", batch_size=1)


def test_a_file_that_a_glob_matches_again_is_read_once_and_named(server: ObjectServer, put: Any) -> None:
    put("a.rec", records(2))
    url = f"{server.url}/train/a.rec"
    with pytest.warns(StagingWarning, match=rf"^TFRecordSource: the file {url} is matched by a glob and also listed"):
        source = TFRecordSource([url, f"{server.url}/train/*"], batch_size=4, epochs=1)
    assert everything(source) == records(2)
    assert everything(TFRecordSource([url, url], batch_size=4, epochs=1)) == records(2) * 2


def test_a_file_whose_size_is_unknown_is_refused(server: ObjectServer) -> None:
    def chunked(request: Handler) -> bool:
        request.send_response(200)
        request.send_header("Transfer-Encoding", "chunked")
        request.end_headers()
        if request.command == "GET":
            request.wfile.write(b"0\r\n\r\n")
        return True

    server.fault = chunked
    message = (
        rf"^record file {server.url}/x: the server does not say how many bytes it has\. Copy it to this machine\.$"
    )
    with pytest.raises(RecordFileError, match=message):
        TFRecordSource(f"{server.url}/x", batch_size=1)


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    message = rf"^record file 'file://{tmp_path}' is a folder, expected a file\. For the files in it, add '/\*'\.$"
    with pytest.raises(RecordFileError, match=message):
        TFRecordSource(f"file://{tmp_path}", batch_size=1)


WAYS: dict[str, Callable[[str], Any]] = {
    "TFRecordSource got files=": lambda url: TFRecordSource([url], batch_size=1),
    "ArrayRecordSource got files=": lambda url: ArrayRecordSource(url, batch_size=1),
    "write_tfrecords got out=": lambda url: sources.write_tfrecords([b"x"], url),
    "write_array_records got out=": lambda url: sources.write_array_records({"x": np.ones(2)}, url, shards=2),
}
UNOPENED = {
    "fsspec": ("s3://bucket/x", "and URLs need fsspec. Install it: pip install 'staging-tf1[remote]', and the driver"),
    "gcsfs": ("gs://bucket/x", "whose driver is not installed. "),
    "adlfs": ("cached::abfs://a/x", "whose driver is not installed. "),
    "": ("foo://bucket/x", "expected a path of this machine, or a URL that fsspec opens (Protocol not known: foo)."),
}


@pytest.mark.parametrize("missing", UNOPENED)
@pytest.mark.parametrize("named", WAYS)
def test_a_url_without_a_driver_is_refused(named: str, missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    url, message = UNOPENED[missing]
    if missing:
        monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ImportError if missing else ValueError) as caught:
        WAYS[named](url)
    shown = f"{url}-00000-of-00002" if "array_records" in named else url
    assert str(caught.value).startswith(f"{named}{shown!r}, {message}") and missing in str(caught.value)


# Servers that stop, or answer wrongly once.

# Longer than an answer of this server takes on a busy machine.
QUICK_SECS = 1.0


class Stops:
    """Stops in the middle of the answers to the first `count` requests of a kind, until the test ends."""

    def __init__(self, server: ObjectServer, count: int, command: str, path: str = "") -> None:
        self.count, self.command, self.path = count, command, path
        self.end = threading.Event()
        server.fault = self

    def __call__(self, request: Handler) -> bool:
        with request.store.lock:
            stops = self.count > 0 and request.command == self.command and request.path.endswith(self.path)
            self.count -= stops
        if stops:
            request.send_response(206)
            request.send_header("Content-Length", "20016")
            if self.command == "GET":
                request.end_headers()
                request.wfile.write(bytes(100))
            request.wfile.flush()
            self.end.wait(600)
            request.close_connection = True
        return stops


@pytest.fixture
def stops(server: ObjectServer) -> Iterator[Callable[..., Stops]]:
    made: list[Stops] = []

    def make(*options: Any) -> Stops:
        made.append(Stops(server, *options))
        return made[-1]

    yield make
    for each in made:
        each.end.set()


@pytest.mark.slow_cases("ArrayRecordSource-HEAD|TFRecordSource-GET")
@pytest.mark.parametrize("command", ["GET", "HEAD"])
@pytest.mark.parametrize("kind", WRITERS)
def test_a_server_that_stops_once_is_asked_again(
    kind: Any, command: str, server: ObjectServer, put: Any, stops: Any, quick: None
) -> None:
    put("a.rec", records(8), kind)
    stop = stops(1, command, "a.rec")
    source = kind(f"{server.url}/train/a.rec", batch_size=8, epochs=1, timeout_secs=QUICK_SECS)
    assert stop.count == 0 and everything(source) == records(8)
    if kind is TFRecordSource:
        stop.count = 1
        assert everything(source) == records(8) and stop.count == 0


@pytest.mark.slow_cases("HEAD")
@pytest.mark.parametrize("command", ["GET", "HEAD"])
def test_a_server_that_stops_is_named(
    command: str, server: ObjectServer, put: Any, stops: Any, quick: None, tmp_path: Path
) -> None:
    put("a.rec", records(8))
    url = f"{server.url}/train/a.rec"
    source = TFRecordSource(url, batch_size=1, epochs=1, timeout_secs=QUICK_SECS)
    message = (
        rf"^cannot read {url}, tried 2 times: the server did not finish its answer within 1(\.\d+)? s\. Check the "
        rf"server and the network\. If they are slow, give the source more time: timeout_secs=\.$"
    )
    stop = stops(9, command, "a.rec")
    with pytest.raises(RecordFileError, match=message):
        source.batch(0)
    assert stop.count == 7
    with pytest.raises(RecordFileError, match=message):
        TFRecordSource(
            f"{server.url}/train/a.rec", batch_size=1, timeout_secs=QUICK_SECS, local_cache=tmp_path / "copies"
        )


def test_a_listing_that_stops_is_named(server: ObjectServer, put: Any, stops: Any, quick: None) -> None:
    put("a.rec", records(1))
    stops(9, "GET", "/train/")
    message = rf"^cannot read {server.url}/train/\*, tried 2 times: the server did not finish its answer within 1 s\."
    with pytest.raises(RecordFileError, match=message):
        TFRecordSource(f"{server.url}/train/*", batch_size=1, timeout_secs=0.1)


@pytest.mark.parametrize("options", [{}, {"lockstep": True}, {"num_processes": 1}])
def test_the_stall_report_names_the_url(
    options: dict[str, Any], server: ObjectServer, put: Any, stops: Any, reports: Reports
) -> None:
    put("a.rec", records(8))
    url = f"{server.url}/train/a.rec"
    source = TFRecordSource(url, batch_size=1, epochs=1)
    stop = stops(1, "GET", "a.rec")
    reports.on_report = stop.end.set
    with tf.Graph().as_default():
        batch = staging.staged(source, **options)
        with staging.StagingSession(stall_secs=SECS) as sess:
            while "num_processes" in options and stop.count:
                # The worker process is still starting.
                stop.end.wait(0.01)
            assert sess.run(batch).tolist() == records(1)
    report = reports.texts.get_nowait()
    assert f", reading {url}, and has not returned its first batch. Check the server and the network." in report


@pytest.mark.parametrize("options", [{}, {"local_cache": "copies"}])
@pytest.mark.parametrize("kind", WRITERS)
def test_a_copy_of_a_wrong_answer_is_made_again(
    kind: Any, options: Any, server: ObjectServer, put: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    put("a.rec", records(8), kind)
    answers = [wrong]

    def once(request: Handler) -> bool:
        return request.command == "GET" and bool(answers) and answers.pop()(request)

    server.fault = once
    source = kind(f"{server.url}/train/a.rec", batch_size=8, epochs=1, **options)
    assert not answers and everything(source) == records(8)


def test_what_is_wrong_twice_is_corrupt(server: ObjectServer, put: Any) -> None:
    put("a.rec", records(8))
    source = TFRecordSource(f"{server.url}/train/a.rec", batch_size=1, epochs=1)
    server.fault = lambda request: request.command == "GET" and flipped(request)
    with pytest.raises(CorruptRecordError, match="record 0, at byte 0, is corrupt"):
        source.batch(0)
    server.fault = lambda request: request.command == "GET" and wrong(request)
    with pytest.raises(RecordFileError, match="the record at byte 0 does not match the index"):
        source.batch(0)


# Changes.


def another(server: ObjectServer, path: str) -> str:
    server.put(path, server.objects[path].replace(b"000001", b"000009"))
    return r"it still has \d+ bytes, but its ETag was \w+ and is \w+"


def longer(server: ObjectServer, path: str) -> str:
    server.put(path, server.objects[path] + b"more")
    return r"it had \d+ bytes and has \d+"


def shorter(server: ObjectServer, path: str) -> str:
    server.put(path, server.objects[path][:1000])
    return r"it had \d+ bytes and has 1000"


CHANGES = [another, longer, shorter]


@pytest.mark.thinned
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("during", [False, True])
@pytest.mark.parametrize("batch", [0, 3])
def test_a_replaced_object_is_noticed(
    change: Any, during: bool, batch: int, server: ObjectServer, put: Any, quick: None
) -> None:
    put("a.rec", records(8))
    source = TFRecordSource(f"{server.url}/train/a.rec", batch_size=2, epochs=1, verify=False)
    assert source.batch(0).tolist() == records(2)
    what = []

    def change_first(request: Handler) -> bool:
        with server.lock:
            if not what:
                what.append(change(server, request.path))
        return False

    if during:
        server.fault = change_first
    else:
        what.append(change(server, "/train/a.rec"))
    with pytest.raises(RecordFileError) as caught:
        source.batch(batch)
    message = f"^record file {server.url}/train/a.rec has changed since the source was created: {what[0]}"
    assert re.match(message + r"\. Create the source again\.$", str(caught.value))


def test_a_run_resumes_unless_an_object_was_replaced(server: ObjectServer, put: Any, tmp_path: Path) -> None:
    local = put("a.rec", records(12))

    def source(files: str) -> Any:
        return TFRecordSource(files, batch_size=2, epochs=1, shuffle=True, seed=1)

    url, got = f"{server.url}/train/a.rec", []
    # The files may be copied to this machine, or to the store.
    for files, steps in ((url, 2), (url, 1), (local, 1), (url, 1)):
        got += [record for (batch,) in resumed_steps(tmp_path / "run", source(files), steps) for record in batch]
    assert got == everything(source(local))[:10]
    another(server, "/train/a.rec")
    with pytest.raises(ResumeError, match=r"files of the store were replaced \(their sizes or ETags differ\)\."):
        resumed_steps(tmp_path / "run", source(url), 1)


# Copies.


def copies(folder: Path) -> list[str]:
    return sorted(path.name[:5] for path in folder.iterdir() if path.name.endswith(".copy"))


@pytest.mark.parametrize("kind", WRITERS)
def test_local_copies_are_made_once_and_read(kind: Any, server: ObjectServer, put: Any, tmp_path: Path) -> None:
    put("a.rec", records(8), kind)
    put("b.rec", records(8, 8), kind)
    for _ in range(2):
        source = kind(f"{server.url}/train/*", batch_size=4, epochs=1, local_cache=tmp_path / "copies")
        assert copies(tmp_path / "copies") == ["a.rec", "b.rec"]
        server.reset()
        assert everything(source) == records(16)
        assert server.requests == []
    server.reset()
    kind(f"{server.url}/train/*", batch_size=4, epochs=1, local_cache=tmp_path / "copies")
    assert {path for method, path in server.requests if method == "GET"} == {"/train/"}
    # A replaced file takes the place of its copy.
    put("b.rec", records(8, 100), kind)
    source = kind(f"{server.url}/train/*", batch_size=4, epochs=1, local_cache=tmp_path / "copies")
    assert copies(tmp_path / "copies") == ["a.rec", "b.rec"] and everything(source) == [*records(8), *records(8, 100)]


def test_the_limit_removes_the_copies_that_were_used_longest_ago(
    server: ObjectServer, put: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "copies"
    for place, name in enumerate("abc"):
        put(f"{name}.rec", records(8, 8 * place))
    limit = int(2.5 * len(server.objects["/train/a.rec"]))

    def source(names: str) -> Any:
        files = [f"{server.url}/train/{name}.rec" for name in names]
        return TFRecordSource(files, batch_size=4, epochs=1, local_cache=folder, local_cache_bytes=limit)

    for names, kept in [("a", "a"), ("b", "ab"), ("a", "ab"), ("c", "ac"), ("b", "bc")]:
        source(names)
        assert copies(folder) == [f"{name}.rec" for name in kept]
    # What does not fit is read by ranges.
    three = source("abc")
    assert copies(folder) == ["a.rec", "b.rec"]
    assert everything(three) == records(24)
    # So is what another process has removed.
    three = source("abc")
    for path in folder.glob("*.copy"):
        path.unlink()
    assert everything(three) == records(24)


def test_an_array_record_file_needs_room(server: ObjectServer, put: Any, tmp_path: Path) -> None:
    put("a.rec", records(8), ArrayRecordSource)
    message = (
        rf"^ArrayRecord file {server.url}/train/a.rec does not fit into the folder '{tmp_path}/copies' beside the "
        rf"others of this source, and ArrayRecord files are read from local copies\. Raise local_cache_bytes=5\.$"
    )
    with pytest.raises(RecordFileError, match=message):
        ArrayRecordSource(
            f"{server.url}/train/a.rec", batch_size=1, local_cache=tmp_path / "copies", local_cache_bytes=5
        )


def test_what_a_killed_process_has_left_is_removed(server: ObjectServer, put: Any, tmp_path: Path) -> None:
    folder, found = tmp_path / "copies", set[str]()

    def look(request: Handler) -> bool:
        if request.command == "GET":
            found.update(path.name for path in folder.iterdir())
        return False

    for name in "ab":
        put(f"{name}.rec", records(8))
    server.fault = look
    TFRecordSource(f"{server.url}/train/b.rec", batch_size=8, local_cache=folder)
    server.fault = lambda request: False
    # A process that is killed while it copies leaves what is there meanwhile: no copy that others would use.
    (left,) = found - {".lock"}
    assert not left.endswith(".copy")
    (folder / left).write_bytes(b"half")
    source = TFRecordSource(f"{server.url}/train/a.rec", batch_size=8, epochs=1, local_cache=folder)
    assert copies(folder) == ["a.rec", "b.rec"] and not (folder / left).exists()
    assert everything(source) == records(8)


def test_a_folder_that_cannot_be_written_to_is_named(server: ObjectServer, put: Any, monkeypatch: Any) -> None:
    put("a.rec", records(1))
    url = f"{server.url}/train/a.rec"
    monkeypatch.setenv("STAGING_TF1_CACHE", "/dev/null/x")
    message = (
        rf"^cannot copy {url} to the folder '/dev/null/x.*': Not a directory\. Choose a writable folder with room for "
        rf"it: local_cache= of the source, or else STAGING_TF1_CACHE\.$"
    )
    for options in ({}, {"local_cache": "/dev/null/x"}):
        with pytest.raises(RecordFileError, match=message):
            TFRecordSource(url, batch_size=1, **options)


# Writing.


@pytest.mark.parametrize("kind", WRITERS)
def test_files_are_uploaded_when_they_are_complete(kind: Any, server: ObjectServer) -> None:
    write = WRITERS[kind]
    names = write({"x": np.arange(10)}, f"{server.url}/out", shards=2)
    assert names == [f"{server.url}/out-00000-of-00002", f"{server.url}/out-00001-of-00002"]
    features = {"x": tf.io.FixedLenFeature([], tf.int64)}
    source = kind(names, batch_size=10, epochs=1, features=features)
    with tf.Graph().as_default(), tf.Session() as sess:
        assert sess.run(tf.io.parse_example(source.batch(0), features))["x"].tolist() == list(range(10))

    def broken() -> Iterator[bytes]:
        yield b"record"
        raise KeyError("the next one")

    with pytest.raises(KeyError, match="the next one"):
        write(broken(), f"{server.url}/broken")
    assert sorted(server.objects) == ["/out-00000-of-00002", "/out-00001-of-00002"]
    server.fault = forbidden
    message = rf"^{write.__name__} cannot write to out='{server.url}/x': ClientResponseError: 403, .*\.$"
    with pytest.raises(RecordFileError, match=message):
        write([b"record"], f"{server.url}/x")


def test_the_command_indexes_and_writes_remote_files(
    server: ObjectServer, put: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put("a.rec", records(3))
    put("b.rec", records(3), ArrayRecordSource)
    assert main(["index", "--check", f"{server.url}/train/*"]) == 0
    out = capsys.readouterr().out
    assert f"{server.url}/train/a.rec: 3 records, 0 corrupt, index {tmp_path}/cache/a.rec-" in out
    assert f"{server.url}/train/b.rec: 3 records, 0 corrupt, an ArrayRecord file with its own index" in out
    np.savez(tmp_path / "x.npz", x=np.arange(5))
    assert main(["index", "--write", f"{server.url}/new", "--from", str(tmp_path / "x.npz")]) == 0
    assert TFRecordSource(f"{server.url}/new", batch_size=1).num_records == 5
