"""scikit-learn, which is installed with the extra."""

from __future__ import annotations

from types import ModuleType


def scikit_learn_datasets(name: str) -> ModuleType:
    try:
        from sklearn import datasets
    except ImportError as error:
        raise ImportError(
            f"The data set {name} is read with scikit-learn, which is not installed: pip install 'hypergossip[data]'"
        ) from error
    return datasets
