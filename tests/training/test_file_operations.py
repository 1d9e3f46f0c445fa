"""Killed at any single file operation, a run resumes, is extended, and ends byte-identical."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="a run is killed in a fork, which this system does not have"),
]
SHARE = os.environ.get("CAREBN_KILL_SHARE", "0.004")  # of the operations; all of them by make kill-test
MUTATIONS = os.environ.get("CAREBN_MUTATIONS", "3")  # a thousand by make damage-test


def answer(*words: str) -> dict[str, Any]:
    """Of a program beside this file, with a seed of its own each time."""
    seed = str(random.SystemRandom().randrange(10**6))
    command = [sys.executable, str(Path(__file__).parent / words[0]), *words[1:], "--seed", seed]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    print(f"{' '.join(command)}: {found}")
    return found


@pytest.mark.parametrize("kind", ["td3", "dqn", "converted"])
def test_a_run_is_killed_at_a_file_operation(kind: str) -> None:
    found = answer("file_operations.py", kind, "--share", SHARE)
    assert found["wrong"] == []
    assert {"open", "write", "fsync", "os.rename", "os.mkdir", "os.remove", "truncate"} <= set(found["kinds"])


def test_a_file_of_a_run_is_damaged() -> None:
    """Refused or fallen back with a sentence, or exactly as before: never another number, never a traceback."""
    assert answer("mutations.py", "--count", MUTATIONS)["wrong"] == []
