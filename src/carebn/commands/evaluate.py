"""``carebn evaluate``."""

from dataclasses import dataclass
from pathlib import Path

import tyro

from carebn.commands.consent import Consent
from carebn.training.policy import Which, load


@dataclass(frozen=True)
class Config(Consent):
    """Play noise-free episodes with a trained policy."""

    run: tyro.conf.Positional[Path]
    """Run directory, or that of a converted policy."""
    which: Which = "last"
    """Its policy after the last step, or that of the best evaluation on the way."""
    episodes: int = 10
    """How many episodes."""
    seed: int = 1_000_000
    """Seed of the first episode; the others follow. The default is outside of what training uses."""


def run(config: Config) -> int:
    if config.episodes < 1:
        raise ValueError(f"--episodes must be at least 1, got {config.episodes}")
    if config.seed < 0:
        raise ValueError(f"--seed must not be negative, got {config.seed}")
    result = load(config.run, config.which, trust=config.word).evaluate(config.episodes, config.seed)
    for i, (score, length) in enumerate(zip(result.returns, result.lengths, strict=True)):
        print(f"episode {i + 1}: return {score:.1f} in {length} steps")
    over = f" ± {result.std:.1f} over {config.episodes} episodes" if config.episodes > 1 else " over 1 episode"
    print(f"mean return {result.mean:.1f}{over}")
    return 0
