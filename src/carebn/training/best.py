"""The policy of the best evaluation so far, as the paper scores runs, beside the last: ``best.safetensors``.

``best.json`` tells which evaluation that was. Both follow from a checkpoint, so what a killed run leaves is made right
when it resumes.
"""

from pathlib import Path
from typing import Any

from carebn.checksums import read_sealed, sealed
from carebn.training.files import sha256, write_atomically

POLICY, RECORD = "best.safetensors", "best.json"


def write_best(directory: Path, policy: bytes | None, evaluation: dict[str, Any] | None) -> None:
    """None: there is no best policy yet, or none was kept when it was evaluated."""
    if policy is None or evaluation is None:
        for name in (RECORD, POLICY):
            (directory / name).unlink(missing_ok=True)
        return
    files = {POLICY: policy, RECORD: sealed(evaluation | {"policy": sha256(policy)})}
    for name, data in files.items():
        path = directory / name
        if not path.exists() or path.read_bytes() != data:
            write_atomically(path, data)


def read_best(directory: Path) -> dict[str, Any]:
    """Step, returns and the rest of the evaluation whose policy is in ``best.safetensors``, which is of that one."""
    try:
        record = read_sealed(directory / RECORD)
        policy = (directory / POLICY).read_bytes()
    except FileNotFoundError:
        raise ValueError(
            f"{directory} has no best policy: no evaluation had been saved yet, or the last policy alone was kept, as "
            f"in a zoo and by an earlier version; leave out --which best"
        ) from None
    if record.get("policy") != sha256(policy):
        raise ValueError(
            f"{directory / POLICY} is not the policy that {RECORD} beside it is about; running the same carebn train "
            f"command again restores both"
        )
    return record
