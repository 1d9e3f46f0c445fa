"""Whether a directory holds a run, which one, and whether it is the one that was asked for.

A run is what its ``config.json`` says. How many steps it is given, on how many threads it runs and where it lies are
not its identity: with more steps the same run goes on.
"""

from collections.abc import Iterable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from carebn.checksums import Mismatch, Vouched, read_json
from carebn.training.config import TrainConfig
from carebn.training.defaults import flag
from carebn.training.lock import LOCK_FILE
from carebn.training.observers import file_name
from carebn.training.own_code import register
from carebn.training.worlds import NeedsWord, Trust, modules_of

MAY_DIFFER = ("total_timesteps", "threads")
HOW = ("threads", "vector", "device", "track", "quiet", "trust")  # options that do not say what to train


def stored_config(directory: Path, trust: Trust = False) -> TrainConfig | None:
    """The configuration of the run that the directory holds; None: there is none. Something else there is refused.

    ``trust``: the user's word for modules that it names, should it need one of its own to be understood.
    """
    path = directory / "config.json"
    if path.exists():
        data = read_json(path)
        if not isinstance(data, dict):
            raise ValueError(f"{path} does not hold a configuration; is this a run directory?")
        if "conversion" in data:
            raise ValueError(f"{directory} holds a converted policy, not a run; choose another --run-dir")
        try:
            config = TrainConfig.from_json(data)
            register(config, trust, directory)
            config = config.checked()
        except (Mismatch, NeedsWord):
            raise
        except (ValueError, TypeError) as error:
            raise ValueError(f"{path} cannot be read: {error}") from error
        Vouched(directory).check("config.json")
        return config
    if directory.exists() and not directory.is_dir():
        raise ValueError(f"{directory} is a file, not a directory; choose another --run-dir")
    if directory.exists() and any(not _may_precede(path.name) for path in directory.iterdir()):
        raise ValueError(f"{directory} is not empty and not a run; choose another --run-dir")
    return None


def _may_precede(name: str) -> bool:
    """Whether a file may be there before a run is: what a process leaves that dies while it begins one."""
    return name == LOCK_FILE or name.endswith(".part")


def check_same(directory: Path, theirs: TrainConfig, ours: TrainConfig) -> None:
    """Refuse a run with another configuration."""
    a, b = theirs.as_json(), ours.as_json()
    # In the order of the options, which begins with the most important ones.
    different = [
        f"{k} is {a.get(k)!r} there and {b.get(k)!r} here"
        for k in a | b
        if k not in MAY_DIFFER and a.get(k) != b.get(k)
    ]
    if different:
        raise ValueError(
            f"{directory} holds a run with another configuration: {', '.join(different)}; choose another --run-dir"
        )


def check_steps(directory: Path, step: int | None, config: TrainConfig) -> None:
    """Refuse to end a run before where it is; ``step`` is that of its newest checkpoint."""
    if step is not None and config.total_timesteps < step:
        raise ValueError(
            f"{directory} is at step {step:,} already, so it cannot end at --total-timesteps "
            f"{config.total_timesteps:,}; give it as many or more, or choose another --run-dir"
        )


def with_stored_options(config: TrainConfig, words: Iterable[str]) -> TrainConfig:
    """The configuration that a command line asks for: of a run that is there already, what it does not name is as
    there."""
    theirs = None if config.run_dir is None else stored_config(config.run_dir, config.trust or modules_of(config))
    if theirs is None:
        if not set(named_options(words)) - {"run_dir", *HOW}:
            missing = "" if config.run_dir is None else f"there is no run in {config.run_dir} to go on with; "
            raise ValueError(
                f"{missing}for a new run, say at least what to train, for example --env-id {config.env_id}"
            )
        return config
    assert config.run_dir is not None
    own: dict[str, Any] = {"run_dir": config.run_dir}
    if (config.run_dir / file_name("wasserstein")).exists():
        own["measure"] = ("wasserstein",)
    named = {name: getattr(config, name) for name in named_options(words)}
    chosen = {name: value for name, value in named.items() if value not in (None, "default")}
    try:
        return replace(theirs, **own | chosen).checked()
    except ValueError:
        # Options of two different runs may not go together; which of them are not this run's is what matters.
        check_same(config.run_dir, theirs, replace(theirs, **chosen))
        raise


def named_options(words: Iterable[str]) -> list[str]:
    """The options that a command line names, whatever it gives them."""
    given = {word.partition("=")[0].replace("_", "-") for word in words if word.startswith("--")}
    flags = {"import_modules": "--import", "wrappers": "--wrapper"}
    return [
        f.name
        for f in fields(TrainConfig)
        if {name := flags.get(f.name, flag(f.name)), name.replace("--", "--no-", 1)} & given
    ]


def default_directory(config: TrainConfig) -> Path:
    """Where a run lives if nobody says; one that an earlier version began, whose name told its threads, stays there."""
    ours, earlier = (Path("runs") / config.name(threads) for threads in (1, config.threads))
    return earlier if earlier.exists() and not ours.exists() else ours
