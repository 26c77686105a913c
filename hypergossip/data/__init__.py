"""Data sets, and how they are split over agents. `import hypergossip` does not load this; import it by its name."""

from ..errors import DataDamaged, DataUnavailable
from .digits import digits
from .examples import Dataset, Examples
from .libsvm import a9a, ijcnn1
from .mnist import mnist
from .newsgroups import newsgroups
from .progress import Progress
from .split import describe, split
from .store import Folder

__all__ = [
    "DataDamaged",
    "DataUnavailable",
    "Dataset",
    "Examples",
    "a9a",
    "describe",
    "digits",
    "ijcnn1",
    "load",
    "mnist",
    "newsgroups",
    "split",
]

_LOADERS = {"mnist": mnist, "newsgroups": newsgroups, "a9a": a9a, "ijcnn1": ijcnn1}


def load(name: str, folder: Folder = None, *, download: bool = True, progress: Progress | None = None) -> Dataset:
    """The data set of that name. "digits" comes with scikit-learn and is not looked for."""
    if name == "digits":
        return digits()
    if name not in _LOADERS:
        raise ValueError(f"Unknown data set {name!r}; possible are {', '.join(map(repr, (*_LOADERS, 'digits')))}.")
    return _LOADERS[name](folder, download=download, progress=progress)
