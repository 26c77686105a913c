"""Data sets: where they are looked for, what is said of those that are missing or damaged, and what is in them."""

import gzip
import hashlib
import importlib
import io
import os
import pickle
import subprocess
import sys
import tarfile
import zlib
from pathlib import Path

import mirror
import numpy as np
import pytest
from scipy import sparse

from hypergossip import data
from hypergossip.data import store
from hypergossip.data.sources import A9A, IJCNN1, MNIST, NEWSGROUPS, File

CONTENT = b"what was published"
REAL = os.environ.get("HYPERGOSSIP_DATA")
with_real_data = pytest.mark.skipif(not REAL, reason="HYPERGOSSIP_DATA names no folder with the data sets")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    """A user's cache for every test, so that none sees the real one."""
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.delenv(store.ENVIRONMENT, raising=False)
    return tmp_path / "cache" / "hypergossip"


@pytest.fixture
def server():
    with mirror.Mirror(CONTENT) as one:
        yield one


def _file(*urls: str, name: str = "file", content: bytes = CONTENT) -> File:
    return File(
        "sub", name, len(content), hashlib.sha256(content).hexdigest(), urls or ("http://nowhere.invalid/file",)
    )


def _put(root: Path, content: bytes = CONTENT, name: str = "sub/file") -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def _obtain(*files: File, folder=None, fetch=True) -> Path:
    return store.obtain(files, folder, fetch=fetch, progress=None)


def test_the_folder_named_is_looked_into_first_then_the_environments_then_the_cache(tmp_path, cache, monkeypatch):
    monkeypatch.setenv(store.ENVIRONMENT, str(tmp_path / "environment"))
    roots = [tmp_path / "named", tmp_path / "environment", cache]
    paths = [_put(root) for root in roots]
    for path in paths:
        assert _obtain(_file(), folder=roots[0], fetch=False) == path
        path.unlink()
    with pytest.raises(data.DataUnavailable) as caught:
        _obtain(_file(), folder=roots[0], fetch=False)
    for needed in ("no sub/file in any of", *map(str, roots), "http://nowhere.invalid/file", "download=True"):
        assert needed in str(caught.value)


def test_either_form_of_a_file_will_do(tmp_path):
    short, long = _file(), _file(name="long", content=CONTENT * 2)
    path = _put(tmp_path, CONTENT * 2, "sub/long")
    assert _obtain(short, long, folder=tmp_path) == path
    assert _obtain(short, long, folder=str(tmp_path)) == path


@pytest.mark.parametrize("content", [b"", CONTENT[:-1], CONTENT.upper(), CONTENT * 2])
def test_a_damaged_file_is_told_and_left_alone(content, tmp_path, server):
    path = _put(tmp_path, content)
    with pytest.raises(data.DataDamaged) as caught:
        _obtain(_file(server.url("good")), folder=tmp_path)
    for needed in (path, len(content), hashlib.sha256(content).hexdigest(), hashlib.sha256(CONTENT).hexdigest()):
        assert str(needed) in str(caught.value)
    assert path.read_bytes() == content
    assert server.asked == []


def test_downloads_go_to_the_folder_named_or_to_the_cache(tmp_path, cache, server):
    file = _file(server.url("good"))
    assert _obtain(file) == cache / "sub" / "file"
    assert _obtain(file, folder=tmp_path / "named") == cache / "sub" / "file"  # it is there
    (cache / "sub" / "file").unlink()
    assert _obtain(file, folder=tmp_path / "named") == tmp_path / "named" / "sub" / "file"
    assert len(server.asked) == 2


def test_downloads_go_to_the_cache_where_the_folder_named_cannot_be_written(tmp_path, cache, server, monkeypatch):
    (tmp_path / "named").mkdir()
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path / "named")
    assert _obtain(_file(server.url("good")), folder=tmp_path / "named") == cache / "sub" / "file"


def test_a_file_for_a_folder_is_refused(tmp_path, monkeypatch):
    file = _put(tmp_path)
    with pytest.raises(NotADirectoryError, match=r"folder is .* which is a file"):
        data.mnist(file)
    monkeypatch.setenv(store.ENVIRONMENT, str(file))
    with pytest.raises(NotADirectoryError, match=r"HYPERGOSSIP_DATA is .* which is a file"):
        data.mnist()


def test_the_cache_is_where_the_platform_has_it(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    for given, expected in ((str(tmp_path / "own"), "own"), ("relative", ".cache"), ("", ".cache")):
        monkeypatch.setenv("XDG_CACHE_HOME", given)
        assert store.cache() == tmp_path / expected / "hypergossip"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert store.cache() == tmp_path / "Library" / "Caches" / "hypergossip"
    monkeypatch.setattr(sys, "platform", "win32")
    assert store.cache() == tmp_path / "local" / "hypergossip"


def _idx(array: np.ndarray) -> bytes:
    head = bytes([0, 0, 8, array.ndim]) + b"".join(length.to_bytes(4, "big") for length in array.shape)
    return gzip.compress(head + array.tobytes())


def test_mnist_is_read_line_by_line(tmp_path, monkeypatch):
    rng, files, arrays = np.random.default_rng(0), {}, {}
    for name, file in MNIST.items():
        shape = (7, 28, 28) if "images" in name else (7,)
        arrays[name] = rng.integers(0, 256 if "images" in name else 10, shape, np.uint8)
        content = _idx(arrays[name])
        _put(tmp_path, content, f"mnist/{file.name}")
        files[name] = File("mnist", file.name, len(content), hashlib.sha256(content).hexdigest(), file.mirrors)
    monkeypatch.setattr(importlib.import_module("hypergossip.data.mnist"), "MNIST", files)
    found = data.load("mnist", tmp_path, download=False)
    np.testing.assert_array_equal(found.test.features, arrays["test images"].reshape(7, 784))
    np.testing.assert_array_equal(found.train.labels, arrays["train labels"])
    assert found.train.features.dtype == np.uint8
    some = found.train[[4, 1]]
    assert len(some) == 2
    np.testing.assert_array_equal(some.features, arrays["train images"].reshape(7, 784)[[4, 1]])
    np.testing.assert_array_equal(some.labels, arrays["train labels"][[4, 1]])


def test_libsvm_files_are_dense_with_as_many_features_in_both_halves(tmp_path, monkeypatch):
    texts = {"train": b"-1 2:1 123:0.5\n+1 1:1\n", "test": b"+1 3:1\n"}
    files = {half: (_file(name=half, content=text),) for half, text in texts.items()}
    for half, text in texts.items():
        _put(tmp_path, text, f"sub/{half}")
    monkeypatch.setattr(importlib.import_module("hypergossip.data.libsvm"), "A9A", files)
    found = data.load("a9a", tmp_path, download=False)
    assert found.train.features.shape == (2, 123)
    assert found.test.features.shape == (1, 123)
    assert found.train.features.dtype == np.float32
    assert found.train.features[0].nonzero()[0].tolist() == [1, 122]
    assert found.train.labels.tolist() == [0, 1]
    assert found.test.labels.tolist() == [1]


def test_digits_come_with_scikit_learn_in_a_division_for_all_time():
    from sklearn.datasets import load_digits

    found = data.load("digits")
    features = np.concatenate([found.train.features, found.test.features])
    assert features.dtype == np.uint8
    assert sorted(map(bytes, features)) == sorted(map(bytes, load_digits().data.astype(np.uint8)))
    assert (len(found.train), len(found.test)) == (1437, 360)
    assert np.bincount(found.test.labels).tolist() == [33, 35, 41, 35, 32, 33, 33, 39, 32, 47]
    assert found.test.features.sum(dtype=int) == 112754


def test_examples_are_as_many_as_their_labels_and_indexed_by_rows():
    labels = np.arange(3)
    examples = data.Examples(np.eye(3), labels)
    assert examples[labels > 0].labels.tolist() == [1, 2]
    assert examples[1:].labels.tolist() == [1, 2]
    with pytest.raises(TypeError, match=r"as in examples\[\[3\]\]"):
        examples[np.array(1)]
    with pytest.raises(ValueError, match="3 rows of features and 2 labels"):
        data.Examples(sparse.csr_array(np.eye(3)), labels[:2])


def test_an_unknown_name_is_told_the_known_ones():
    with pytest.raises(ValueError, match="Unknown data set 'mnits'; possible are 'mnist', 'newsgroups', 'a9a'"):
        data.load("mnits")


@pytest.mark.parametrize("name", ["newsgroups", "a9a", "ijcnn1", "digits"])
def test_a_missing_extra_is_named(name, monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(ImportError, match=rf"{name} is read with scikit-learn.*pip install 'hypergossip\[data\]'"):
        data.load(name)


def test_neither_the_library_nor_this_part_of_it_loads_scikit_learn():
    code = "import sys, hypergossip; print('hypergossip.data' in sys.modules); import hypergossip.data; "
    code += "print([name for name in ('sklearn', 'rich') if name in sys.modules])"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.split() == ["False", "[]"]


WORDS = {"rec.autos": "wheel engine road", "sci.space": "orbit engine moon", "alt.tea": "leaf kettle"}
HOME, TEXTS, COUNTS = (
    NEWSGROUPS.folder,
    "20news-bydate_py3.pkz",
    "20newsgroup_vectorizedremove-headers-footers-quotes_py3.pkl",
)


@pytest.fixture
def archive(monkeypatch):
    """A server with a small archive of news, in place of the published one."""
    from sklearn.datasets import _twenty_newsgroups as theirs

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for half, copies in (("train", 4), ("test", 2)):
            for group, words in WORDS.items():
                for i in range(copies):
                    text = f"From: somebody\n\n{words} {half}\n".encode()
                    entry = tarfile.TarInfo(f"20news-bydate-{half}/{group}/{i}")
                    entry.size = len(text)
                    tar.addfile(entry, io.BytesIO(text))
    with mirror.Mirror(buffer.getvalue()) as one:
        sha256 = hashlib.sha256(one.content).hexdigest()
        ours = File(HOME, NEWSGROUPS.name, len(one.content), sha256, (one.url("good"),))
        monkeypatch.setattr(importlib.import_module("hypergossip.data.newsgroups"), "NEWSGROUPS", ours)
        monkeypatch.setattr(theirs, "ARCHIVE", theirs.ARCHIVE._replace(checksum=sha256, url="http://nowhere.invalid/"))
        yield one


def _check_news(found: data.Dataset) -> None:
    assert found.classes == tuple(sorted(WORDS))
    assert (len(found.train), len(found.test)) == (12, 6)
    assert found.train.features.shape[1] == found.test.features.shape[1] == 8  # 7 words and "train"; no "somebody"
    assert isinstance(found.train.features, sparse.csr_array)
    assert found.train.features.dtype == np.float32
    np.testing.assert_allclose(found.train.features.power(2).sum(axis=1), 1.0, rtol=1e-6)
    assert np.bincount(found.train.labels).tolist() == [4, 4, 4]


def test_news_are_downloaded_and_counted_once(archive, cache):
    for _ in range(2):
        _check_news(data.newsgroups())
    assert len(archive.asked) == 1
    assert sorted(path.name for path in (cache / HOME).iterdir()) == sorted([TEXTS, COUNTS, NEWSGROUPS.name])


def test_news_are_counted_from_texts_that_are_there_without_touching_their_folder(
    archive, cache, tmp_path, monkeypatch
):
    data.newsgroups(tmp_path / "first")
    texts = _put(tmp_path / "other", (tmp_path / "first" / HOME / TEXTS).read_bytes(), f"{HOME}/{TEXTS}")
    monkeypatch.setenv(store.ENVIRONMENT, str(tmp_path / "other"))
    _check_news(data.newsgroups(download=False))
    assert len(archive.asked) == 1
    assert list(texts.parent.iterdir()) == [texts]
    assert (cache / HOME / COUNTS).exists()


def test_counting_that_is_interrupted_leaves_nothing_and_what_killed_processes_left_is_removed(
    archive, cache, monkeypatch
):
    from sklearn import datasets

    fetch = datasets.fetch_20newsgroups_vectorized

    def interrupted(**arguments):
        fetch(**arguments)
        raise KeyboardInterrupt

    left = _put(cache, b"", f"{HOME}/.newsgroups.part/{COUNTS}")
    monkeypatch.setattr(datasets, "fetch_20newsgroups_vectorized", interrupted)
    with pytest.raises(KeyboardInterrupt):
        data.newsgroups()
    assert [path.name for path in (cache / HOME).iterdir()] == [NEWSGROUPS.name]
    monkeypatch.setattr(datasets, "fetch_20newsgroups_vectorized", fetch)
    _put(cache, b"", str(left.relative_to(cache)))
    _check_news(data.newsgroups(download=False))
    assert not left.parent.exists()


@pytest.mark.parametrize(("name", "others"), [(TEXTS, ()), (TEXTS, (COUNTS,)), (COUNTS, (TEXTS,))])
@pytest.mark.parametrize("content", [b"", b"nonsense", zlib.compress(pickle.dumps({}))])
def test_damaged_pickles_are_told(name, others, content, archive, cache, tmp_path):
    data.newsgroups()
    folder = tmp_path / "named"
    for other in others:
        _put(folder, (cache / HOME / other).read_bytes(), f"{HOME}/{other}")
    path = _put(folder, content, f"{HOME}/{name}")
    for other in (TEXTS, COUNTS):
        (cache / HOME / other).unlink()
    with pytest.raises(data.DataDamaged, match="scikit-learn cannot read") as caught:
        data.newsgroups(folder)
    assert str(path if not others else path.parent) in str(caught.value)
    assert path.read_bytes() == content


def test_news_that_are_nowhere_are_told(cache):
    with pytest.raises(data.DataUnavailable, match=r"no scikit_learn_data/20news-bydate.tar.gz in any of"):
        data.newsgroups(download=False)
    assert not cache.exists()


def test_every_published_file_can_be_told_and_had():
    forms = [*((file,) for file in MNIST.values()), *A9A.values(), *IJCNN1.values(), (NEWSGROUPS,)]
    for form in forms:
        assert any(file.mirrors for file in form)
        for file in form:
            assert len(bytes.fromhex(file.sha256)) == 32
            assert all(url.startswith("http") for url in file.mirrors)


@with_real_data
@pytest.mark.parametrize(
    ("name", "train", "test", "classes"),
    [
        ("mnist", (60_000, 784), (10_000, 784), 10),
        ("newsgroups", (11_314, 101_631), (7_532, 101_631), 20),
        ("a9a", (32_561, 123), (16_281, 123), 2),
        ("ijcnn1", (35_000, 22), (14_990, 22), 2),
    ],
)
def test_the_real_sets_are_what_is_known_of_them(name, train, test, classes):
    found = data.load(name, REAL, download=False)
    assert (found.name, found.train.features.shape, found.test.features.shape) == (name, train, test)
    assert len(found.classes) == classes
    for half in (found.train, found.test):
        assert set(np.unique(half.labels)) == set(range(classes))
    if name == "newsgroups":
        assert (found.train.features.nnz, found.test.features.nnz) == (1_103_627, 665_738)
        assert [int((np.diff(half.features.indptr) == 0).sum()) for half in (found.train, found.test)] == [311, 224]
    positives = {
        "a9a": [7_841, 3_846],
        "ijcnn1": [3_415, 1_438],
        "mnist": [54_077, 9_020],
        "newsgroups": [10_834, 7_213],
    }
    assert [int((half.labels > 0).sum()) for half in (found.train, found.test)] == positives[name]
    if name == "mnist":
        assert found.train.labels[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
        assert found.train.features.mean() / 255 == pytest.approx(0.1307, abs=5e-5)  # the figure that everybody uses


@with_real_data
def test_the_text_of_a9a_is_as_good_as_its_compressed_form(tmp_path):
    import bz2

    for forms in A9A.values():
        compressed, plain = forms
        _put(tmp_path, bz2.decompress(compressed.below(Path(REAL)).read_bytes()), f"libsvm/{plain.name}")
    ours, theirs = data.a9a(tmp_path, download=False), data.a9a(REAL, download=False)
    np.testing.assert_array_equal(ours.train.features, theirs.train.features)
    np.testing.assert_array_equal(ours.test.labels, theirs.test.labels)
