"""Two hosts, as two network namespaces that a virtual cable connects: a run across them, and a cable that is pulled."""

import os
import subprocess

import pytest
from launching import RING, Launched

COORDINATOR = "10.77.0.1:7077"
ADDRESSES = {"a": "10.77.0.1", "b": "10.77.0.2"}
NAMES = {host: f"hypergossip-{os.getpid()}-{host}" for host in ADDRESSES}
CABLES = {host: f"hg{os.getpid()}{host}" for host in ADDRESSES}


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True, timeout=20)


def connect():
    for name in NAMES.values():
        ip("netns", "add", name)
    ip("link", "add", CABLES["a"], "type", "veth", "peer", "name", CABLES["b"])
    for host, name in NAMES.items():
        ip("link", "set", CABLES[host], "netns", name)
        ip("-n", name, "address", "add", f"{ADDRESSES[host]}/24", "dev", CABLES[host])
        for link in ("lo", CABLES[host]):
            ip("-n", name, "link", "set", link, "up")


@pytest.fixture
def hosts():
    try:
        connect()
        subprocess.run(["unshare", "--uts", "hostname", "a"], check=True, capture_output=True, text=True)
        yield
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"network namespaces cannot be made here: {getattr(error, 'stderr', None) or error}")
    finally:
        for name in NAMES.values():
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)


def on(host, folder, process):
    """A launcher on a host, under that host's name."""
    named = ("unshare", "--uts", "sh", "-c", f'hostname {host}; exec "$@"', "sh")
    options = ("--coordinator", COORDINATOR, "--processes", 2, "--process-id", process)
    patience = ("--timeout", 4, "--wait", 50, "--restarts", 1)
    stop = folder / "stop"
    return Launched(folder, *options, *patience, RING, stop, before=("ip", "netns", "exec", NAMES[host], *named))


def listeners(host):
    command = ["ip", "netns", "exec", NAMES[host], "ss", "-Htln"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return {
        line.split()[3].rpartition(":")[0].removeprefix("[::ffff:").removesuffix("]") for line in listed.splitlines()
    }


@pytest.mark.usefixtures("hosts")
def test_a_run_across_hosts_outlives_a_pulled_cable(tmp_path):
    with on("a", tmp_path, 0) as a, on("b", tmp_path, 1) as b:
        for run in (a, b):
            run.wait_for("exchanged")
        assert {host: listeners(host) for host in ADDRESSES} == {host: {ADDRESSES[host]} for host in ADDRESSES}
        ip("-n", NAMES["a"], "link", "set", CABLES["a"], "down")
        for run in (a, b):
            run.wait_for("restart 1 of 1")
        ip("-n", NAMES["a"], "link", "set", CABLES["a"], "up")
        for run in (a, b):
            run.wait_for("exchanged", 2)
        (tmp_path / "stop").touch()
        assert (a.end(), b.end()) == (0, 0)
        assert "Process 1 (host b, agents 2 to 3) has not answered for 4 seconds.\n" in a.printed
        assert "Process 1 (host b, agents 2 to 3) lost its connection to process 0 (host a, agents 0 to 1)" in b.printed
