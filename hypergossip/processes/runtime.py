"""Joins JAX's distributed runtime. This is where its private parts are used, so that they are used in one place.

JAX tells a process that others are lost by its heartbeats, from a thread of its own in C++: a
process that computes, compiles or waits is alive, one that is stopped or gone is not. So nothing
here limits how long a computation or an exchange may take.
"""

from __future__ import annotations

import json
import os
import socket
import time
import warnings
from dataclasses import replace

import jax
from jax._src import clusters, distributed, xla_bridge
from jax._src.lib import _jax  # pyright: ignore[reportPrivateImportUsage]
from jax.extend.backend import register_backend_factory

from . import addresses
from .meeting import say_when_over
from .place import Place

_PATIENCE = 10**8
"""Seconds, about three years: where JAX wants a limit and the heartbeats are one already."""

_FLAGS = ("--xla_cpu_collective_timeout_seconds", "--xla_cpu_collective_call_terminate_timeout_seconds")

_KEY = "hypergossip/process"


def join(place: Place) -> list[dict]:
    """Joins the other processes, before JAX has computed anything: {"process", "host", "address"} of every one."""
    local_devices = None
    if place.coordinator is None:
        place, local_devices = _detected(place)
    assert place.coordinator is not None
    host, port = addresses.split(place.coordinator)
    if place.process != 0:
        place = _after_the_coordinator(place, host, port)
    listen = place.listen or (addresses.numeric(host) if place.process == 0 else addresses.facing(host, port))
    _configure(place, host)
    jax.distributed.initialize(
        place.coordinator,
        place.processes,
        place.process,
        local_device_ids=local_devices,
        cluster_detection_method="deactivate",  # done above, or not wanted
        coordinator_bind_address=addresses.paste(listen, port),
        heartbeat_timeout_seconds=place.timeout,
        initialization_timeout=place.wait,
        shutdown_timeout_seconds=_PATIENCE,  # one may be done long before another
    )
    _hold_gloo_to(listen)
    say_when_over()
    return _introduce(place, listen)


def detected_process() -> int | None:
    """This process's number according to Slurm, Open MPI or Kubernetes; None where none of them is seen."""
    with warnings.catch_warnings():
        warnings.simplefilter("default")  # JAX says what Kubernetes lacks to be seen
        return _detect(wait=1)[2] if _environment() else None


def _environment() -> object:
    kinds = clusters.ClusterEnv._cluster_types
    return next((kind for kind in kinds if not kind.opt_in_only_method and kind.is_env_present()), None)


def _detect(wait: int):
    return clusters.ClusterEnv.auto_detect_unset_distributed_params(None, None, None, None, None, wait)


def _detected(place: Place) -> tuple[Place, list[int] | None]:
    coordinator, processes, process, local_devices = _detect(place.wait)
    if coordinator is None or processes is None or process is None:
        raise RuntimeError("none of Slurm, Open MPI and Kubernetes was seen")
    if os.environ.get("JAX_LOCAL_DEVICE_IDS"):
        local_devices = None  # the user's own choice, which JAX reads itself
    found = replace(place, coordinator=coordinator, processes=processes, process=process)
    return found, None if local_devices is None else list(local_devices)


def _after_the_coordinator(place: Place, host: str, port: int) -> Place:
    """Waits until the coordinator is there; JAX would ask it ever more rarely, up to two minutes apart."""
    began = time.monotonic()
    if not addresses.answers(host, port, place.wait):
        raise TimeoutError(f"nobody answers at {place.coordinator}")
    return replace(place, wait=max(1, round(place.wait - (time.monotonic() - began))))


def _configure(place: Place, host: str) -> None:
    flags = os.environ.get("XLA_FLAGS", "")
    ours = [f"{flag}={_PATIENCE}" for flag in _FLAGS if flag not in flags]
    os.environ["XLA_FLAGS"] = " ".join([flags, *ours]).strip()
    os.environ["no_grpc_proxy"] = host  # noqa: SIM112  # a web proxy is no way there: joining would hang
    jax.config.update("jax_check_proxy_envs", False)  # JAX's warning about that
    # The preemption service would take SIGTERM, with which launchers and schedulers end a process.
    jax.config.update("jax_enable_preemption_service", False)
    if place.devices is not None:
        jax.config.update("jax_platforms", "cpu")
        jax.config.update("jax_num_cpu_devices", place.devices)


def _hold_gloo_to(address: str) -> None:
    """JAX's CPU exchanges listen on one address; by default they would choose by the host's name."""
    if getattr(jax.config, "jax_cpu_collectives_implementation", "gloo") != "gloo":
        return  # MPI has ways of its own

    def cpu():
        client = distributed.global_state.client
        return xla_bridge.make_cpu_client(collectives=_jax.make_gloo_tcp_collectives(client, hostname=address))

    register_backend_factory("cpu", cpu, priority=0, fail_quietly=False)


def _introduce(place: Place, address: str) -> list[dict]:
    client, processes = distributed.global_state.client, distributed.global_state.num_processes
    assert client is not None
    me = {"process": distributed.global_state.process_id, "host": socket.gethostname(), "address": address}
    client.key_value_set(f"{_KEY}/{me['process']}", json.dumps(me))
    return [
        json.loads(client.blocking_key_value_get(f"{_KEY}/{process}", place.wait * 1000))
        for process in range(processes)
    ]
