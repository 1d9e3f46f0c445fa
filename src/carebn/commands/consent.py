"""The user's word for code that a run brings along; options that several commands share."""

from dataclasses import dataclass
from typing import Annotated

import tyro


@dataclass(frozen=True, kw_only=True)
class Consent:
    import_modules: Annotated[tuple[str, ...], tyro.conf.arg(name="import")] = ()
    """Python modules that the run needs; what its config.json names is imported only if you say so."""
    trust: bool = False
    """Import every module that the run's config.json names."""

    @property
    def word(self) -> bool | tuple[str, ...]:
        return self.trust or self.import_modules
