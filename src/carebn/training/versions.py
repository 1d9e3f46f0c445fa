"""What a run's exact numbers depend on besides its configuration."""

import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from carebn.checksums import read_json
from carebn.training.config import TrainConfig
from carebn.training.files import as_json, write_atomically

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


def compare_versions(directory: Path, config: TrainConfig, resumed: bool) -> list[str]:
    """Writes down what a run begins with; of one that is resumed, says the first thing that has changed since."""
    path, now = directory / "versions.json", fingerprint(config)
    if not (resumed and path.exists()):
        write_atomically(path, as_json(now))
        return []
    before = read_json(path)
    if not isinstance(before, dict):
        raise ValueError(f"{path} is damaged: it does not hold versions")
    changed = [name for name in now if now[name] != before.get(name)]
    return [f"{name} {before.get(name)} and goes on with {now[name]}" for name in changed[:1]]
