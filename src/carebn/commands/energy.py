"""``carebn energy``."""

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from numpy.typing import NDArray
from rich.console import Console

from carebn.commands.consent import Consent
from carebn.conversion import Converted
from carebn.limits import check_episodes
from carebn.measure.energy import PAPER_NJ, PRICES, Count, as_json, counterpart
from carebn.measure.energy_report import figure, table, verdict
from carebn.measure.spikes import decide
from carebn.network import SpikingActor, SpikingQNetwork
from carebn.reading import read_file
from carebn.show.counter import Counter
from carebn.show.outputs import writable_directory
from carebn.show.terminal import print_table, terminal
from carebn.training.best import POLICY as BEST
from carebn.training.checkpoint import unfinished
from carebn.training.evaluation import asked_to_cut, cut_short, play
from carebn.training.files import as_json as json_bytes
from carebn.training.files import sha256, write_atomically
from carebn.training.policy import Which, load
from carebn.training.policy_file import NAME as POLICY


@dataclass(frozen=True)
class Config(Consent):
    """What a decision of a trained policy costs: synaptic operations counted over whole episodes, and joules."""

    run: tyro.conf.Positional[Path]
    """Run directory."""
    which: Which = "last"
    """Its policy after the last step, or that of the best evaluation on the way."""
    out: Path | None = None
    """Directory for energy.json and energy.png (of --which best: energy-best). Default: the run directory."""
    episodes: int = 3
    """Noise-free episodes to count over. More: a better mean."""
    seed: int = 1_000_000
    """Seed of the first episode; the others follow. The default is outside of what training uses."""
    max_steps: int | None = None
    """Longest episode. Default: as the run was evaluated (--eval-max-steps), else the environment's own
    max_episode_steps; where it has none, 108_000."""
    quiet: bool = False
    """No progress display."""


def run(config: Config) -> int:
    check_episodes(config.episodes, config.seed)
    if config.max_steps is not None and config.max_steps < 1:
        raise ValueError(f"--max-steps must be at least 1, got {config.max_steps}")
    policy = load(config.run, config.which, trust=config.word)
    max_steps = config.max_steps or policy.config.eval_max_steps
    out = writable_directory(config.out if config.out is not None else config.run)
    console, errors = terminal(), Console(stderr=True)
    warning = unfinished(config.run, policy.config)
    if warning:
        errors.print(f"warning: {warning}", highlight=False, soft_wrap=True)
    count = Count(policy.network)
    envs = [policy.make_env() for _ in range(config.episodes)]
    with Counter("decisions", None, config.quiet) as counter:

        def act(observations: NDArray[Any], state: NDArray[Any] | None) -> tuple[NDArray[Any], NDArray[Any] | None]:
            decision = decide(policy, observations, state)
            count.add(decision)
            counter.advance(len(observations))
            return decision.action, decision.state

        result = play(act, envs, range(config.seed, config.seed + len(envs)), policy.config.env_id, max_steps)
    for env in envs:
        env.close()
    env_id = policy.config.env_id
    if result.cut:
        told = cut_short(result, env_id, "--max-steps", asked_to_cut(config.max_steps, policy.config.eval_max_steps))
        errors.print(f"warning: {told}", highlight=False, soft_wrap=True)
    network = policy.network
    spiking = isinstance(network, (SpikingActor, SpikingQNetwork, Converted))
    bill, ann = count.bill(), counterpart(network) if spiking else None
    data: dict[str, Any] = {
        "run": policy.title(),
        "policy": sha256(read_file(config.run / (BEST if config.which == "best" else POLICY))),  # what was counted
        "env_id": env_id,
        "episodes": config.episodes,
        "decisions": count.decisions,
        "mean_return": result.mean,
        "prices_pJ": {name: prices._asdict() for name, prices in PRICES.items()},
        "network": as_json(bill),
    }
    if ann is not None:
        data["ann_counterpart"] = as_json(ann)
        source = network.simulation if isinstance(network, Converted) else policy.config
        data["time_steps"] = source.time_steps
    if env_id in PAPER_NJ:
        data["paper_nanojoule"] = dict(zip(("ann", "snn_care_bn"), PAPER_NJ[env_id], strict=True))
    if warning:
        data["warning"] = warning
    episodes = "1 episode" if config.episodes == 1 else f"{config.episodes} episodes"
    title = (
        f"{policy.title()}\nmean of {count.decisions:,} decisions in {episodes} (return {np.mean(result.returns):.1f})"
    )
    print_table(console, table(title, bill, ann, env_id))
    for line in [] if ann is None else verdict(bill, ann):
        console.print(line, soft_wrap=not console.is_terminal)
    picture = io.BytesIO()
    figure(title, bill, ann, env_id).savefig(picture, dpi=150, format="png", metadata={"Software": None})
    name = "energy" if config.which == "last" else "energy-best"  # a study's table is about the last
    write_atomically(out / f"{name}.json", json_bytes(data))
    write_atomically(out / f"{name}.png", picture.getvalue())
    print(f"numbers: {out / name}.json\nfigure: {out / name}.png")
    return 0
