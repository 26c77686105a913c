"""The launcher's parts, without processes: what it refuses, and what it makes of the ways in which processes end."""

import errno
import inspect
import signal
import socket
import sys
from pathlib import Path
from types import SimpleNamespace

import jax
import pytest

from hypergossip import cli
from hypergossip.cli.launch import set_apart
from hypergossip.launch import gpus
from hypergossip.launch.life import Life
from hypergossip.launch.options import Refusal
from hypergossip.launch.roster import Roster
from hypergossip.launch.verdict import judge
from hypergossip.processes import Place, addresses, faults, runtime

SCRIPT = Path(__file__).parent / "scripts" / "ring.py"


def taken_port():
    """A port on which something listens, and what keeps it."""
    keeper = socket.create_server(("127.0.0.1", 0))
    return keeper.getsockname()[1], keeper


HOSTS = "--coordinator 127.0.0.1:7077 --processes 2"
REFUSED = {
    "-n 2 missing.py": "missing.py does not exist; expected a Python script.",
    "-n 2 .": ". is a folder; expected a Python script.",
    "-n 0 SCRIPT": "-n 0: expected at least 1.",
    "-n 2 --restarts -1 SCRIPT": "--restarts -1: expected 0 or more.",
    "-n 2 --timeout 0 SCRIPT": "--timeout 0: expected at least 1.",
    "-n 2 --devices 0 SCRIPT": "--devices 0: expected at least 1.",
    "-n 2 --coordinator a:1 SCRIPT": "-n 2 was given together with --coordinator",
    "-n 2 --listen 127.0.0.1 SCRIPT": "-n 2 was given together with --listen",
    "--processes 2 SCRIPT": "--processes was given without --coordinator",
    f"{HOSTS} SCRIPT": "was given without --process-id",
    f"{HOSTS} --process-id 2 SCRIPT": "--process-id 2: expected 0 to 1",
    "--coordinator host --processes 2 --process-id 1 SCRIPT": "--coordinator host has no port; expected HOST:PORT",
    "--coordinator host:x --processes 2 --process-id 1 SCRIPT": "--coordinator host:x has the port 'x'",
    "--coordinator ::1 --processes 2 --process-id 1 SCRIPT": "expected an IPv6 address in brackets",
    "--coordinator 192.0.2.1:7077 --processes 2 --process-id 0 SCRIPT": "192.0.2.1 is no address of this host",
    f"{HOSTS} --process-id 1 --listen 192.0.2.1 SCRIPT": "--listen 192.0.2.1 is no address of this host",
    f"{HOSTS} --process-id 1 --listen here SCRIPT": "--listen here: expected an IP address",
    f"{HOSTS} --process-id 1 --listen 0.0.0.0 SCRIPT": "--listen 0.0.0.0 means every address",
    "-n 2 --logs SCRIPT SCRIPT": "is a file; expected a folder",
    "-n 2 --logs /proc/logs SCRIPT": "--logs /proc/logs cannot be written to",
    "SCRIPT": "How many processes there are was not said before the script's name, and none of Slurm, Open MPI and",
}


def refusal(line, monkeypatch, capsys):
    words = [str(SCRIPT) if word == "SCRIPT" else word for word in line.split()]
    monkeypatch.setattr(sys, "argv", ["hypergossip", "launch", *words])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize("line", REFUSED)
def test_what_cannot_be_done_is_refused_in_a_sentence(line, monkeypatch, capsys):
    told = refusal(line, monkeypatch, capsys)
    assert REFUSED[line] in told
    assert len(told.splitlines()) == 1


def test_a_port_in_use_is_refused(monkeypatch, capsys):
    port, keeper = taken_port()
    with keeper:
        line = f"--coordinator 127.0.0.1:{port} --processes 2 --process-id 0 SCRIPT"
        assert f"port {port} of 127.0.0.1 is in use" in refusal(line, monkeypatch, capsys)


def test_a_name_that_leads_other_hosts_to_themselves_is_refused(monkeypatch, capsys):
    monkeypatch.setattr(addresses, "numeric", lambda _: "127.0.1.1")  # as in the hosts file of Debian
    line = "--coordinator here:7077 --processes 2 --process-id 0 SCRIPT"
    assert "the name means 127.0.1.1, which no other host reaches" in refusal(line, monkeypatch, capsys)


def test_what_stands_after_the_script_is_the_scripts():
    for given, expected in {
        "-n 4 s.py -n 7 --logs x": "-n 4 -- s.py -n 7 --logs x",
        "-n4 --wait=3 s.py": "-n4 --wait=3 -- s.py",
        "-n 4 -- s.py -- x": "-n 4 -- s.py -- x",
    }.items():
        assert set_apart(given.split()) == expected.split()
    assert set_apart(["--help"]) == ["--help"]
    assert set_apart(["-n", "4"]) == ["-n", "4"]
    for option in inspect.signature(cli.launch).parameters.values():  # on which this rests
        assert option.annotation not in ("bool", bool)


def test_gpus_are_split_evenly(tmp_path, monkeypatch):
    monkeypatch.setattr(gpus, "entry_points", lambda group: [SimpleNamespace(name="xla_cuda12")])
    for name in ("nvidia0", "nvidia1", "nvidia2", "nvidia10", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    name = "CUDA_VISIBLE_DEVICES"
    here = {"NCCL_SOCKET_IFNAME": "lo"}
    assert gpus.split(2, {}, tmp_path) == [{name: "0,1", **here}, {name: "2,10", **here}]
    chosen = {name: "7, 3", "NCCL_SOCKET_IFNAME": "eth0"}
    assert gpus.split(2, chosen, tmp_path) == [{name: "7"}, {name: "3"}]
    assert gpus.split(3, {name: ""}, tmp_path) == [{}, {}, {}]
    assert gpus.split(3, {"JAX_PLATFORMS": "cpu"}, tmp_path) == [{}, {}, {}]
    with pytest.raises(Refusal, match="4 GPUs cannot be split evenly among 3 processes"):
        gpus.split(3, {}, tmp_path)


def test_places_travel_in_the_environment():
    place = Place("[::1]:7", 3, 2, listen="::1", timeout=5, wait=6, devices=2)
    assert Place.inherited(place.environment()) == place
    assert Place.inherited({}) is None
    assert addresses.paste(*addresses.split("[::1]:7")) == "[::1]:7"
    assert addresses.split("host:65535") == ("host", 65535)


def test_open_mpis_word_on_who_is_who_is_heard(monkeypatch):
    assert runtime.detected_process() is None
    monkeypatch.setenv("OMPI_MCA_orte_hnp_uri", "1531576320.0;tcp://127.0.0.1:34911")
    for name, value in {"SIZE": "4", "RANK": "3", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(f"OMPI_COMM_WORLD_{name}", value)
    assert runtime.detected_process() == 3


GLOO = "UNKNOWN: Gloo collective permute failed: [external/gloo/gloo/transport/tcp/pair.cc:538] Read error "


def test_errors_are_losses_faults_or_the_programs_own():
    lost = jax.errors.JaxRuntimeError(f"{GLOO}[10.0.0.2]:27524: Connection reset by peer")
    outer = RuntimeError("the run ended")
    outer.__cause__ = lost
    assert faults.is_loss(lost)
    assert faults.is_loss(outer)
    assert not faults.is_loss(ValueError("wrong shape"))
    assert faults.is_fault(OSError(errno.ENOSPC, "No space left on device"))
    assert faults.is_fault(ConnectionResetError())
    assert not faults.is_fault(FileNotFoundError())
    assert not faults.is_fault(ValueError())


ABORT = (
    "F1119 23:52:07.775591    2797 client.h:80] Terminating process because the JAX distributed service detected fatal "
    "errors. This most likely indicates that another task died; see the other task logs for more details."
)
SILENT = f"""{ABORT} absl::Status: UNAVAILABLE: The following tasks are unhealthy (stopped sending heartbeats):
1
2
The tasks have crashed. Check the task logs for an earlier error.
"""
NO_COORDINATOR = f"""{ABORT} absl::Status: DEADLINE_EXCEEDED: Deadline Exceeded

RPC: /xla.coordination.CoordinationService/Heartbeat
"""


def life(number, status, joined=True, **more):
    """A process that has ended."""
    return Life(number, status=status, joined=joined, **more)


@pytest.fixture
def roster():
    known = Roster()
    known.learn({"process": p, "host": "abc"[p], "address": f"10.0.0.{p}"} for p in range(3))
    known.learn([{"process": p, "agents": [5 * p, 5 * p + 5]} for p in range(2)] + [{"process": 2, "agents": [10, 11]}])
    return known


ONE, TWO = "rocess 1 (host b, agents 5 to 9)", "rocess 2 (host c, agent 10)"
SIGABRT = -signal.SIGABRT


def told(roster, *processes):
    verdict = judge(processes, roster, 10, 300)
    return verdict.kind, verdict.sentence


def test_a_cause_among_consequences_is_found(roster):
    lost = life(0, 76, lost="x")
    killed = life(1, -9)
    assert told(roster, lost, killed) == ("fault", f"P{ONE} was killed by signal 9 (SIGKILL).")
    wrong = life(1, 1, error="ValueError: wrong")
    assert told(roster, lost, wrong) == ("own", f"P{ONE} ended with an error of the script's own (ValueError: wrong).")
    frozen = [life(p, -9, frozen=True) for p in (1, 2)]
    sentence = f"P{ONE} and p{TWO} have not answered for 10 seconds; they are ended."
    assert told(roster, lost, *frozen) == ("fault", sentence)


def test_a_local_process_that_is_frozen_in_another_way_is_who_is_left(roster):
    aborted, left = life(0, SIGABRT, held=NO_COORDINATOR), life(1, -9, ended_by_launcher=True)
    assert told(roster, aborted, left) == ("fault", f"P{ONE} has not answered for 10 seconds; it is ended.")


def test_another_hosts_process_is_named_by_what_the_runtime_tells(roster):
    silent = life(0, SIGABRT, held=SILENT)
    assert told(roster, silent)[1] == f"P{ONE} and p{TWO} have not answered for 10 seconds."
    alone = life(1, SIGABRT, held=NO_COORDINATOR)
    zero = "process 0 (host a, agents 0 to 4)"
    assert told(roster, alone)[1] == f"P{ONE} lost its connection to {zero}, the coordinator."
    broken = life(1, 76, lost=f"{GLOO}[10.0.0.2]:27524: Connection reset by peer")
    assert told(roster, broken)[1] == f"P{ONE} lost its connection to p{TWO}."
    unknown = life(1, 76, lost="something new")
    assert told(roster, unknown) == ("fault", f"P{ONE} lost its connection to another process.")


def test_a_process_without_a_meeting_is_no_fault(roster):
    assert told(roster, life(1, 69, joined=False, error="nobody answers")) == (
        "apart",
        "nobody answers",
    )
