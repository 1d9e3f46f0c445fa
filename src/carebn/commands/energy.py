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
from carebn.measure.bill import PAPER_NJ, as_json
from carebn.measure.crossing import compare, too_small
from carebn.measure.energy import Count, counterpart
from carebn.measure.energy_report import figure, table, verdict
from carebn.measure.prices import PRICES, Words
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

NO_MEMORY = "--sram says nothing of an ordinary network: the list with memory compares a spiking policy with others"


@dataclass(frozen=True)
class Config(Consent):
    """What a decision of a trained policy costs: synaptic operations counted over whole episodes, and joules."""

    run: tyro.conf.Positional[Path]
    """Run directory, or a name of the zoo."""
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
    bits: int = 8
    """Of a weight, in the price list with memory traffic: of the spiking policy and of the quantised ANN beside it."""
    state_bits: int = 16
    """Of a membrane and of a sum, in that list. More: dearer membranes."""
    sram: float | None = None
    """KiB of the memory in that list. Larger: dearer to reach. Default: as small as holds the network, at least 8."""
    quiet: bool = False
    """No progress display."""


def run(config: Config) -> int:
    check_episodes(config.episodes, config.seed)
    if config.max_steps is not None and config.max_steps < 1:
        raise ValueError(f"--max-steps must be at least 1, got {config.max_steps}")
    words = Words(config.bits, config.state_bits)
    if config.sram is not None and not 0.01 <= config.sram <= 1e9:
        raise ValueError(f"--sram must be a size in KiB from 0.01 to 1e9, got {config.sram:g}")
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
        told: str | None = cut_short(
            result, env_id, "--max-steps", asked_to_cut(config.max_steps, policy.config.eval_max_steps)
        )
        errors.print(f"warning: {told}", highlight=False, soft_wrap=True)
    network = policy.network
    spiking = isinstance(network, (SpikingActor, SpikingQNetwork, Converted))
    if config.sram is not None:
        told = too_small(count, words, config.sram) if spiking else NO_MEMORY
        if told:
            errors.print(f"warning: {told}", highlight=False, soft_wrap=True)
    bill, ann = count.bill(), counterpart(network) if spiking else None
    compared = compare(count, words, config.sram) if spiking else None
    own, others = (PRICES, PRICES) if compared is None else (compared.spiking, compared.ann)
    data: dict[str, Any] = {
        "run": policy.title(),
        "policy": sha256(read_file(config.run / (BEST if config.which == "best" else POLICY))),  # what was counted
        "env_id": env_id,
        "episodes": config.episodes,
        "decisions": count.decisions,
        "mean_return": result.mean,
        "prices_pJ": {name: prices._asdict() for name, prices in own.items()},
        "network": as_json(bill, own),
    }
    if ann is not None and compared is not None:
        data["ann_counterpart"] = as_json(ann, others)
        data["ann_quantised"] = as_json(ann, compared.quantised) | {
            "weight_bits": compared.bits[0],
            "activation_bits": compared.bits[1],
        }
        data["prices_pJ_ann"] = {name: prices._asdict() for name, prices in others.items()}
        data["prices_pJ_ann_quantised"] = {name: prices._asdict() for name, prices in compared.quantised.items()}
        data["crossings"] = [row._asdict() | {"pays": row.pays} for row in compared.rows]
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
    print_table(console, table(title, bill, ann, env_id, compared))
    for line in [] if ann is None or compared is None else verdict(bill, ann, compared):
        console.print(line, soft_wrap=not console.is_terminal)
    picture = io.BytesIO()
    figure(title, bill, ann, env_id, compared).savefig(picture, dpi=150, format="png", metadata={"Software": None})
    name = "energy" if config.which == "last" else "energy-best"  # a study's table is about the last
    write_atomically(out / f"{name}.json", json_bytes(data))
    write_atomically(out / f"{name}.png", picture.getvalue())
    print(f"numbers: {out / name}.json\nfigure: {out / name}.png")
    return 0
