"""``carebn export``."""

import sys
from dataclasses import dataclass
from pathlib import Path

import tyro

from carebn.commands.consent import Consent
from carebn.deploy.export import FORMATS, TOLERANCE, export, observations
from carebn.deploy.origin import origin_of
from carebn.deploy.returns import EPISODES
from carebn.errors import unknown_name
from carebn.limits import check_episodes, check_most
from carebn.show.outputs import writable_directory
from carebn.training.best import read_best
from carebn.training.checkpoint import CheckpointStore, unfinished
from carebn.training.policy import Which, load

MOST_OBSERVATIONS = 1_000_000
ENDINGS = {"nir": ".nir", "onnx": ".onnx", "c": ".c", "numpy": ".npz"}  # usual ones; what is nobody's may be taken too


@dataclass(frozen=True)
class Config(Consent):
    """Turn a trained run into a file for a chip, a microcontroller, another runtime or plain Python.

    What was written is compared with the trained network before it is left behind.
    """

    run: tyro.conf.Positional[Path]
    """Run directory."""
    to: str
    """nir (neuromorphic chips and simulators), onnx, c (C99 file and header) or numpy (for carebn.deploy.load)."""
    out: Path
    """The file to write (.nir, .onnx, .c, .npz). A report of the comparison is left beside it, as FILE.json."""
    which: Which = "last"
    """The run's policy after the last step, or that of the best evaluation on the way."""
    weights: str | None = None
    """float32, float64; for c and numpy also int8 and int16. Default: float32, for numpy float64."""
    bias: str = "affine"
    """For nir. affine: in the weights' nodes. neuron: an always-on neuron, for chips whose bias enters the membrane."""
    observations: int = 1000
    """How many observations the two are compared on."""
    episodes: int = EPISODES
    """Episodes in which integer weights must keep the return; if they do not, ten times as many are asked."""
    tolerance: float = TOLERANCE
    """Share of the return that integer weights must keep. Smaller: a worse policy passes."""
    prefix: str = ""
    """For c: begins the names, as in hopper_policy(), so that several policies can be linked together."""


def run(config: Config) -> int:
    if config.to not in FORMATS:
        raise ValueError(unknown_name("export format", config.to, FORMATS))
    others = [to for to, ending in ENDINGS.items() if to != config.to and ending == config.out.suffix.lower()]
    if others:
        raise ValueError(
            f"--out {config.out} ends as files of --to {others[0]} do, and this is --to {config.to}; choose "
            f"{config.out.with_suffix(ENDINGS[config.to])}, or --to {others[0]}"
        )
    for name in ("observations", "episodes"):
        if getattr(config, name) < 1:
            raise ValueError(f"--{name} must be at least 1, got {getattr(config, name)}")
    check_episodes(config.episodes)
    check_most("--observations", config.observations, MOST_OBSERVATIONS)
    policy = load(config.run, config.which, trust=config.word)
    warning = unfinished(config.run, policy.config)
    if warning:
        print(f"warning: {warning}", file=sys.stderr)
    if (config.run / "replay").is_dir():
        CheckpointStore(config.run, policy.config.checkpoint_interval).check_replay()
    writable_directory(config.out.parent)
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
        tolerance=config.tolerance,
        prefix=config.prefix,
        origin=origin_of(policy, config.run, read_best(config.run)["step"] if config.which == "best" else None),
    )
    for line in report.lines():
        print(line)
    header = f", with {config.out.with_suffix('.h').name}" if config.to == "c" else ""
    print(f"{config.to}: {config.out} ({config.out.stat().st_size / 1000:,.0f} kB){header}\nreport: {config.out}.json")
    return 0
