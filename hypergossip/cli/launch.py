"""`hypergossip launch`: a script on several processes, on this host or on many."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

from .terminal import end


def launch(
    script: Path,
    arguments: tuple[str, ...] = (),
    /,
    n: int | None = None,
    coordinator: str | None = None,
    process_id: int | None = None,
    processes: int | None = None,
    listen: str | None = None,
    devices: int | None = None,
    logs: Path | None = None,
    restarts: int = 0,
    timeout: int = 60,
    wait: int = 300,
) -> None:
    """A script on several processes, which are watched over and, after a fault, started again.

    With -n all of them are on this host and hear one another only. With --coordinator, --process-id
    and --processes this is one process of several hosts; the command is given on each of them.
    Without either, Slurm, Open MPI or Kubernetes say who is who. Options stand before the script's
    name; what stands after it is the script's own.

    Args:
        script: The Python script.
        arguments: Its arguments.
        n: How many processes on this host.
        coordinator: HOST:PORT at which process 0 is reached; the same on all hosts.
        process_id: Which process this one is, counted from 0.
        processes: How many processes there are on all hosts.
        listen: The IP address of this host to listen on, and on no other; else the one that faces the coordinator.
        devices: Compute on so many virtual CPU devices per process.
        logs: A folder for what each process prints, in a file each, instead of the terminal.
        restarts: How often to start again after a fault, from the last complete checkpoint.
        timeout: Seconds of silence after which a process counts as lost.
        wait: Seconds to wait for the other processes, at the start and after a fault.
    """
    options = {name: value for name, value in locals().items() if name in inspect.signature(launch).parameters}
    from ..launch.launcher import launch as start
    from ..launch.options import Options, Refusal

    try:
        status = start(Options(**options))
    except Refusal as refusal:
        end(2, str(refusal))
    raise SystemExit(status)


def command() -> Callable[..., None]:
    """`launch` with names for its words in the help text, and with -n; tyro is not there when this file is loaded."""
    from tyro.conf import arg

    names = {"script": arg(metavar="SCRIPT"), "arguments": arg(metavar="ARGUMENTS"), "n": arg(aliases=("-n",))}
    types = {"script": Path, "arguments": tuple[str, ...], "n": int | None}
    launch.__annotations__ |= {name: Annotated[types[name], names[name]] for name in names}
    return launch


def set_apart(words: Sequence[str]) -> list[str]:
    """Puts -- before the script's name, behind which nothing is an option; every option of `launch` takes a value."""
    place, names = 0, inspect.signature(launch).parameters
    while place < len(words) and words[place].startswith("-") and words[place] != "--":
        word = words[place]
        if word.startswith("--") and word != "--help" and word[2:].partition("=")[0].replace("-", "_") not in names:
            known = ", ".join(f"--{name.replace('_', '-')}" for name in list(names)[2:])
            end(2, f"Unknown option {word}; expected one of {known} before the script's name.")
        holds_its_value = "=" in word or word in ("-h", "--help") or (word[1] != "-" and len(word) > 2)
        place += 1 if holds_its_value else 2
    if place >= len(words) or words[place] == "--":
        return list(words)
    return [*words[:place], "--", *words[place:]]
