"""Whether what came of it is what a user should get: success, or one clear sentence."""

import re

from .cases import Case
from .running import FIRST_STEPS, LASTING, WITH_CHILDREN, Outcome

USAGE = 2  # exit code of a command line that cannot be parsed
STOPPED = (128 + 15, 130)
UNREAD = 141  # as a shell reports a program whose reader has gone; it has nobody to tell
LONGEST = 3000  # characters of an error message
CRASH = re.compile(r"Traceback|Exception ignored|Segmentation|Fatal Python|core dumped|\[Errno ")
BARE = re.compile(r"(?<![\w'\".])[A-Z]\w*(?:Error|Exception|Interrupt)\b")
THEIR_OWN = "cannot import module"  # what a module of the user's raised is named


def findings(case: Case, outcome: Outcome) -> list[str]:
    """What is wrong, in a few words each; nothing if all is well."""
    lasting = case.command in LASTING or case.words[:1] == ("train",)  # one with few options trains the default task
    found = []
    crash = CRASH.search(outcome.err)
    if crash:
        found.append(f"crashes: {_last_line(outcome.err)}")
    elif outcome.ignored:
        found.append("does not stop when asked to")
    elif outcome.stopped and not lasting:
        found.append("hangs" if outcome.cpu < FIRST_STEPS else "takes forever")
    elif outcome.stopped and outcome.cpu < FIRST_STEPS and case.command not in WITH_CHILDREN:
        found.append("hangs")
    elif outcome.code < 0:
        found.append(f"killed by signal {-outcome.code}")
    elif outcome.stopped and (outcome.code not in (*STOPPED, 0) or (outcome.code and "stopped" not in outcome.err)):
        found.append(f"does not stop cleanly: {outcome.code}")
    elif case.output == "closed" and outcome.code == UNREAD:
        pass  # it ends quietly, or has told what it could
    elif not outcome.stopped and outcome.code not in (0, USAGE):
        found += _sentence(outcome)
    if len(outcome.err) > LONGEST and outcome.code != USAGE and not crash:
        found.append(f"says too much: {len(outcome.err):,} characters")
    parts = [name for name in outcome.left if name.endswith(".part") and "/." in f"/{name}"]
    if parts:
        found.append("leaves a part behind")
    if outcome.code not in (0, *STOPPED) and case.command not in LASTING and not case.output:
        others = [name for name in outcome.left if name not in parts]
        if others:
            found.append("leaves files behind although it failed")
    return found


def _sentence(outcome: Outcome) -> list[str]:
    lines = [line for line in outcome.err.splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith("carebn: ")]
    if not ours:
        return [f"fails without a sentence: {_last_line(outcome.err)}"]
    if len(ours[-1]) < len("carebn: ") + 12:
        return [f"fails with too few words: {ours[-1]}"]
    bare = next((match for line in ours if THEIR_OWN not in line for match in BARE.finditer(line)), None)
    if bare:
        return [f"names an exception: {bare.group()}"]
    return []


def _last_line(err: str) -> str:
    lines = [line for line in err.splitlines() if line.strip()]
    return re.sub(r"\d+", "N", lines[-1])[:160] if lines else "(silence)"
