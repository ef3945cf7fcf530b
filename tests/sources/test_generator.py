"""GeneratorSource and as_source: plain generators, and the messages for their limits."""

from __future__ import annotations

import collections
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from once import Reading

from staging_tf1.errors import SpecError, StagingError
from staging_tf1.sources import ArraySource, GeneratorSource, as_source
from staging_tf1.spec import ArraySpec


def digits() -> Iterator[dict[str, Any]]:
    for number in range(3):
        yield {"image": np.full((2, 4), number, np.float32), "label": [number, number]}


_SPEC = {"image": tf.TensorSpec([None, 4], tf.float32), "label": tf.TensorSpec([None], tf.int32)}


def _labels(source: GeneratorSource, start: int = 0) -> list[int]:
    return [int(batch["label"][0]) for batch in source.batches(start)]


def test_a_function_and_an_iterable_can_be_read_again() -> None:
    for source in (GeneratorSource(digits), GeneratorSource(list(digits()))):
        assert _labels(source) == _labels(source) == [0, 1, 2]
        assert source.num_batches is None and not source.gives_away


def test_the_spec_is_taken_from_the_first_batch_which_is_still_delivered() -> None:
    source = GeneratorSource(digits())
    assert source.spec is None
    expected = {
        "image": ArraySpec((None, 4), np.float32, "image"),
        "label": ArraySpec((None,), np.int64, "label"),
    }
    assert source.resolve_spec() == expected == source.resolve_spec() == source.spec
    assert _labels(source) == [0, 1, 2]


def test_a_declared_spec_gives_python_values_its_dtype() -> None:
    source = GeneratorSource(digits, spec=_SPEC)
    assert source.spec["label"] == ArraySpec((None,), np.int32, "label")
    assert next(source.batches())["label"].dtype == np.int32


def test_a_generator_object_can_be_read_once() -> None:
    source = GeneratorSource(digits())
    assert _labels(source) == [0, 1, 2]
    message = r"^generator 'digits' was already read, and a generator object can be read only once\. Pass"
    with pytest.raises(StagingError, match=message):
        source.batches()


def test_resume_is_refused_unless_skipping_is_asked_for() -> None:
    message = (
        r"^generator 'digits' cannot resume at batch 2, because a generator can only be read from its beginning\. "
        r"Use GeneratorSource\(\.\.\., resume='skip'\) to read and discard 2 batches first, or a source with random "
        r"access: ArraySource, TFRecordSource\.$"
    )
    with pytest.raises(StagingError, match=message):
        GeneratorSource(digits).batches(2)
    assert _labels(GeneratorSource(digits, resume="skip"), 2) == [2]
    with pytest.raises(StagingError, match=r"ended after 3 batches, while skipping to batch 5 to resume"):
        _labels(GeneratorSource(digits, resume="skip"), 5)


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (np.zeros((2, 5), "f"), r"'g': batch 1: the batch got float32 \[2, 5\], expected float32 \[\?, 4\]\. .* No sp"),
        (np.zeros((2, 4)), r"got float64 \[2, 4\], expected float32 \[\?, 4\]\. Cast"),
        ({"x": np.zeros(2)}, r"the batch got a dict with the keys 'x', expected float32 \[\?, 4\]\."),
    ],
)
def test_a_batch_unlike_the_first_is_refused(second: Any, message: str) -> None:
    source = GeneratorSource(lambda: iter([np.zeros((2, 4), np.float32), second]), name="g")
    with pytest.raises(SpecError, match=message):
        list(source.batches())


def test_all_components_that_do_not_fit_are_named() -> None:
    first = {"x": np.zeros(2), "y": np.zeros(2, np.int32), "z": np.zeros(2)}
    second = {"x": np.zeros(2, np.float32), "y": np.zeros(2, np.int32), "z": ["a", "b"]}
    with pytest.raises(SpecError) as caught:
        list(GeneratorSource(lambda: iter([first, second]), name="g").batches())
    assert str(caught.value).splitlines() == [
        "generator 'g': batch 1: 2 components do not fit:",
        "  component 'x' got float32 [2], expected float64 [?]. Cast it: array.astype(np.float64), or declare float32.",
        "  component 'z' got string [2], expected float64 [?]. Convert the strings to numbers, or declare a string. No "
        "spec was declared, so the first batch set it.",
    ]


IMAGE = np.zeros((2, 4), np.float32)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ({"image": IMAGE}, r"^generator 'g': batch 0: the batch lacks the key 'label'; expected the keys 'image', 'la"),
        ({"image": IMAGE, "lable": [1]}, r"lacks the key 'label' and has the unknown key 'lable'; expected"),
        (np.zeros(2), r"the batch got one array, float64 \[2\], expected a dict with the keys 'image', 'label'\.$"),
        ({"image": np.zeros((2, 4)), "label": [1, 2]}, r"component 'image' got float64 \[2, 4\], expected float32 .*"),
        ({"image": IMAGE, "label": [1, 2**40]}, r"component 'label' got a list of 2 that cannot be converted to int32"),
    ],
)
def test_a_batch_off_the_declared_spec_is_refused(batch: Any, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        list(GeneratorSource([batch], spec=_SPEC, name="g").batches())


def test_tuples_must_have_as_many_components_as_declared() -> None:
    spec = (tf.TensorSpec([None], tf.int64), tf.TensorSpec([None], tf.int64))
    with pytest.raises(SpecError, match=r"the batch got 1 component, expected a tuple of 2 components\.$"):
        list(GeneratorSource([([1],)], spec=spec).batches())
    assert [type(batch) for batch in GeneratorSource([[[1], [2]]], spec=spec).batches()] == [tuple]


def test_an_empty_generator_has_no_spec() -> None:
    with pytest.raises(SpecError, match=r"^generator '<lambda>' yielded no batch, so its dtypes and shapes are unkn"):
        GeneratorSource(lambda: iter([])).resolve_spec()
    assert list(GeneratorSource(lambda: iter([])).batches()) == []


def test_what_is_no_generator_is_refused() -> None:
    with pytest.raises(TypeError, match=r"^generator 'g' returned a NoneType, expected an iterator over batches: use"):
        GeneratorSource(lambda: None, name="g").batches()  # type: ignore[arg-type, return-value]
    with pytest.raises(TypeError, match=r"^generator 'digits': spec component 'x' is .*; expected a tf\.TensorSpec, f"):
        GeneratorSource(digits, spec={"x": "float32"})


def test_as_source_takes_whatever_yields_batches() -> None:
    source = ArraySource(np.arange(3), batch_size=1)
    assert as_source(source) is source
    for value in (digits, digits(), list(digits())):
        made = as_source(value)
        assert isinstance(made, GeneratorSource) and len(list(made.batches())) == 3


Batch = collections.namedtuple("Batch", "image label")


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (np.zeros(3), "one numpy array"),
        ({"x": np.zeros(3)}, "a dict of 1"),
        ((np.zeros(3), np.zeros(3)), "a tuple of 2"),
        (Batch(np.zeros(3), np.zeros(3)), "a Batch of 2"),
    ],
)
def test_as_source_tells_arrays_to_take_a_batch_size(value: Any, kind: str) -> None:
    message = rf"^as_source\(\) got arrays as value \({kind}\), expected batches\. Choose a batch size: .*ArraySource\("
    with pytest.raises(TypeError, match=message):
        as_source(value)


def test_as_source_refuses_the_rest() -> None:
    message = (
        r"^as_source\(\) got the class ArraySource as value, expected a source\. Make one: ArraySource\(\.\.\.\)\.$"
    )
    with pytest.raises(TypeError, match=message):
        as_source(ArraySource)
    with pytest.raises(TypeError, match=r"^as_source\(\) got value=3\.5, expected batches: a source, a generator func"):
        as_source(3.5)


def _bad_at_one() -> Reading:
    def check(values: Any) -> Any:
        if values[0] == 1:
            raise KeyError(1)
        return values

    return Reading(range(4), check)


def test_an_iterator_that_goes_on_after_an_exception_is_read_on() -> None:
    batches = GeneratorSource(_bad_at_one).batches()
    assert next(batches).tolist() == [0]
    with pytest.raises(KeyError):
        next(batches)
    assert next(batches).tolist() == [2]


def test_an_exception_while_skipping_ends_the_batches() -> None:
    batches = GeneratorSource(_bad_at_one, resume="skip").batches(3)
    with pytest.raises(StagingError, match="raised KeyError at batch 1, while skipping to batch 3 to resume there"):
        next(batches)
    assert list(batches) == []
