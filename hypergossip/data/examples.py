"""What a loader gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int
from scipy import sparse


@dataclass(frozen=True, eq=False)
class Examples:
    """Features and labels, row by row."""

    features: np.ndarray | sparse.csr_array
    """(examples, features)."""
    labels: Int[np.ndarray, " examples"]
    """0 … classes − 1."""

    def __post_init__(self):
        if self.features.shape[0] != len(self.labels):
            raise ValueError(
                f"Got {self.features.shape[0]} rows of features and {len(self.labels)} labels; expected as many."
            )

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, rows: np.ndarray | slice | Sequence[int]) -> Examples:
        """Those rows: given by their numbers (what `split` gives), by a mask, or as a slice."""
        if not isinstance(rows, slice) and np.ndim(rows) != 1:
            raise TypeError(f"Got the index {rows!r}; expected row numbers, a mask or a slice, as in examples[[3]].")
        return Examples(self.features[rows], self.labels[rows])


@dataclass(frozen=True, eq=False)
class Dataset:
    """A data set in its publisher's division into training and test examples."""

    name: str
    train: Examples
    test: Examples
    classes: tuple[str, ...]
    """What label k stands for."""
