"""Options of a training run from a JSON file: ``--config FILE``. What the command line names itself wins."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, get_type_hints

from carebn.errors import unknown_name
from carebn.reading import read_object
from carebn.training.config import TrainConfig
from carebn.training.defaults import flag
from carebn.training.identity import named_options
from carebn.training.worlds import modules_of, untrusted_modules

NOT_IN_FILES = {"run_dir", "trust", "track", "quiet"}  # who starts a run says these


@dataclass(frozen=True)
class FromFile(TrainConfig):
    """Train an agent. Running the same command again resumes the run, or says that it is complete."""

    config: Path | None = None
    """A JSON file of options, as carebn tune leaves one (best.json), or a run's config.json. The command line wins."""


def with_file(given: FromFile, words: list[str]) -> TrainConfig:
    """The options of the command line, and of the file for all that it does not name."""
    options = {f.name: getattr(given, f.name) for f in fields(TrainConfig)}
    if given.config is None:
        return TrainConfig(**options)
    read = read_options(given.config)
    named = named_options(words)
    config = TrainConfig(**options | {name: value for name, value in read.items() if name not in named})
    missing = untrusted_modules(config, given.trust or modules_of(TrainConfig(**options)))
    if missing:
        raise ValueError(
            f"{given.config} names code of your own ({', '.join(missing)}), and nothing is imported on the word of a "
            f"file; if you trust it, add --import {' '.join(missing)}, or --trust"
        )
    return config


def flags_in(path: Path | None) -> list[str]:
    """The options that a file names, as a command line would."""
    names = {"import_modules": "--import", "wrappers": "--wrapper"}
    return [] if path is None else [names.get(name, flag(name)) for name in read_options(path)]


def read_options(path: Path) -> dict[str, Any]:
    """Names and values of a file, of the kinds that the options have; a mistake is one sentence."""
    try:
        data = read_object(path)
    except OSError as error:
        raise ValueError(f"--config {path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ValueError(f"--config {path} does not hold options as JSON: {error}") from error
    known = {f.name for f in fields(TrainConfig)} - NOT_IN_FILES
    for name in data:
        if name not in known:
            raise ValueError(f"--config {path}: {unknown_name('option', name, known)}")
    hints = get_type_hints(TrainConfig)
    values = {name: whole(hints[name], value) for name, value in data.items()}
    try:
        config = TrainConfig.from_json(values)
    except ValueError as error:
        raise ValueError(f"--config {path}: {error}") from error
    return {name: getattr(config, name) for name in values}


def whole(hint: Any, value: Any) -> Any:
    """1e6 where a whole number is meant."""
    kinds = (hint, *getattr(hint, "__args__", ()))
    return (
        int(value) if isinstance(value, float) and value.is_integer() and int in kinds and float not in kinds else value
    )
