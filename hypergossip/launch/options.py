"""What can be asked of the launcher, and what of it cannot be done."""

from __future__ import annotations

import ipaddress
import tempfile
from dataclasses import dataclass
from pathlib import Path

from ..processes import addresses

LOOPBACK = "127.0.0.1"


class Refusal(ValueError):
    """What was asked cannot be done; the text says what was given, what was expected, and what to do."""


@dataclass(frozen=True)
class Options:
    """The options of `hypergossip launch`, where their meaning is told."""

    script: Path
    arguments: tuple[str, ...] = ()
    n: int | None = None
    coordinator: str | None = None
    process_id: int | None = None
    processes: int | None = None
    listen: str | None = None
    devices: int | None = None
    logs: Path | None = None
    restarts: int = 0
    timeout: int = 60
    wait: int = 300


def check(options: Options) -> None:
    """Refuses what can be known to fail before anything is started."""
    _check_script(options.script)
    _check_counts(options)
    if options.n is not None:
        _check_local(options)
    elif options.coordinator is not None:
        _check_hosts(options, options.coordinator)
    elif options.process_id is not None or options.processes is not None:
        given = "--process-id" if options.process_id is not None else "--processes"
        raise Refusal(f"{given} was given without --coordinator; expected all three, or -n for processes on this host.")
    if options.listen is not None:
        _check_listen(options.listen)
    if options.logs is not None:
        _check_logs(options.logs)


def _check_script(script: Path) -> None:
    if script.is_dir():
        raise Refusal(f"{script} is a folder; expected a Python script.")
    if not script.exists():
        raise Refusal(f"{script} does not exist; expected a Python script.")


def _check_counts(options: Options) -> None:
    least = {"-n": (options.n, 1), "--processes": (options.processes, 1), "--devices": (options.devices, 1)}
    least |= {"--restarts": (options.restarts, 0), "--timeout": (options.timeout, 1), "--wait": (options.wait, 1)}
    for name, (value, minimum) in least.items():
        if value is not None and value < minimum:
            raise Refusal(f"{name} {value}: expected {f'at least {minimum}' if minimum else '0 or more'}.")


def _check_local(options: Options) -> None:
    others = {
        "--coordinator": options.coordinator,
        "--process-id": options.process_id,
        "--processes": options.processes,
        "--listen": options.listen,
    }
    for name, value in others.items():
        if value is not None:
            raise Refusal(
                f"-n {options.n} was given together with {name}; expected -n alone, for processes on this host that "
                "hear one another only, or --coordinator, --process-id and --processes, for one process of several "
                "hosts."
            )


def _check_hosts(options: Options, coordinator: str) -> None:
    if options.process_id is None or options.processes is None:
        missing = "--process-id" if options.process_id is None else "--processes"
        raise Refusal(f"--coordinator {coordinator} was given without {missing}; expected all three on every host.")
    if not 0 <= options.process_id < options.processes:
        raise Refusal(f"--process-id {options.process_id}: expected 0 to {options.processes - 1} (--processes less 1).")
    try:
        host, port = addresses.split(coordinator)
    except ValueError as error:
        raise Refusal(f"--coordinator {error}") from None
    if options.process_id == 0:
        _check_own_coordinator(options, host, port)


def _check_own_coordinator(options: Options, host: str, port: int) -> None:
    """Process 0 runs the coordinator; the others connect to it."""
    try:
        address = addresses.numeric(host)
    except OSError as error:
        raise Refusal(f"--coordinator {host}: this name has no address here ({error.strerror}).") from None
    if options.listen is None:
        named_so = host == "localhost" or _is_address(host)
        if options.processes != 1 and ipaddress.ip_address(address).is_loopback and not named_so:
            raise Refusal(
                f"--coordinator {host}: on this host the name means {address}, which no other host reaches; give the "
                "address by which the others reach it, or add it as --listen."
            )
        if not addresses.is_here(address):
            raise Refusal(
                f"--coordinator {host}: {address} is no address of this host, on which process 0 runs the coordinator; "
                "start process 0 on that host, or say with --listen which address here leads to it."
            )
    elif not _is_address(options.listen) or not addresses.is_here(options.listen):
        return  # refused as such
    if not addresses.is_free(options.listen or address, port):
        raise Refusal(f"--coordinator: port {port} of {options.listen or address} is in use; choose another one.")


def _check_listen(listen: str) -> None:
    if not _is_address(listen):
        raise Refusal(f"--listen {listen}: expected an IP address of this host, such as 10.0.0.2.")
    if ipaddress.ip_address(listen).is_unspecified:
        raise Refusal(f"--listen {listen} means every address; expected one, which the other hosts reach.")
    if not addresses.is_here(listen):
        raise Refusal(f"--listen {listen} is no address of this host; `ip address` lists them.")


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _check_logs(logs: Path) -> None:
    if logs.exists() and not logs.is_dir():
        raise Refusal(f"--logs {logs} is a file; expected a folder, or a name for a new one.")
    try:
        logs.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=logs):
            pass
    except OSError as error:
        raise Refusal(f"--logs {logs} cannot be written to: {error.strerror}; expected a folder of yours.") from None
