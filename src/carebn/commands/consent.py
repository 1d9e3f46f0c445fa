"""The user's word for code that a run brings along; options that several commands share."""

from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Annotated

import tyro

from carebn.training.config import TrainConfig
from carebn.training.worlds import modules_of


@dataclass(frozen=True, kw_only=True)
class Consent:
    import_modules: Annotated[tuple[str, ...], tyro.conf.arg(name="import")] = ()
    """Python modules that the run needs; what its config.json names is imported only if you say so."""
    trust: bool = False
    """Import every module that the run's config.json names."""

    @property
    def word(self) -> bool | tuple[str, ...]:
        return self.trust or self.import_modules


def next_command(policy: Path, config: TrainConfig) -> str:
    """What to do with a policy that has just been made, with all that it needs."""
    needs = " ".join(("", "--import", *modules_of(config))) if modules_of(config) else ""
    return f"next: carebn evaluate {quote(str(policy))}{needs}"
