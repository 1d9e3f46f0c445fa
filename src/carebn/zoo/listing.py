"""The zoo as a table: a row for each entry, of what its card says."""

from collections.abc import Mapping
from pathlib import Path

from carebn.study.numbers import spelled
from carebn.training.kept import kept_step
from carebn.training.policy import read_config
from carebn.zoo.entry import size_of
from carebn.zoo.record import read_record

HEADINGS = ("name", "environment", "method", "steps", "return", "ten episodes", "kB")


def rows(entries: Mapping[str, Path]) -> tuple[list[list[str]], list[str]]:
    """Of every entry that can be read; a sentence for each that cannot. Their environments are not asked for."""
    found, problems = [], []
    for name, path in entries.items():
        try:
            found.append(_row(name, path))
        except (OSError, ValueError) as error:
            problems.append(f"{error}; {name} is left out")
    return found, problems


def _row(name: str, path: Path) -> list[str]:
    config, record, step = read_config(path), read_record(path), kept_step(path)
    result = {} if record is None else record["measured"]["return"]
    span = f"{spelled(result['low'], 1)} to {spelled(result['high'], 1)}" if result else spelled(None)
    return [
        name,
        config.env_id,
        f"{config.algo} {config.method}",
        f"{config.total_timesteps if step is None else step:,}",
        spelled(result.get("mean"), 1),
        span,
        f"{size_of(path) / 1000:,.0f}",
    ]
