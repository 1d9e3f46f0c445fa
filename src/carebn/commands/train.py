"""``carebn train``."""

import sys
from inspect import signature
from typing import Any

from carebn.algorithm import ALGORITHMS
from carebn.checksums import read_sealed
from carebn.commands.config_file import FromFile, flags_in, with_file
from carebn.commands.consent import next_command
from carebn.measure.observers import observers_for
from carebn.norm import NORMS
from carebn.training import InterruptedRun, Run, TrainConfig
from carebn.training.defaults import FROM_TABLE, GENERAL, table_of
from carebn.training.identity import with_stored_options
from carebn.training.own_code import register
from carebn.training.whole_run import carry_out
from carebn.training.worlds import modules_of, require_trust

Config = FromFile

# How the help is divided; an option that is not named here is with the one before it.
GROUPS = {
    "task and agent": ("env_id", "import_modules", "algo", "method", "neuron", "seed"),
    "budget": ("total_timesteps", "learning_starts", "random_steps", "update_interval", "num_envs"),
    "learning": ("buffer_size", "batch_size", "gamma", "tau", "actor_learning_rate", "target"),
    "network": ("time_steps", "hidden", "surrogate", "readout", "conversion_steps", "raw_bytes"),
    "encoder": ("coding", "observation"),
    "normaliser": ("norm_momentum", "norm_init", "recalibration_batches"),
    "evaluation": ("eval_interval", "measure"),
    "files and machine": (
        "run_dir",
        "config",
        "trust",
        "threads",
        "device",
        "checkpoint_interval",
        "log_interval",
        "track",
        "quiet",
    ),
}


def _number(value: Any) -> str:
    mantissa, _, exponent = f"{value:.0e}".partition("e-")
    return f"{mantissa}e-{int(exponent)}" if exponent and value < 1e-3 else f"{value:_}" if value >= 1 else f"{value:g}"


def _values(owners: dict[str, Any], all_of_them: bool) -> str:
    """Each value with those that share it; a value that all have stands alone."""
    sharing: dict[str, list[str]] = {}
    for owner, value in owners.items():
        sharing.setdefault(_number(value), []).append(owner)
    if all_of_them and len(sharing) == 1:
        return next(iter(sharing))
    return "; ".join(f"{', '.join(having)} {value}" for value, having in sharing.items())


def _by_algorithm(name: str) -> str:
    tables = {algo: table_of(TrainConfig(algo=algo)) for algo in ALGORITHMS}
    having = {algo: table[name] for algo, table in tables.items() if name in table}
    return _values(having, len(having) == len(tables))


def _by_norm() -> str:
    momenta = {name: signature(norm).parameters.get("momentum") for name, norm in NORMS.items()}
    return _values({name: momentum.default for name, momentum in momenta.items() if momentum is not None}, False)


# What the options that are left open come to.
DEFAULTS = {name: _by_algorithm(name) for name in FROM_TABLE} | {
    "norm_momentum": _by_norm(),
    "readout": GENERAL["readout"],
    "readout_init": GENERAL["readout_init"],
}


def resumed(given: FromFile, words: list[str]) -> TrainConfig:
    """With what a file of options says, and a run that is there already; modules that only a run's file names need the
    user's word."""
    config = with_file(given, words)
    register(config, True)  # what the command line itself names
    found = with_stored_options(config, [*words, *flags_in(given.config)])
    require_trust(found, config.trust or modules_of(config))
    return found


def _best_is_not_the_last(run: Run) -> bool:
    best = run.state.best_evaluation
    return run.state.best_policy is not None and best is not None and best["step"] != run.state.step


def run(config: TrainConfig) -> int:
    try:
        done = carry_out(config, observers_for(config))
    except InterruptedRun as stop:
        print(stop, file=sys.stderr)
        return stop.code
    run, policy = done.run, done.run.directory
    if done.was_complete:
        for text in run.warnings:
            print(f"warning: {text}", file=sys.stderr)
        print(f"this run is complete: {run.directory}")
    if run.best is not None:
        kept = "; --which best takes its policy in place of the last" if _best_is_not_the_last(run) else ""
        print(f"best mean return on the way: {run.best:.1f}{kept}")
    if done.converted is not None:
        score = read_sealed(done.converted / "evaluation.json")["mean_return"]
        print(f"converted to a spiking policy: mean return {score:.1f}")
        policy = done.converted
    print(f"policy: {policy / 'policy.safetensors'}\nlearning curve: {done.curve}")
    print(next_command(policy, run.config))
    return 0
