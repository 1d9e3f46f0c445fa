"""``carebn spikes``."""

import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tyro
from rich.console import Console

from carebn.commands.consent import Consent
from carebn.limits import check_episodes
from carebn.measure.spikes import decide
from carebn.show.outputs import writable_file
from carebn.show.raster import DPI, figure
from carebn.show.screen import Controls, unit_of
from carebn.training.checkpoint import unfinished
from carebn.training.environment import check_step, reset, spaces_of, step
from carebn.training.files import write_atomically
from carebn.training.policy import Which, load


@dataclass(frozen=True)
class Config(Consent):
    """Draw one decision of a policy: observation, the spikes of every layer at every step, action."""

    run: tyro.conf.Positional[Path]
    """Run directory, or a name of the zoo."""
    which: Which = "last"
    """Its policy after the last step, or that of the best evaluation on the way."""
    out: Path = Path("raster.png")
    """The picture, .png."""
    decision: int = 1
    """Which decision of the episode; the first is 1."""
    seed: int = 1_000_000
    """Seed of the episode. The default is outside of what training uses."""


def run(config: Config) -> int:
    if config.decision < 1:
        raise ValueError(f"--decision must be at least 1, got {config.decision}")
    check_episodes(1, config.seed)
    if config.out.suffix.lower() != ".png":
        raise ValueError(f"a raster is a .png picture, so --out {config.out} needs that ending")
    policy = load(config.run, config.which, trust=config.word)
    writable_file(config.out)
    warning = unfinished(config.run, policy.config)
    if warning:
        Console(stderr=True).print(f"warning: {warning}", highlight=False, soft_wrap=True)
    env_id = policy.config.env_id
    env = policy.make_env()
    spaces = spaces_of(env, env_id)
    obs = reset(env, env_id, config.seed)
    check_step(env_id, obs, 0.0)
    decision = decide(policy, obs[None])
    for made in range(1, config.decision):
        obs, reward, terminated, truncated = step(env, env_id, decision.action[0])
        check_step(env_id, obs, reward)
        if terminated or truncated:
            raise ValueError(f"the episode is over after {made} decisions; choose a --decision up to {made}")
        decision = decide(policy, obs[None], decision.state)
    controls = Controls.of(env, spaces)
    title = f"{policy.title()}: decision {config.decision} of the episode with seed {config.seed}"
    picture = io.BytesIO()
    figure(title, np.asarray(obs, np.float32), decision, controls).savefig(
        picture, dpi=DPI, format="png", metadata={"Software": None}
    )
    write_atomically(config.out, picture.getvalue())
    for population in decision.populations:
        number, steps = population.values.shape[2], population.values.shape[0] * population.counted
        what = f"neurons, {steps} steps" if population.spiking else unit_of(population.name, population.spiking)
        kind = "firing" if population.spiking else "active (not spikes)"
        print(f"{population.name}: {number} {what}, {population.rate:.1%} {kind}")
    print(f"raster: {config.out}")
    return 0
