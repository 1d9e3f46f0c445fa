"""The files of a run that its ``checksums.json`` vouches for, in an order that a crash at any instant leaves true."""

from pathlib import Path

from carebn.checksums import NAME, Vouched, vouching
from carebn.training.config import TrainConfig
from carebn.training.files import as_json, write_atomically
from carebn.training.observers import PREFIX

WHOLE = ("config.json", "command.txt", "versions.json")


def write_identity(directory: Path, config: TrainConfig) -> None:
    """``config.json`` comes first: from then on this is a run directory. What changes is not vouched for meanwhile."""
    files = {"config.json": as_json(config.as_json()), "command.txt": (config.command() + "\n").encode()}
    changed = {name: data for name, data in files.items() if _bytes(directory / name) != data}
    if changed:
        (directory / NAME).unlink(missing_ok=True)
    for name, data in changed.items():
        write_atomically(directory / name, data)


def check_logs(directory: Path, config: TrainConfig) -> None:
    """What a run goes on with besides its checkpoint, which vouches for the metrics."""
    vouched = Vouched(directory)
    vouched.check("versions.json")
    for name in vouched.logs():
        # A missing one is refused even if nobody asks for it: without it a run would not know that it had one.
        if name.startswith(PREFIX) and (config.measure or not (directory / name).exists()):
            vouched.log(name)


def vouch(directory: Path, logs: dict[str, tuple[int, str]]) -> None:
    data = vouching(directory, WHOLE, logs)
    if _bytes(directory / NAME) != data:
        write_atomically(directory / NAME, data)


def _bytes(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None
