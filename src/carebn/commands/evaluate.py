"""``carebn evaluate``."""

from dataclasses import dataclass
from pathlib import Path

import tyro

from carebn.limits import check_episodes
from carebn.training.environment import make_env
from carebn.training.evaluation import play
from carebn.training.policy import load


@dataclass(frozen=True)
class Config:
    """Play noise-free episodes with a trained policy."""

    run: tyro.conf.Positional[Path]
    """Run directory, or that of a converted policy."""
    episodes: int = 10
    """How many episodes."""
    seed: int = 1_000_000
    """Seed of the first episode; the others follow. The default is outside of what training uses."""


def run(config: Config) -> int:
    check_episodes(config.episodes, config.seed)
    policy = load(config.run)
    envs = [make_env(policy.config.env_id, policy.config.import_modules) for _ in range(config.episodes)]
    result = play(policy.predict, envs, range(config.seed, config.seed + len(envs)), policy.config.env_id)
    for i, (score, length) in enumerate(zip(result.returns, result.lengths, strict=True)):
        print(f"episode {i + 1}: return {score:.1f} in {length} steps")
    over = f" ± {result.std:.1f} over {config.episodes} episodes" if config.episodes > 1 else " over 1 episode"
    print(f"mean return {result.mean:.1f}{over}")
    return 0
