"""``carebn export``."""

import sys
from dataclasses import dataclass
from pathlib import Path

import tyro

from carebn.deploy.export import FORMATS, export, observations
from carebn.errors import unknown_name
from carebn.limits import check_episodes, check_most
from carebn.training.policy import load
from carebn.training.progress_of import unfinished

MOST_OBSERVATIONS = 1_000_000


@dataclass(frozen=True)
class Config:
    """Turn a trained run into a file for a chip, a microcontroller, another runtime or plain Python.

    What was written is compared with the trained network before it is left behind.
    """

    run: tyro.conf.Positional[Path]
    """Run directory."""
    to: str
    """nir (neuromorphic chips and simulators), onnx, c (one C99 file) or numpy (for carebn.deploy.load)."""
    out: Path
    """The file to write. A report of the comparison is left beside it, as FILE.json."""
    weights: str | None = None
    """float32, float64, or for c also int8. Default: float32; numpy has float64 only."""
    bias: str = "affine"
    """For nir. affine: in the weights' nodes. neuron: an always-on neuron, for chips whose bias enters the membrane."""
    observations: int = 1000
    """How many observations the two are compared on."""
    episodes: int = 10
    """Episodes in which int8 weights must keep 95 % of the return."""


def run(config: Config) -> int:
    if config.to not in FORMATS:
        raise ValueError(unknown_name("export format", config.to, FORMATS))
    for name in ("observations", "episodes"):
        if getattr(config, name) < 1:
            raise ValueError(f"--{name} must be at least 1, got {getattr(config, name)}")
    check_episodes(config.episodes)
    check_most("--observations", config.observations, MOST_OBSERVATIONS)
    policy = load(config.run)
    warning = unfinished(config.run, policy.config)
    if warning:
        print(f"warning: {warning}", file=sys.stderr)
    seen = observations(config.run, policy, config.observations)
    report = export(
        policy,
        config.to,
        config.out,
        seen.compared,
        seen.source,
        others=seen.others,
        weights=config.weights,
        bias=config.bias,
        episodes=config.episodes,
    )
    for line in report.lines():
        print(line)
    print(f"{config.to}: {config.out} ({config.out.stat().st_size / 1000:,.0f} kB)\nreport: {config.out}.json")
    return 0
