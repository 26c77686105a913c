"""Downloads: whatever a server, a disk or a user does, the file is the right one or is not there."""

import errno
import hashlib
import os
import signal
import socket
import subprocess
import sys
import threading
from itertools import pairwise
from pathlib import Path

import mirror
import numpy as np
import pytest

from hypergossip.data import DataUnavailable
from hypergossip.data.disk import locked
from hypergossip.data.download import download
from hypergossip.data.sources import File

CONTENT = np.random.default_rng(0).bytes(300_000)
SIZE = len(CONTENT)


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture
def server():
    with mirror.Mirror(CONTENT) as one:
        yield one


@pytest.fixture
def target(tmp_path) -> Path:
    return tmp_path / "new" / "file.gz"


def _file(*urls: str) -> File:
    return File("new", "file.gz", SIZE, hashlib.sha256(CONTENT).hexdigest(), urls)


def _part(target: Path, content: bytes | None = None) -> Path:
    """Where the beginning of a file is kept; filled with `content` if that is given."""
    path = target.with_name(".file.gz.part")
    if content is not None:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
    return path


def _names(target: Path) -> list[str]:
    return sorted(path.name for path in target.parent.iterdir())


def _is_whole_and_alone(target: Path) -> bool:
    return _names(target) == [target.name] and target.read_bytes() == CONTENT


def test_a_file_is_downloaded_whole_and_progress_is_told(server, target):
    told = []
    download(_file(server.url("good")), target, lambda *news: told.append(news))
    assert _is_whole_and_alone(target)
    assert told[0] == ("file.gz", 0, SIZE)
    assert told[-1] == ("file.gz", SIZE, SIZE)
    assert all(earlier[1] < later[1] for earlier, later in pairwise(told))


def test_the_next_mirror_goes_on_where_one_broke_off(server, target):
    download(_file(server.url("truncated"), server.url("good")), target)
    assert _is_whole_and_alone(target)
    assert server.asked == [("truncated", None), ("good", f"bytes={SIZE // 2}-")]


def test_a_truncated_download_is_kept_for_the_next_call(server, target):
    with pytest.raises(DataUnavailable, match=f"ended after {SIZE // 2} of {SIZE} bytes"):
        download(_file(server.url("truncated")), target)
    assert _names(target) == [".file.gz.part"]
    assert _part(target).read_bytes() == CONTENT[: SIZE // 2]
    download(_file(server.url("good")), target)
    assert _is_whole_and_alone(target)
    assert server.asked[-1] == ("good", f"bytes={SIZE // 2}-")


@pytest.mark.parametrize("behaviour", ["without_ranges", "unlengthed", "shifted", "unsatisfiable"])
def test_servers_that_cannot_resume_are_asked_for_all(behaviour, server, target):
    _part(target, CONTENT[:1000])
    download(_file(server.url(behaviour)), target)
    assert _is_whole_and_alone(target)
    assert server.asked[0] == (behaviour, "bytes=1000-")


@pytest.mark.parametrize("length", [1000, SIZE, SIZE + 1])
def test_a_part_of_something_else_is_noticed_and_the_file_fetched_anew(length, server, target):
    _part(target, bytes(length))
    download(_file(server.url("good")), target)
    assert _is_whole_and_alone(target)
    assert server.asked[-1] == ("good", None)


def test_a_part_that_is_all_there_needs_no_server(target):
    _part(target, CONTENT)
    download(_file("http://127.0.0.1:1/"), target)
    assert _is_whole_and_alone(target)


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        ("wrong", f"gave a file with SHA-256 {hashlib.sha256(bytes(SIZE)).hexdigest()}; expected"),
        ("too_long", f"gave more than the {SIZE} bytes expected"),
        ("portal", f"offers 27 bytes; expected {SIZE}"),
        ("missing", "answered 404 Not Found"),
    ],
)
def test_what_is_not_the_file_is_not_kept(behaviour, reason, server, target):
    told = []
    with pytest.raises(DataUnavailable, match=reason):
        download(_file(server.url(behaviour)), target, lambda name, done, total: told.append(done))
    assert _names(target) == []
    assert max(told, default=0) <= SIZE
    download(_file(server.url(behaviour), server.url("good")), target)
    assert _is_whole_and_alone(target)


@pytest.mark.parametrize("behaviour", ["portal", "missing"])
def test_a_mirror_that_has_another_thing_to_say_costs_nothing_that_is_there(behaviour, server, target):
    _part(target, CONTENT[:1000])
    download(_file(server.url(behaviour), server.url("good")), target)
    assert server.asked[-1] == ("good", "bytes=1000-")
    assert _is_whole_and_alone(target)


def test_when_all_mirrors_fail_each_reason_is_listed_with_what_to_do(server, target, monkeypatch):
    monkeypatch.setattr("hypergossip.data.download.TIMEOUT", 0.3)
    with socket.socket() as unused:  # bound, but not listening
        unused.bind(("127.0.0.1", 0))
        dead = f"http://127.0.0.1:{unused.getsockname()[1]}/file"
        nowhere = "http://nowhere.invalid/file"
        file = _file(dead, nowhere, server.url("missing"), server.url("waiting"))
        with pytest.raises(DataUnavailable) as caught:
            download(file, target)
    _, *reasons, advice = str(caught.value).splitlines()
    for reason, url, why in zip(
        reasons, file.mirrors, ("Connection refused", "", "404", "no answer for 0.3 seconds"), strict=True
    ):
        assert reason.startswith(f"  {url}: ")
        assert why in reason
    for needed in (str(target.parent), str(SIZE), file.sha256, f"{SIZE // 2} bytes of it are kept"):
        assert needed in advice


def test_an_interruption_keeps_what_has_come(server, target):
    def interrupt(name, done, total):
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        download(_file(server.url("good")), target, interrupt)
    assert _names(target) == [".file.gz.part"]
    kept = _part(target).stat().st_size
    assert kept > 0
    download(_file(server.url("good")), target)
    assert _is_whole_and_alone(target)
    assert server.asked[-1] == ("good", f"bytes={kept}-")


PROGRAM = """
import sys
from pathlib import Path
from hypergossip.data.download import download
from hypergossip.data.sources import File
url, size, sha256, target = sys.argv[1:]
print("ready", flush=True)
download(File("new", "file.gz", int(size), sha256, (url,)), Path(target))
"""


def _process(url: str, target: Path) -> subprocess.Popen:
    file = _file(url)
    command = [sys.executable, "-c", PROGRAM, url, str(SIZE), file.sha256, str(target)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parent.parent)
    assert process.stdout.readline() == b"ready\n"
    return process


def test_a_killed_download_is_resumed(server, target):
    with _process(server.url("waiting"), target) as process:
        assert server.reached.wait(mirror.WAIT)
        _wait_until(lambda: _part(target).exists() and _part(target).stat().st_size == SIZE // 2)
        process.send_signal(signal.SIGKILL)
    assert not target.exists()
    download(_file(server.url("good")), target)
    assert _is_whole_and_alone(target)
    assert server.asked[-1] == ("good", f"bytes={SIZE // 2}-")


def test_of_two_processes_one_downloads_and_the_other_waits_for_it(server, target):
    first = _process(server.url("waiting"), target)
    assert server.reached.wait(mirror.WAIT)
    second = _process(server.url("good"), target)
    server.go_on.set()
    for process in (first, second):
        with process:
            assert process.wait(mirror.WAIT) == 0
    assert _is_whole_and_alone(target)
    assert server.asked == [("waiting", None)]


def test_a_lock_is_held_by_one_at_a_time_and_leaves_nothing(tmp_path):
    inside, most = [], []

    def work():
        for _ in range(50):
            with locked(tmp_path / "lock"):
                inside.append(1)
                most.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(mirror.WAIT)
    assert most == [1] * 200
    assert list(tmp_path.iterdir()) == []


def test_a_lock_file_that_its_holder_removed_meanwhile_is_not_taken_for_the_lock(tmp_path, monkeypatch):
    path, waits = tmp_path / "lock", []

    def wait(file):
        waits.append(file)
        if len(waits) == 1:  # the holder leaves
            path.unlink()

    monkeypatch.setattr("hypergossip.data.disk._wait_for", wait)
    with locked(path):
        assert path.exists()
    assert len(waits) == 2


def _wait_until(condition) -> None:
    clock = threading.Event()
    for _ in range(mirror.WAIT * 100):
        if condition():
            return
        clock.wait(0.01)
    raise AssertionError("waited in vain")


def test_a_folder_below_a_file_is_told(server, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataUnavailable, match="file is no folder, or something above it is none"):
        download(_file(server.url("good")), tmp_path / "file" / "file.gz")
    assert server.asked == []


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS])
def test_a_folder_that_cannot_be_written_is_told_before_anything_is_fetched(number, server, target, monkeypatch):
    def refuse(self, *_, **__):
        raise OSError(number, os.strerror(number), str(self))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(DataUnavailable, match=rf"new cannot be written to \({os.strerror(number)}\)") as caught:
        download(_file(server.url("good")), target)
    assert caught.value.errno == number
    assert server.asked == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, a file on a disk that is always full")
def test_a_full_disk_is_told_and_nothing_left(server, target, monkeypatch):
    part, opened = _part(target, CONTENT[:1000]), Path.open
    full = {part: Path("/dev/full")}
    monkeypatch.setattr(Path, "open", lambda path, mode: opened(full.get(path, path), mode))
    with pytest.raises(DataUnavailable, match=r"No space is left for .*Free some") as caught:
        download(_file(server.url("good"), server.url("good")), target)
    assert caught.value.errno == errno.ENOSPC
    assert _names(target) == []
    assert server.asked == [("good", "bytes=1000-")]


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 64 KiB, made read-only by the function given with it."""
    folder = tmp_path / "small"
    folder.mkdir()

    def mount(options):
        command = ["mount", "-t", "tmpfs", "-o", options, "none", str(folder)]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    if not (sys.platform == "linux" and os.getuid() == 0 and mount("size=64k")):
        pytest.skip("needs the right to mount a file system")
    yield folder, lambda: mount("remount,ro")
    subprocess.run(["umount", str(folder)], check=True)


def test_a_disk_that_fills_up_or_is_read_only_is_told_and_nothing_left(server, small_disk):
    folder, make_read_only = small_disk
    target = folder / "file.gz"
    with pytest.raises(DataUnavailable, match="No space is left"):
        download(_file(server.url("good")), target)
    assert _names(target) == []
    assert make_read_only()
    with pytest.raises(DataUnavailable, match="cannot be written to"):
        download(_file(server.url("good")), target)
    assert _names(target) == []


def test_nothing_is_shown_where_nobody_watches(server, target, capfd):
    download(_file(server.url("good")), target)
    assert capfd.readouterr() == ("", "")


def test_a_bar_is_shown_in_a_terminal(server, target, monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    download(_file(server.url("good")), target)
    out, err = capsys.readouterr()
    assert out == ""
    assert "file.gz" in err
    assert _is_whole_and_alone(target)
