"""``carebn push``."""

import os
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import tyro

from carebn.commands.consent import Consent
from carebn.limits import check_episodes
from carebn.zoo.hub import check_repository, find_hub, put_together, upload
from carebn.zoo.keeping import Hidden


@dataclass(frozen=True)
class Config(Consent):
    """Upload a finished run with its card to the Hugging Face Hub: pip install huggingface_hub, and hf auth login.

    What goes there plays, is measured and exported as any run. A card that is not there yet is measured first.
    """

    run: tyro.conf.Positional[Path]
    """Run directory, or a name of the zoo."""
    repository: tyro.conf.Positional[str]
    """OWNER/NAME on the Hub; it is made if it is not there."""
    episodes: int | None = None
    """Noise-free episodes to measure the return in. Default: as in the card that is there, else 100."""
    whole: bool = False
    """With checkpoints and replay, so that the run can go on where it is taken to. Larger by far."""
    private: bool = False
    """Make the repository private, if it is made."""
    folder: Path | None = None
    """Put together there what would be uploaded, and upload nothing. Default: upload."""


def run(config: Config) -> int:
    check_repository(config.repository)
    if config.episodes is not None:
        check_episodes(config.episodes)
    options: dict[str, Any] = {"episodes": config.episodes, "whole": config.whole, "trust": config.word}
    if config.folder is not None:
        if os.path.lexists(config.folder):
            raise ValueError(f"{config.folder} is there already; --folder needs the name of a new directory")
        with Hidden(config.folder) as place:
            put_together(config.run, place, config.repository, **options)
        print(f"put together, not uploaded: {config.folder}")
        return 0
    hub = find_hub()
    with TemporaryDirectory(prefix="carebn-") as directory:
        put_together(config.run, Path(directory), config.repository, **options)
        print(f"uploaded: {upload(hub, Path(directory), config.repository, config.private)}")
    return 0
