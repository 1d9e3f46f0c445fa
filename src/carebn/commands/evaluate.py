"""``carebn evaluate``."""

import sys
from dataclasses import dataclass
from pathlib import Path

import tyro

from carebn.commands.consent import Consent
from carebn.limits import check_episodes
from carebn.training.checkpoint import unfinished
from carebn.training.evaluation import asked_to_cut, cut_short
from carebn.training.policy import Which, load


@dataclass(frozen=True)
class Config(Consent):
    """Play noise-free episodes with a trained policy."""

    run: tyro.conf.Positional[Path]
    """Run directory, or that of a converted policy, or a name of the zoo."""
    which: Which = "last"
    """Its policy after the last step, or that of the best evaluation on the way."""
    episodes: int = 10
    """How many episodes."""
    seed: int = 1_000_000
    """Seed of the first episode; the others follow. The default is outside of what training uses."""
    max_steps: int | None = None
    """Longest episode. Default: as the run was evaluated (--eval-max-steps), else the environment's own
    max_episode_steps; where it has none, 108_000."""


def run(config: Config) -> int:
    check_episodes(config.episodes, config.seed)
    if config.max_steps is not None and config.max_steps < 1:
        raise ValueError(f"--max-steps must be at least 1, got {config.max_steps}")
    policy = load(config.run, config.which, trust=config.word)
    warning = unfinished(config.run, policy.config)
    if warning:
        print(f"warning: {warning}", file=sys.stderr)
    env_id = policy.config.env_id
    result = policy.evaluate(config.episodes, config.seed, max_steps=config.max_steps)
    for i, (score, length) in enumerate(zip(result.returns, result.lengths, strict=True)):
        print(f"episode {i + 1}: return {score:.1f} in {length} steps")
    over = f" ± {result.std:.1f} over {config.episodes} episodes" if config.episodes > 1 else " over 1 episode"
    print(f"mean return {result.mean:.1f}{over}")
    if result.cut:
        asked_by = asked_to_cut(config.max_steps, policy.config.eval_max_steps)
        print(f"warning: {cut_short(result, env_id, '--max-steps', asked_by)}", file=sys.stderr)
    return 0
