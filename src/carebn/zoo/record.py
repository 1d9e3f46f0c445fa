"""``card.json``: what was measured of a policy, and the returns of all seeds. A card is made of it.

It is taken again as long as it is of the same policy, so that a card changes only if something was measured anew.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from carebn.checksums import Mismatch, read_sealed, sealed, sha256
from carebn.reading import read_file
from carebn.study.evidence.runs import DamagedRun, RunRecord, read_run, read_runs
from carebn.training.files import write_atomically
from carebn.training.kept import kept_step
from carebn.training.policy import load
from carebn.training.policy_file import NAME as POLICY
from carebn.training.worlds import Trust
from carebn.zoo.measuring import measure

NAME = "card.json"
EPISODES = 100

Seeds = list[dict[str, Any]]  # seed, final and best return, whether its policy was kept
Record = dict[str, Any]  # policy (its checksum), measured (see measuring.py), seeds


def read_record(run_dir: Path) -> Record | None:
    """Of the policy that is there; None: it was not measured, or another one was."""
    try:
        record = read_sealed(run_dir / NAME, always=True)
    except FileNotFoundError:
        return None
    try:
        whole = {
            "policy": record["policy"],
            "measured": {part: record["measured"][part] for part in ("carebn", "return", "cost", "latency")},
            "seeds": list(record["seeds"]),
        }
    except (KeyError, TypeError):
        raise Mismatch(f"{run_dir / NAME} is damaged: it does not hold what was written") from None
    return whole if whole["policy"] == sha256(read_file(run_dir / POLICY)) else None


def make_record(
    run_dir: Path,
    seeds: Seeds,
    before: Record | None = None,
    *,
    episodes: int = EPISODES,
    max_steps: int | None = None,
    trust: Trust = False,
) -> Record:
    """Measured, unless ``before`` is of the same policy and of as many episodes; written beside the policy."""
    policy, digest = load(run_dir, trust=trust), sha256(read_file(run_dir / POLICY))
    if before is not None and before["policy"] == digest and before["measured"]["return"]["episodes"] == episodes:
        measured = before["measured"]
    else:
        measured = measure(policy, episodes, max_steps)
    record = {"policy": digest, "measured": measured, "seeds": seeds}
    data = sealed(record)
    if not (run_dir / NAME).exists() or read_file(run_dir / NAME) != data:
        write_atomically(run_dir / NAME, data)
    return record


def record_of(
    run_dir: Path,
    *,
    episodes: int | None = None,
    max_steps: int | None = None,
    roots: Sequence[Path] = (),
    again: bool = False,
    trust: Trust = False,
) -> tuple[Record, bool]:
    """The record of a run, and whether anything was measured for it; ``episodes``: None: as many as before.

    Seeds are those of runs below ``roots``; without any, those beside it; of a run that was kept alone, as before.
    """
    load(run_dir, trust=trust)  # says what is wrong with it
    before = read_record(run_dir)
    if before is not None and not roots and kept_step(run_dir) is not None:
        seeds = before["seeds"]
    else:
        seeds = seeds_of(run_dir, roots)
    if episodes is None:
        episodes = EPISODES if before is None else before["measured"]["return"]["episodes"]
    taken = None if again else before
    record = make_record(run_dir, seeds, taken, episodes=episodes, max_steps=max_steps, trust=trust)
    return record, taken is None or record["measured"] is not taken["measured"]


def seeds_of(run_dir: Path, roots: Sequence[Path] = ()) -> Seeds:
    """Final and best return of every finished run of the same configuration but for the seed, below ``roots``, or
    without any beside it; and whether its policy is there too, so that it could have been taken."""
    own = read_run(run_dir)
    others = read_runs(roots).records if roots else _beside(run_dir)
    found: dict[int, dict[str, Any]] = {}
    for run in (own, *others):
        row = {
            "seed": run.seed,
            "final": run.returns[-1] if run.returns else None,
            "best": max(run.returns, default=None),
            "policy": (run.directory / POLICY).is_file(),
        }
        # A run may also lie somewhere as its numbers alone.
        if run.cell() == own.cell() and run.complete and not found.get(run.seed, {}).get("policy"):
            found[run.seed] = row
    return [found[seed] for seed in sorted(found)]


def _beside(run_dir: Path) -> list[RunRecord]:
    """Those in the same directory alone: whatever lies deeper may be very much."""
    found = []
    for path in sorted(run_dir.resolve().parent.iterdir()):
        if (path / "config.json").is_file():
            try:
                found.append(read_run(path))
            except DamagedRun:  # a report tells of it
                continue
    return found
