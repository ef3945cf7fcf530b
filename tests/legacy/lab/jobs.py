"""What a driver returns, and what several drivers write: texts, pictures and sounds."""

from __future__ import annotations

import gzip
import random
import wave
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

MAKERS = str(Path(__file__).with_name("makers.py"))  # programs that make data with the programs' own code
WORDS = [f"word{index}" for index in range(60)]


@dataclass(frozen=True)
class Job:
    """How a program is started.

    In both, `{data}` stands for the folder of the driver's data, and `{out}` for an empty one. What the driver writes
    into the folder `overlay` of its data is copied over the program.
    """

    command: Sequence[str]  # the program and its arguments; -m for a module
    prepare: Sequence[Sequence[str]] = ()  # programs that make the data from what the driver wrote


def write(path: Path, *lines: str) -> None:
    """Write a text file, and its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")


def sentences(count: int, seed: int = 0, words: Sequence[str] = WORDS, length: int = 9) -> list[str]:
    """Return `count` lines of random words."""
    draw = random.Random(seed)
    return [" ".join(draw.choice(words) for _ in range(length)) for _ in range(count)]


def picture(path: Path, height: int, width: int, seed: int, low: int = 0) -> None:
    """Write a picture of random blocks; the name ends with its format."""
    from PIL import Image

    draw = np.random.RandomState(seed)
    small = draw.randint(low, 256, [8, 8, 3]).astype(np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(small).resize((width, height), Image.Resampling.BILINEAR).save(path)


def sound(path: Path, secs: float, seed: int, rate: int = 16000) -> None:
    """Write a wav file of 16 bits: a tone with noise."""
    draw = np.random.RandomState(seed)
    times = np.arange(int(secs * rate)) / rate
    values = 0.3 * np.sin(2 * np.pi * (200 + 50 * seed) * times) + 0.05 * draw.randn(len(times))
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes((values * 32767).astype("<i2").tobytes())


def mnist(folder: Path, train: int, test: int) -> None:
    """Write MNIST's four files, of pictures whose class can be seen, where the folder does not have them.

    Raises FileExistsError if it has others.
    """
    draw = np.random.RandomState(0)
    folder.mkdir(parents=True, exist_ok=True)
    for name, count in (("train", train), ("t10k", test)):
        labels = draw.randint(0, 10, count).astype(np.uint8)
        pictures = draw.randint(0, 64, [count, 28, 28]).astype(np.uint8)
        for picture_of, label in zip(pictures, labels):
            picture_of[2 * label : 2 * label + 8, 4:24] += 128
        sizes = np.array([count, 28, 28], ">i4").tobytes()
        images = b"\0\0\x08\x03" + sizes + pictures.tobytes()
        for file, content in (
            (folder / f"{name}-images-idx3-ubyte.gz", images),
            (folder / f"{name}-labels-idx1-ubyte.gz", b"\0\0\x08\x01" + sizes[:4] + labels.tobytes()),
        ):
            if not file.exists():
                file.write_bytes(gzip.compress(content, 1))
            elif gzip.decompress(file.read_bytes()) != content:
                raise FileExistsError(f"{file} is another file. Move it away for the time of the run.")
