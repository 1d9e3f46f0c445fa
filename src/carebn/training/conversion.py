"""The last act of a method that converts its ANN (ann-snn, crpi): the converted policy, inside the run's directory."""

import shutil
from dataclasses import asdict
from pathlib import Path

from carebn.conversion import Conversion
from carebn.training import seeds
from carebn.training.config import TrainConfig
from carebn.training.converted_run import convert_run, converted_config, directory_name, incomplete, save_converted
from carebn.training.evaluation import play
from carebn.training.policy import read_config
from carebn.training.worlds import MakeEnv


def own_directory(run_dir: Path, config: TrainConfig) -> Path | None:
    """Where a method that converts its ANN (ann-snn, crpi) leaves the converted policy; None for any other method."""
    options = config.conversion()
    return None if options is None else run_dir / directory_name(asdict(Conversion(**options).checked()))


def remove_own_conversion(run_dir: Path, config: TrainConfig) -> None:
    """Of a run that is not finished, or not finished any more, and what a crash has left of one."""
    directory = own_directory(run_dir, config)
    if directory is not None:
        for path in (directory, incomplete(directory)):
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
