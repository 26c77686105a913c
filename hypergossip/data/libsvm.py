"""Two sets of LIBSVM's collection, dense."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from .examples import Dataset, Examples
from .extra import scikit_learn_datasets
from .progress import Progress
from .sources import A9A, IJCNN1, File
from .store import Folder, obtain


def a9a(folder: Folder = None, *, download: bool = True, progress: Progress | None = None) -> Dataset:
    """Census incomes, above 50,000 a year or not: 32,561 training and 16,281 test rows of 123 zeros and ones."""
    return _read("a9a", A9A, 123, ("<=50K", ">50K"), folder, download, progress)


def ijcnn1(folder: Folder = None, *, download: bool = True, progress: Progress | None = None) -> Dataset:
    """The IJCNN 2001 challenge: LIBSVM's 35,000 training rows of 22 features, and its 14,990 validation rows as `test`.

    LIBSVM's own test set of 91,701 rows is not used.
    """
    return _read("ijcnn1", IJCNN1, 22, ("-1", "+1"), folder, download, progress)


def _read(
    name: str,
    files: Mapping[str, Sequence[File]],
    features: int,
    classes: tuple[str, str],
    folder: Folder,
    download: bool,
    progress: Progress | None,
) -> Dataset:
    load = scikit_learn_datasets(name).load_svmlight_file

    def half(of: str) -> Examples:
        path = obtain(files[of], folder, fetch=download, progress=progress)
        rows, signs = load(str(path), n_features=features, dtype=np.float32)
        return Examples(rows.toarray(), (signs > 0).astype(np.int64))

    return Dataset(name, half("train"), half("test"), classes)
