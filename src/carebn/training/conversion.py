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
from carebn.network.conversion import Conversion, convert
from carebn.network.converted import Converted
from carebn.reading import read_file
from carebn.training import seeds
from carebn.training.checkpoint import CheckpointStore, Damaged
from carebn.training.config import TrainConfig
from carebn.training.evaluation import play
from carebn.training.files import as_json, flush_directory, sha256, write_atomically
from carebn.training.methods import find_method
from carebn.training.policy import Policy, load, read_config, read_conversion
from carebn.training.policy_file import write_policy
from carebn.training.spaces_file import write_spaces
from carebn.training.worlds import MakeEnv, Trust


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
        hidden = directory.with_name(f".{directory.name}.part")
        shutil.rmtree(hidden, ignore_errors=True)
        place = directory if again else hidden
        place.mkdir(exist_ok=again)
        write_policy(place, policy.network.state_dict())
        if policy.own is not None:
            write_spaces(place, *policy.own)
        write_atomically(place / "config.json", config)
        if evaluation is not None:
            write_atomically(place / "evaluation.json", sealed(evaluation))
        names = [name for name in ("config.json", "evaluation.json") if (place / name).exists()]
        write_atomically(place / CHECKSUMS, vouching(place, names, {}))
        if again:
            return
        directory.rmdir()
        os.replace(hidden, directory)
        flush_directory(directory.parent)
    except OSError as error:
        raise OSError(f"cannot write to {directory} ({error.strerror}); choose another --out") from error


def own_directory(run_dir: Path, config: TrainConfig) -> Path | None:
    """Where a method that converts its ANN (ann-snn, crpi) leaves the converted policy; None for any other method."""
    options = config.conversion()
    return None if options is None else run_dir / directory_name(asdict(Conversion(**options).checked()))


def remove_own_conversion(run_dir: Path, config: TrainConfig) -> None:
    """Of a run that is not finished, or not finished any more, and what a crash has left of one."""
    directory = own_directory(run_dir, config)
    if directory is not None:
        for path in (directory, directory.with_name(f".{directory.name}.part")):
            shutil.rmtree(path, ignore_errors=True)


def finish_conversion(run_dir: Path, make: MakeEnv) -> Path | None:
    """The last act of a method that converts its ANN (ann-snn, crpi): the converted policy and its evaluation.

    It is played in what ``make`` gives with the seeds of the run's own evaluations; ``evaluation.json`` has the
    returns. None for any other method.
    """
    config = read_config(run_dir)
    options, directory = config.conversion(), own_directory(run_dir, config)
    if options is None or directory is None:
        return None
    policy, record = convert_run(run_dir, Conversion(**options))
    episodes = config.eval_episodes
    envs = [make() for _ in range(episodes)]
    result = play(
        policy.act,
        envs,
        [seeds.number(config.seed, seeds.EVALUATION, i) for i in range(episodes)],
        config.env_id,
        config.eval_max_steps,
    )
    for env in envs:
        env.close()
    there = directory / "config.json"
    if not there.is_file() or there.read_bytes() != converted_config(policy, record):
        remove_own_conversion(run_dir, config)  # what a crash has left, or a shorter run
    scores = {"mean_return": result.mean, "std_return": result.std, "returns": result.returns}
    save_converted(policy, record, directory, scores)
    return directory
