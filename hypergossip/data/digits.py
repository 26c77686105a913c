"""scikit-learn's handwritten digits, which come with it: the set for those who are offline."""

from __future__ import annotations

import numpy as np

from .examples import Dataset, Examples
from .extra import scikit_learn_datasets

_TEST = 360


def digits() -> Dataset:
    """1,437 training and 360 test images of 8 × 8 grey values: uint8 (rows, 64), 0 … 16, line by line.

    They are published undivided. The division here is one for all time: by the raw output of a bit
    generator, which NumPy promises not to change, as it does not for what is derived from it.
    """
    bunch = scikit_learn_datasets("digits").load_digits()
    every = Examples(bunch.data.astype(np.uint8), bunch.target.astype(np.int64))
    order = np.argsort(np.random.PCG64(0).random_raw(len(every)), kind="stable")
    test, train = np.sort(order[:_TEST]), np.sort(order[_TEST:])
    return Dataset("digits", every[train], every[test], tuple("0123456789"))
