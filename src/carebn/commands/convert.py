"""``carebn convert``."""

import sys
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Literal

import tyro

from carebn.commands.consent import Consent, next_command
from carebn.conversion import Conversion
from carebn.limits import check_episodes
from carebn.measure.time_steps_curve import plot_time_steps_curve, print_time_steps_curve, time_steps_curve
from carebn.training.converted_run import convert_run, directory_name, save_converted
from carebn.training.evaluation import asked_to_cut, cut_short
from carebn.training.policy import load, read_config
from carebn.training.worlds import require_trust


@dataclass(frozen=True)
class Config(Consent):
    """Convert a trained ANN (methods ann, ann-care) to a spiking policy; carebn evaluate takes it like any other."""

    run: tyro.conf.Positional[Path]
    """Directory of a finished run."""
    time_steps: int = 100
    """Simulation steps per decision. More: closer to the ANN, proportionally slower and costlier."""
    rule: Literal["ltb", "max"] = "ltb"
    """Thresholds: local threshold balancing on replay observations, or each neuron's largest activation there."""
    residual: Literal["none", "crpi"] = "none"
    """crpi: a neuron carries what was left of its potential over to the next decision of the episode."""
    alpha: float | None = None
    """How much of it is carried over, from 0 to 1 (crpi). Default: 0.3."""
    read_out_from: int | None = None
    """Steps left out of the output. More: less of the first, unsettled spikes, but a coarser mean. Default: the
    estimated delay until spikes have come through; with crpi none."""
    iterations: int | None = None
    """Batches of the balancing (ltb). More: thresholds nearer to the largest activation. Default: 1000."""
    batch_size: int = 256
    """Observations per batch."""
    seed: int = 0
    """Seed of the batches."""
    out: Path | None = None
    """Where the converted policy goes. Default: a directory inside the run's, named after the options."""
    sweep: tuple[int, ...] = ()
    """Also play with these numbers of time steps and with the ANN, and print and plot the return against them."""
    episodes: int = 10
    """Episodes for each of them."""
    max_steps: int | None = None
    """Longest episode. Default: as the run was evaluated (--eval-max-steps), else the environment's own
    max_episode_steps; where it has none, 108_000."""

    def conversion(self) -> Conversion:
        return Conversion(**{field.name: getattr(self, field.name) for field in fields(Conversion)})


def run(config: Config) -> int:
    check_episodes(config.episodes)
    if config.max_steps is not None and config.max_steps < 1:
        raise ValueError(f"--max-steps must be at least 1, got {config.max_steps}")
    conversion = config.conversion().checked()
    for time_steps in config.sweep:
        replace(conversion, time_steps=time_steps).checked()  # before anything is written or played
    if config.sweep:
        require_trust(read_config(config.run, config.word), config.word)  # before anything is written
    policy, record = convert_run(config.run, conversion, config.word)
    out = config.out if config.out is not None else config.run / directory_name(record)
    save_converted(policy, record, out)
    read = f"steps {record['read_out_from'] + 1} to {record['time_steps']}"
    print(f"thresholds by {config.rule} from {record['observations']:,} replay observations; output from {read}")
    print(f"policy: {out / 'policy.safetensors'}")
    if config.sweep:
        ann, steps = load(config.run, trust=config.word), sorted(set(config.sweep))
        curve = time_steps_curve(ann, policy, conversion, steps, config.episodes, config.max_steps)
        print_time_steps_curve(curve)
        for played in (curve.ann, *(score for _, score in curve.converted)):
            if played.cut:
                asked_by = asked_to_cut(config.max_steps, policy.config.eval_max_steps)
                told = cut_short(played, policy.config.env_id, "--max-steps", asked_by)
                print(f"warning: {told}", file=sys.stderr)
                break
        print(f"return against time steps: {plot_time_steps_curve(curve, out, policy.config.title())}")
    print(next_command(out, policy.config))
    return 0
