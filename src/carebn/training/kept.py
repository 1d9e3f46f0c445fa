"""A finished run that was kept without its checkpoints and replay: ``kept.json`` says which policy it is, and its step.

Such a directory plays, is measured and exported as any run. It cannot go on.
"""

from pathlib import Path

from carebn.checksums import Mismatch, read_sealed, sealed, sha256
from carebn.reading import read_file
from carebn.training.policy_file import NAME as POLICY

RECORD = "kept.json"


def kept_record(policy: bytes, step: int) -> bytes:
    return sealed({"policy": sha256(policy), "step": step})


def kept_step(run_dir: Path) -> int | None:
    """After how many steps its policy was saved; None: this is no such directory. Its checkpoints then tell."""
    path = run_dir / RECORD
    if not path.is_file():
        return None
    record = read_sealed(path, always=True)
    if type(record.get("step")) is not int:
        raise Mismatch(f"{path} is damaged: it does not hold what was written")
    if record.get("policy") != sha256(read_file(run_dir / POLICY)):
        raise Mismatch(f"{run_dir / POLICY} is not the policy that {RECORD} beside it is about; put it back as it was")
    step: int = record["step"]
    return step


def refuse_to_go_on(run_dir: Path) -> None:
    """Training there would begin anew, and replace the policy."""
    if (run_dir / RECORD).exists():
        raise ValueError(
            f"{run_dir} holds a finished run without its checkpoints and replay, so it cannot go on; the command in "
            f"its command.txt trains it again, in a directory of its own"
        )
