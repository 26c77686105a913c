"""MNIST: handwritten digits, from the four files in the idx format."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np

from .examples import Dataset, Examples
from .progress import Progress
from .sources import MNIST
from .store import Folder, obtain


def mnist(folder: Folder = None, *, download: bool = True, progress: Progress | None = None) -> Dataset:
    """60,000 training and 10,000 test images of 28 × 28 grey values: uint8 (rows, 784), 0 … 255, line by line."""
    read = {name: read_idx(obtain([file], folder, fetch=download, progress=progress)) for name, file in MNIST.items()}
    train, test = (
        Examples(images.reshape(len(images), -1), labels.astype(np.int64))
        for images, labels in ((read[f"{half} images"], read[f"{half} labels"]) for half in ("train", "test"))
    )
    return Dataset("mnist", train, test, tuple("0123456789"))


def read_idx(path: Path) -> np.ndarray:
    """An array of bytes in the idx format: 0, 0, 8 (the type), the number of axes; their lengths; the values."""
    content = gzip.decompress(path.read_bytes())
    axes = content[3]
    shape = np.frombuffer(content, ">u4", axes, offset=4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * axes).reshape(shape).copy()
