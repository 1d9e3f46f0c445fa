"""``carebn export``."""

import sys
from dataclasses import dataclass
from pathlib import Path

import tyro

from carebn.commands.consent import Consent
from carebn.deploy.chip_limits import ChipLimits
from carebn.deploy.export import FORMATS, TOLERANCE, export
from carebn.deploy.observations import observations
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
    """Run directory, or a name of the zoo."""
    to: str
    """nir (neuromorphic chips and simulators), onnx, c (C99 file and header) or numpy (for carebn.deploy.load)."""
    out: Path
    """The file to write (.nir, .onnx, .c, .npz). A report of the comparison is left beside it, as FILE.json."""
    which: Which = "last"
    """The run's policy after the last step, or that of the best evaluation on the way."""
    weights: str | None = None
    """float32, float64; for c and numpy also int8 and int16, which are whole numbers throughout, without floating point
    between observation and command. Default: float32, for numpy float64."""
    bias: str = "affine"
    """For nir. affine: in the weights' nodes. neuron: an always-on neuron, for chips whose bias enters the membrane."""
    observations: int = 1000
    """How many observations the two are compared on."""
    episodes: int = EPISODES
    """Episodes in which integer weights must keep the return."""
    tolerance: float = TOLERANCE
    """Share of the return that integer weights must keep. Smaller: a worse policy passes."""
    prefix: str = ""
    """For c: begins the names, as in hopper_policy(), so that several policies can be linked together."""
    blob: bool = False
    """For c with int8 or int16: the weights in a file of their own (.bin), which the program loads and checks."""
    qat: int = 0
    """Steps of fine-tuning of int8 or int16 weights, towards the trained policy's actions on its replay. 500 are some
    seconds; 0: none."""
    quantise: str | None = None
    """For nir: int8 or int16 makes weights, biases and thresholds whole numbers, and says what it costs in return."""
    shared_threshold: bool = False
    """For nir: the same threshold for all neurons of a layer. Without --quantise they have it anyway."""
    max_neurons: int | None = None
    """For nir: neurons that the chip has; a policy with more is refused."""
    max_fan_in: int | None = None
    """For nir: inputs that a neuron of the chip can have; a policy with more is refused."""


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
        blob=config.blob,
        qat=config.qat,
        limits=ChipLimits(config.quantise, config.shared_threshold, config.max_neurons, config.max_fan_in),
        origin=origin_of(policy, config.run, read_best(config.run)["step"] if config.which == "best" else None),
    )
    for line in report.lines():
        print(line)
    beside = [".h"] * (config.to == "c") + [".bin"] * config.blob
    header = f", with {' and '.join(config.out.with_suffix(ending).name for ending in beside)}" if beside else ""
    print(f"{config.to}: {config.out} ({config.out.stat().st_size / 1000:,.0f} kB){header}\nreport: {config.out}.json")
    return 0
