"""A run converted to a spiking policy, in a directory that is opened like any other policy."""

import os
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
from numpy.typing import NDArray

from carebn.checksums import NAME as CHECKSUMS
from carebn.checksums import sealed, vouching
from carebn.conversion import Conversion, Converted, convert
from carebn.reading import read_file
from carebn.training.checkpoint import CheckpointStore, Damaged
from carebn.training.files import as_json, flush_directory, sha256, write_atomically
from carebn.training.methods import find_method
from carebn.training.policy import Policy, load, read_config, read_conversion
from carebn.training.policy_file import NAME as POLICY
from carebn.training.policy_file import policy_bytes
from carebn.training.spaces_file import write_spaces
from carebn.training.worlds import Trust


def replay_observations(run_dir: Path) -> NDArray[Any]:
    """All observations in the replay of a finished run."""
    config = read_config(run_dir).checked()
    problems: list[str] = []
    try:
        loaded = CheckpointStore(run_dir, config.checkpoint_interval).load_latest(problems.append)
    except Damaged:
        raise ValueError(f"{run_dir} cannot be converted: {problems[-1].partition(';')[0]}") from None
    if loaded is None:
        raise ValueError(
            f"{run_dir} cannot be converted: it has no checkpoint, and so no replay to set thresholds from"
        )
    if problems:
        raise ValueError(f"{run_dir} cannot be converted: {problems[0].partition(';')[0]}")
    if loaded.step < config.total_timesteps:
        raise ValueError(
            f"{run_dir} is unfinished, at step {loaded.step:,} of {config.total_timesteps:,}; the command in its "
            f"command.txt with --run-dir {run_dir} resumes it"
        )
    if loaded.snapshot.state.get("evaluation_due"):
        raise ValueError(
            f"{run_dir} is unfinished, with its last evaluation to be made; the command in its command.txt with "
            f"--run-dir {run_dir} resumes it"
        )
    observations = [rows["obs"] for _, rows in loaded.segments]
    if not sum(map(len, observations)):
        raise ValueError(f"{run_dir} cannot be converted: its replay is empty, and thresholds are set from it")
    return np.concatenate(observations)


def convert_run(run_dir: Path, conversion: Conversion, trust: Trust = False) -> tuple[Policy, dict[str, Any]]:
    """The converted policy of a finished run, and the record of how it came about."""
    conversion = conversion.checked()
    if read_conversion(run_dir, trust) is not None:
        raise ValueError(f"{run_dir} holds a converted policy already; convert the run that it came from")
    config = read_config(run_dir)
    if find_method(config.method).spiking:
        raise ValueError(
            f"{run_dir} was trained with --method {config.method}, which is spiking already; only an ordinary network "
            f"(ann, ann-care) can be converted"
        )
    policy = load(run_dir, trust=trust)
    observations = replay_observations(run_dir)
    network = convert(policy.network, observations, **asdict(conversion))
    record = asdict(conversion) | asdict(network.simulation) | {
        "observations": len(observations),
        "delay": float(network.delay),
        "source": sha256(safetensors.torch.save(policy.network.state_dict())),  # of what was converted
    }  # fmt: skip
    return Policy(network, config, policy.obs_dim, policy.obs_dtype, own=policy.own, trust=trust), record


def directory_name(record: dict[str, Any]) -> str:
    """Tells the main choices."""
    residual = "" if record["residual"] == "none" else f"-{record['residual']}{record['alpha']:g}"
    return f"converted-{record['rule']}-T{record['time_steps']}{residual}"


def incomplete(directory: Path) -> Path:
    """Where a converted policy is put together; what lies there was left by a crash."""
    return directory.with_name(f".{directory.name}.part")


def converted_config(policy: Policy, record: dict[str, Any]) -> bytes:
    return as_json(policy.config.as_json() | {"conversion": record})


def save_converted(
    policy: Policy, record: dict[str, Any], directory: Path, evaluation: dict[str, Any] | None = None
) -> None:
    """``config.json`` (of the training, with the record as ``conversion``) and ``policy.safetensors``; also
    ``evaluation.json`` if there is one. The directory is filled under a hidden name and renamed when complete."""
    assert isinstance(policy.network, Converted)
    config, config_file = converted_config(policy, record), directory / "config.json"
    try:
        if config_file.is_file() and read_file(config_file) != config:
            raise ValueError(f"{directory} holds something else already; choose another --out")
        if not config_file.is_file() and directory.is_dir() and any(directory.iterdir()):
            raise ValueError(f"{directory} is not empty and holds no converted policy; choose another --out")
        again = config_file.is_file()
        directory.mkdir(parents=True, exist_ok=True)
        hidden = incomplete(directory)
        shutil.rmtree(hidden, ignore_errors=True)
        place = directory if again else hidden
        place.mkdir(exist_ok=again)
        data = policy_bytes(policy.network.state_dict())
        write_atomically(place / POLICY, data)
        if policy.own is not None:
            write_spaces(place, *policy.own)
        write_atomically(place / "config.json", config)
        if evaluation is not None:
            write_atomically(place / "evaluation.json", sealed(evaluation))
        names = [name for name in ("config.json", "evaluation.json") if (place / name).exists()]
        write_atomically(place / CHECKSUMS, vouching(place, names, {}, [sha256(data)]))
        if again:
            return
        directory.rmdir()
        os.replace(hidden, directory)
        flush_directory(directory.parent)
    except OSError as error:
        raise OSError(f"cannot write to {directory} ({error.strerror}); choose another --out") from error
