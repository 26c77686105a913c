"""20 Newsgroups: texts as normalised counts of words, sparse, by scikit-learn's own loader."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from ..errors import DataDamaged
from .disk import locked, put_in_place, writing
from .examples import Dataset, Examples
from .extra import scikit_learn_datasets
from .progress import Progress
from .sources import NEWSGROUPS
from .store import Folder, destination, obtain, roots

Fetch = Callable[..., Any]
_REMOVED = ("headers", "footers", "quotes")
_TEXTS = "20news-bydate_py3.pkz"
_COUNTS = "20newsgroup_vectorizedremove-headers-footers-quotes_py3.pkl"
_PICKLES = (_TEXTS, _COUNTS)


def newsgroups(folder: Folder = None, *, download: bool = True, progress: Progress | None = None) -> Dataset:
    """11,314 training and 7,532 test texts as counts of 101,631 words, each row of norm 1 or empty: CSR, float32.

    Headers, footers and quotes are removed. scikit-learn keeps the counts as pickles, which depend on
    its version and have no checksum for all; reading a pickle runs what is in it, so name only
    folders that you trust.
    """
    fetch = scikit_learn_datasets("newsgroups").fetch_20newsgroups_vectorized
    home = _home(folder) or _made(fetch, folder, download, progress)
    halves = [_fetched(fetch, home, subset) for subset in ("train", "test")]
    train, test = (
        Examples(sparse.csr_array(half.data, dtype=np.float32), half.target.astype(np.int64)) for half in halves
    )
    return Dataset("newsgroups", train, test, tuple(halves[0].target_names))


def _home(folder: Folder, files: tuple[str, ...] = _PICKLES) -> Path | None:
    """The first folder that has these files."""
    homes = (root / NEWSGROUPS.folder for root in roots(folder))
    return next((home for home in homes if all((home / name).is_file() for name in files)), None)


def _made(fetch: Fetch, folder: Folder, download: bool, progress: Progress | None) -> Path:
    """Makes the pickles in a folder of their own, and then moves them to where they are looked for."""
    home = destination(folder) / NEWSGROUPS.folder
    texts = _home(folder, (_TEXTS,))
    source = texts / _TEXTS if texts else obtain([NEWSGROUPS], folder, fetch=download, progress=progress)
    with locked(home / ".newsgroups.lock"):
        if lacking := [
            name for name in _PICKLES if not (home / name).is_file()
        ]:  # another process may have been faster
            part = home / ".newsgroups.part"
            try:
                _fill(fetch, part, source)
                for name in lacking:
                    with writing(home / name):
                        put_in_place(part / name, home / name)
            finally:
                shutil.rmtree(part, ignore_errors=True)
    return home


def _fill(fetch: Fetch, part: Path, source: Path) -> None:
    """Both pickles, from scikit-learn's pickle of the texts or from the archive, which it looks for in a subfolder."""
    archived = source.name == NEWSGROUPS.name
    copy = part / "20news_home" / source.name if archived else part / source.name
    with writing(part):
        shutil.rmtree(part, ignore_errors=True)  # what a killed process left
        copy.parent.mkdir(parents=True)
        shutil.copyfile(source, copy)
        _fetched(fetch, part, "train", source, download_if_missing=archived)


def _fetched(
    fetch: Fetch, home: Path, subset: str, source: Path | None = None, *, download_if_missing: bool = False
) -> Any:
    try:
        return fetch(subset=subset, remove=_REMOVED, data_home=str(home), download_if_missing=download_if_missing)
    except Exception as error:  # a damaged pickle can raise anything
        if isinstance(error, OSError) and error.errno is not None:  # the disk's
            raise
        raise DataDamaged(
            f"scikit-learn cannot read {source or home}: {error}. Move {source or ' and '.join(_PICKLES)} away, and "
            "the data set is made anew, from the texts if they are there or can be downloaded."
        ) from error
