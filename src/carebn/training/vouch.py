"""The files of a run that its ``checksums.json`` vouches for, in an order that a crash at any instant leaves true."""

from pathlib import Path

from carebn.checksums import NAME, Vouched, read_sealed, sealed, sha256, vouching
from carebn.training.config import TrainConfig
from carebn.training.files import as_json, write_atomically
from carebn.training.observers import PREFIX
from carebn.training.policy_file import NAME as POLICY

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


def vouch(directory: Path, logs: dict[str, tuple[int, str]], policy: bytes | None = None) -> None:
    """``policy``: the one that is there; None: it is still being written, so what is known of it stays."""
    known = Vouched(directory).policies if policy is None else [sha256(policy)]
    _write_if_new(directory / NAME, vouching(directory, WHOLE, logs, known))


def replace_policy(directory: Path, policy: bytes) -> None:
    """Both are vouched for until ``vouch`` is told of the new one: a crash may come before or after its writing."""
    known = Vouched(directory).policies
    if known:
        both = sorted({*known, sha256(policy)})
        _write_if_new(directory / NAME, sealed(read_sealed(directory / NAME) | {"policy": both}))
    write_atomically(directory / POLICY, policy)


def _write_if_new(path: Path, data: bytes) -> None:
    if _bytes(path) != data:
        write_atomically(path, data)


def _bytes(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None
