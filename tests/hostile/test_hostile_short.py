"""The fuzzer for some seconds; ``make hostile`` runs it for longer. And that it is one: it notices, and can repeat."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .cases import Case, draw
from .judging import findings
from .options import options
from .running import FIRST_STEPS, MOST_WORK, Outcome

CASES = 40
SEED = 5

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it counts processor time by /proc")


@pytest.mark.slow
def test_a_few_hostile_command_lines():
    path = os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    words = ["--cases", str(CASES), "--seed", str(SEED), "--runs", "td3", "ann"]
    done = subprocess.run([sys.executable, "-m", "hostile", *words], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no findings" in done.stdout


def test_a_case_says_everything():
    for number in range(300):
        case = draw(3, number)
        assert case == draw(3, number)
        assert Case.from_json(case.to_json()) == case


def test_every_option_of_every_command_is_tried():
    drawn = [draw(1, number) for number in range(4000)]
    for command, known in options().items():
        words = {word.partition("=")[0] for case in drawn if case.command == command for word in case.words}
        if command not in ("study list", "study run", "tune", "measure cost", "methods"):  # rare, because slow
            assert {option.flag for option in known} <= words, command


FINE = Outcome(1, "", "carebn: there is no such thing as that\n", (), 0.3, 0.2)
EVALUATE = Case("evaluate", ("evaluate", "runs/td3"))
TRAIN = Case("train", ("train",))


@pytest.mark.parametrize(
    ("case", "outcome", "finding"),
    [
        (EVALUATE, FINE, ""),
        (EVALUATE, Outcome(0, "mean return 1\n", "", (), 1, 1), ""),
        (EVALUATE, FINE._replace(err="Traceback (most recent call last):\nKeyError: 'x'\n"), "crashes: KeyError"),
        (EVALUATE, FINE._replace(err="carebn: [Errno 2] No such file: 'x'\n"), "crashes"),
        (EVALUATE, FINE._replace(err="carebn: cannot do it (KeyError: 'x')\n"), "names an exception: KeyError"),
        (EVALUATE, FINE._replace(err=""), "fails without a sentence"),
        (EVALUATE, FINE._replace(err="carebn: 'x'\n"), "fails with too few words"),
        (EVALUATE, FINE._replace(err=f"carebn: there is no {'x' * 5000}\n"), "says too much"),
        (EVALUATE, FINE._replace(code=-11, err=""), "killed by signal 11"),
        (EVALUATE, FINE._replace(left=("film.gif",)), "leaves files behind"),
        (EVALUATE, FINE._replace(left=("runs/.x.part",)), "leaves a part behind"),
        (EVALUATE, FINE._replace(stopped=True, code=143, cpu=0.1), "hangs"),
        (EVALUATE, FINE._replace(stopped=True, code=143, cpu=MOST_WORK + 1), "takes forever"),
        (TRAIN, FINE._replace(stopped=True, code=143, cpu=0.1), "hangs"),
        (TRAIN, FINE._replace(stopped=True, code=143, cpu=FIRST_STEPS + 1, err="stopped at step 9; it resumes"), ""),
        (TRAIN, FINE._replace(stopped=True, ignored=True, code=-9), "does not stop when asked to"),
        (TRAIN, FINE._replace(stopped=True, code=143, cpu=FIRST_STEPS + 1, err=""), "does not stop cleanly"),
    ],
)
def test_what_is_wrong_is_noticed(case, outcome, finding):
    found = findings(case, outcome)
    assert bool(found) == bool(finding)
    assert any(finding in one for one in found) or not finding
