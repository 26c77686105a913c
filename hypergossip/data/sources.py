"""What is known of the files: where they lie, how to tell that they are whole, and who offers them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class File:
    """A published file."""

    folder: str
    """Below a root."""
    name: str
    size: int
    """In bytes."""
    sha256: str
    mirrors: tuple[str, ...] = ()
    """Addresses, in the order in which they are tried."""

    def below(self, root: Path) -> Path:
        return root / self.folder / self.name


def _mnist(name: str, size: int, sha256: str) -> File:
    hosts = ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/")
    return File("mnist", name, size, sha256, tuple(host + name for host in hosts))


def _libsvm(name: str, size: int, sha256: str) -> File:
    host = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary/"
    return File("libsvm", name, size, sha256, (host + name,))


MNIST = {
    "train images": _mnist(
        "train-images-idx3-ubyte.gz", 9912422, "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"
    ),
    "train labels": _mnist(
        "train-labels-idx1-ubyte.gz", 28881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"
    ),
    "test images": _mnist(
        "t10k-images-idx3-ubyte.gz", 1648877, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"
    ),
    "test labels": _mnist(
        "t10k-labels-idx1-ubyte.gz", 4542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"
    ),
}

A9A = {
    "train": (
        File("libsvm", "a9a.bz2", 100552, "1dcb2b4aedea0b5a9e964192dd211675d16cf05ab6477ddd0702d87c1d1af8da"),
        _libsvm("a9a", 2329875, "f5d5ffd8d865ff41328e7ee043e4b020816914ff6843ff15b98905ddbedce906"),
    ),
    "test": (
        File("libsvm", "a9a.t.bz2", 50548, "e55725b53c3c47f7053bd3ef12e41555539eac4c0fe989e69345cc4dd0ea6e8d"),
        _libsvm("a9a.t", 1164628, "1f448a153f0320399a7e40836eb207655b0bde0f21fc941cc472193daa9f5de9"),
    ),
}
"""In two forms, either of which will do. LIBSVM's server offers the text as it is, 23 times as long."""

IJCNN1 = {
    "train": (_libsvm("ijcnn1.tr.bz2", 964465, "77a67b8333bb92fd9d93b67122c0bfbeefc8f80c6c818009d9aeabc3b7d3ccbd"),),
    "test": (_libsvm("ijcnn1.val.bz2", 429604, "3b87f23e1d220cd812c6d03f9fa9758d44011ed13ae14fb19607390d9f6f4299"),),
}

_RENNIE = "http://qwone.com/~jason/20Newsgroups/"
"""Jason Rennie's page, where the set has come from all along."""

NEWSGROUPS = File(
    "scikit_learn_data",
    "20news-bydate.tar.gz",
    14464277,
    "8f1b2514ca22a5ade8fbb9cfa5727df95fa587f4c87b786e15c759fa66d95610",
    ("https://ndownloader.figshare.com/files/5975967", f"{_RENNIE}20news-bydate.tar.gz"),
)
"""The texts, of which scikit-learn makes its pickles."""
