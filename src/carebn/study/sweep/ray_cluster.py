"""Runs on a Ray cluster: one that exists, or one that is started on this machine for the sweep."""

import os
import socket
from contextlib import suppress
from typing import Any

from carebn.machine import cores
from carebn.study.sweep.place import UNLIMITED, Place
from carebn.study.sweep.scratch import Scratch
from carebn.study.worker import Order, Outcome, train_cell

NODE = "ray.io/node-id"  # Ray's own label of a node


class RayExecutor:
    """A task per run. Nodes need this package and see the same run directory, as on one machine or a shared disk."""

    def __init__(self, place: Place) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported to anybody
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # graphics cards stay visible, no warning
        os.environ.setdefault("RAY_worker_niceness", "0")  # 15 by default: on a busy machine, hardly any time at all
        try:
            import ray
        except ImportError:
            raise ValueError("--on ray needs Ray: pip install ray") from None
        self._ray: Any = ray
        self.slots = place.workers or UNLIMITED
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
        if place.address is None:
            options |= {"address": "local", "num_cpus": place.workers or cores(), "include_dashboard": False}
        else:
            _check_address(place.address)
            options["address"] = place.address
        try:
            ray.init(**options)
        except Exception as error:  # Ray's own many kinds
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise ValueError(_no_ray(place.address, reason)) from error
        # One process per task, never a used one; retrying is the sweep's, which knows what a run has achieved.
        self._task = ray.remote(num_cpus=1, max_retries=0, max_calls=1)(_train_on_node)
        self._handles: list[Any] = []
        self._blind: set[str] = set()  # nodes that do not see the runs
        self._scratch = Scratch(place.runs)

    def submit(self, order: Order) -> Any:
        options: dict[str, Any] = {"num_cpus": int(order.config.get("threads", 1))}
        if self._blind:
            options["label_selector"] = {NODE: f"!in({','.join(sorted(self._blind))})"}
        handle = self._task.options(**options).remote(order._replace(witness=str(self._scratch.path)))
        self._handles.append(handle)
        return handle

    def outcome(self, handle: Any) -> Outcome | None:
        ready, _ = self._ray.wait([handle], timeout=0)
        if not ready:
            return None
        try:
            outcome, node = self._ray.get(handle)
        except (self._ray.exceptions.TaskCancelledError, KeyboardInterrupt):
            return Outcome("interrupted")
        except self._ray.exceptions.RayTaskError as error:
            return Outcome("failed", str(error.cause).splitlines()[0] if str(error.cause) else repr(error.cause))
        except self._ray.exceptions.RayError as error:  # a worker or a node is gone
            return Outcome("died", f"Ray: {type(error).__name__}")
        if outcome.state == "unseen":
            self._blind.add(node)
            if self._nodes() <= self._blind:
                return Outcome("failed", f"{outcome.message}; no other node is there")
        return Outcome(*outcome)

    def _nodes(self) -> set[str]:
        """Those that take runs; the head of a cluster may be there for administration alone."""
        return {node["NodeID"] for node in self._ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) >= 1}

    def stop(self) -> None:
        for handle in self._handles:
            with suppress(Exception):
                self._ray.cancel(handle)

    def close(self) -> None:
        self._ray.shutdown()
        self._scratch.remove()


def _train_on_node(order: Order) -> tuple[Outcome, str]:
    """Also says which node it was."""
    import ray

    return train_cell(order), ray.get_runtime_context().get_node_id()


def _check_address(address: str) -> None:
    """Ray itself waits long for a host that does not answer, and then says much."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        if address in ("auto", "local"):
            return
        raise ValueError(f"--address {address!r} is not HOST:PORT, ray://HOST:PORT or auto")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
    except (OSError, OverflowError) as error:
        raise ValueError(_no_ray(address, str(error))) from error


def _no_ray(address: str | None, reason: str) -> str:
    if address is None:
        return f"Ray could not be started on this machine: {reason}"
    return (
        f"no Ray cluster answers at {address} ({reason}); start one with 'ray start --head', or leave out --address to "
        f"use this machine"
    )
