"""What a run's exact numbers depend on besides its configuration."""

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

from carebn.training.config import TrainConfig

PACKAGES = ("carebn", "torch", "numpy", "numba", "gymnasium", "mujoco", "ale-py")


def fingerprint(config: TrainConfig) -> dict[str, Any]:
    found = {"python": platform.python_version(), "machine": platform.machine()}
    found["cpu capability"] = torch.backends.cpu.get_cpu_capability()
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found
