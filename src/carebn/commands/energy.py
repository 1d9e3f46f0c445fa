"""``carebn energy``."""

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from numpy.typing import NDArray
from rich.console import Console

from carebn.limits import check_episodes
from carebn.measure.energy import PAPER_NJ, PRICES, Count, as_json, counterpart
from carebn.measure.energy_report import figure, table, verdict
from carebn.measure.spikes import decide
from carebn.network import SpikingActor, SpikingQNetwork
from carebn.network.converted import Converted
from carebn.reading import read_file
from carebn.show.counter import Counter
from carebn.show.outputs import writable_directory
from carebn.show.terminal import print_table, terminal
from carebn.training.environment import make_env
from carebn.training.evaluation import play
from carebn.training.files import as_json as json_bytes
from carebn.training.files import sha256, write_atomically
from carebn.training.policy import load
from carebn.training.policy_file import NAME as POLICY
from carebn.training.progress_of import unfinished


@dataclass(frozen=True)
class Config:
    """What a decision of a trained policy costs: synaptic operations counted over whole episodes, and joules."""

    run: tyro.conf.Positional[Path]
    """Run directory."""
    out: Path | None = None
    """Directory for energy.json and energy.png. Default: the run directory."""
    episodes: int = 3
    """Noise-free episodes to count over. More: a better mean."""
    seed: int = 1_000_000
    """Seed of the first episode; the others follow. The default is outside of what training uses."""
    quiet: bool = False
    """No progress display."""


def run(config: Config) -> int:
    check_episodes(config.episodes, config.seed)
    policy = load(config.run)
    out = writable_directory(config.out if config.out is not None else config.run)
    console, errors = terminal(), Console(stderr=True)
    warning = unfinished(config.run, policy.config)
    if warning:
        errors.print(f"warning: {warning}", highlight=False, soft_wrap=True)
    count = Count(policy.network)
    envs = [make_env(policy.config.env_id, policy.config.import_modules) for _ in range(config.episodes)]
    with Counter("decisions", None, config.quiet) as counter:

        def act(observations: NDArray[Any], state: NDArray[Any] | None) -> tuple[NDArray[Any], NDArray[Any] | None]:
            decision = decide(policy, observations, state)
            count.add(decision)
            counter.advance(len(observations))
            return decision.action, decision.state

        result = play(act, envs, range(config.seed, config.seed + len(envs)), policy.config.env_id)
    for env in envs:
        env.close()
    env_id = policy.config.env_id
    network = policy.network
    spiking = isinstance(network, (SpikingActor, SpikingQNetwork, Converted))
    bill, ann = count.bill(), counterpart(network) if spiking else None
    data: dict[str, Any] = {
        "run": policy.title(),
        "policy": sha256(read_file(config.run / POLICY)),  # what was counted
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
    write_atomically(out / "energy.json", json_bytes(data))
    write_atomically(out / "energy.png", picture.getvalue())
    print(f"figures: {out / 'energy.json'}\nplot: {out / 'energy.png'}")
    return 0
