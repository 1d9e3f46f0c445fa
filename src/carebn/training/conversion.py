"""A run converted to a spiking policy, in a directory that is opened like any other policy."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
from numpy.typing import NDArray

from carebn.network.conversion import Conversion, convert
from carebn.network.converted import Converted
from carebn.reading import read_file
from carebn.training import seeds
from carebn.training.checkpoint import CheckpointStore, Damaged
from carebn.training.environment import make_env
from carebn.training.evaluation import play
from carebn.training.files import as_json, sha256, write_atomically
from carebn.training.methods import find_method
from carebn.training.policy import Policy, load, read_config, read_conversion
from carebn.training.policy_file import write_policy


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
    observations = [rows["obs"] for _, rows in loaded.segments]
    if not sum(map(len, observations)):
        raise ValueError(f"{run_dir} cannot be converted: its replay is empty, and thresholds are set from it")
    return np.concatenate(observations)


def convert_run(run_dir: Path, conversion: Conversion) -> tuple[Policy, dict[str, Any]]:
    """The converted policy of a finished run, and the record of how it came about."""
    conversion = conversion.checked()
    if read_conversion(run_dir) is not None:
        raise ValueError(f"{run_dir} holds a converted policy already; convert the run that it came from")
    config = read_config(run_dir)
    if find_method(config.method).spiking:
        raise ValueError(
            f"{run_dir} was trained with --method {config.method}, which is spiking already; only an ordinary network "
            f"(ann, ann-care) can be converted"
        )
    policy = load(run_dir)
    observations = replay_observations(run_dir)
    network = convert(policy.network, observations, **asdict(conversion))
    record = asdict(conversion) | asdict(network.simulation) | {
        "observations": len(observations),
        "delay": float(network.delay),
        "source": sha256(safetensors.torch.save(policy.network.state_dict())),  # of what was converted
    }  # fmt: skip
    return Policy(network, config, policy.obs_dim, policy.obs_dtype), record


def directory_name(record: dict[str, Any]) -> str:
    """Tells the main choices."""
    residual = "" if record["residual"] == "none" else f"-{record['residual']}{record['alpha']:g}"
    return f"converted-{record['rule']}-T{record['time_steps']}{residual}"


def save_converted(policy: Policy, record: dict[str, Any], directory: Path) -> None:
    """``config.json`` (of the training, with the record as ``conversion``) and ``policy.safetensors``."""
    assert isinstance(policy.network, Converted)
    config = as_json(policy.config.as_json() | {"conversion": record})
    config_file = directory / "config.json"
    try:
        if config_file.is_file() and read_file(config_file) != config:
            raise ValueError(f"{directory} holds something else already; choose another --out")
        if not config_file.is_file() and directory.is_dir() and any(directory.iterdir()):
            raise ValueError(f"{directory} is not empty and holds no converted policy; choose another --out")
        directory.mkdir(parents=True, exist_ok=True)
        write_policy(directory, policy.network.state_dict())
        write_atomically(config_file, config)  # last: with it the directory becomes a policy
    except OSError as error:
        raise OSError(f"cannot write to {directory} ({error.strerror}); choose another --out") from error


def finish_conversion(run_dir: Path) -> Path | None:
    """The last act of a method that converts its ANN (ann-snn, crpi): the converted policy and its evaluation.

    It is played with the seeds of the run's own evaluations; ``evaluation.json`` has the returns. None for any other
    method.
    """
    config = read_config(run_dir)
    options = config.conversion()
    if options is None:
        return None
    policy, record = convert_run(run_dir, Conversion(**options))
    directory = run_dir / directory_name(record)
    save_converted(policy, record, directory)
    episodes = config.eval_episodes
    envs = [make_env(config.env_id, config.import_modules) for _ in range(episodes)]
    result = play(
        policy.predict, envs, [seeds.number(config.seed, seeds.EVALUATION, i) for i in range(episodes)], config.env_id
    )
    for env in envs:
        env.close()
    scores = {"mean_return": result.mean, "std_return": result.std, "returns": result.returns}
    write_atomically(directory / "evaluation.json", as_json(scores))
    return directory
