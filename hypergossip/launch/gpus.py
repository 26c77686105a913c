"""Splits this host's NVIDIA GPUs evenly among local processes."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from importlib.metadata import entry_points
from pathlib import Path

from .options import Refusal

_VARIABLE = "CUDA_VISIBLE_DEVICES"


def split(n: int, environment: Mapping[str, str] = os.environ, devices: Path = Path("/dev")) -> list[dict[str, str]]:
    """What to add to the environment of each process so that it sees its own GPUs only."""
    gpus = _visible(environment, devices) if _jax_uses_them(environment) else []
    if len(gpus) % n:
        raise Refusal(
            f"{len(gpus)} GPUs cannot be split evenly among {n} processes: choose another -n, name the GPUs to use in "
            f"{_VARIABLE}, or compute on the CPU with --devices 1."
        )
    each = len(gpus) // n
    shares = [gpus[i * each : (i + 1) * each] for i in range(n)]
    return [{_VARIABLE: ",".join(share), **_loopback(environment)} if each else {} for share in shares]


def _loopback(environment: Mapping[str, str]) -> dict[str, str]:
    """Keeps the GPUs' own exchanges, which NCCL makes, to this host, unless the user has chosen."""
    return {} if "NCCL_SOCKET_IFNAME" in environment else {"NCCL_SOCKET_IFNAME": "lo"}


def _visible(environment: Mapping[str, str], devices: Path) -> list[str]:
    """Those that the user names, or else those for which there are device files."""
    if (named := environment.get(_VARIABLE)) is not None:
        return [gpu.strip() for gpu in named.split(",") if gpu.strip() and gpu.strip() != "-1"]
    found = [re.fullmatch(r"nvidia(\d+)", file.name) for file in devices.glob("nvidia*")]
    return [str(number) for number in sorted(int(match.group(1)) for match in found if match)]


def _jax_uses_them(environment: Mapping[str, str]) -> bool:
    """Whether JAX has its plugin for them, and has not been told to use something else."""
    platforms = environment.get("JAX_PLATFORMS", "")
    wanted = not platforms or "cuda" in platforms or "gpu" in platforms
    return wanted and any("cuda" in plugin.name for plugin in entry_points(group="jax_plugins"))
