"""Batches of cases in processes of their own: a segmentation fault or a deadlock is reported, and the others go on.

A child says on its output which case it begins and what came of it, one JSON object a line. The parent waits for each
line only so long.
"""

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from .cases import Case, simpler

AT_ONCE = 250  # cases a child; a fresh one then has memory that nobody wrote on
PATIENCE = 90.0  # seconds for a case; the first of a kind has to compile kernels
LONG_PATIENCE = 300.0  # for one that was not through by then, before it is said to hang
SHRINKING = 70  # simpler cases that are tried at most

FAILED = "failed"


@dataclass(frozen=True)
class Found:
    """What came of one case."""

    case: Case
    kind: str
    symptom: str = ""
    detail: str = ""
    lively: bool = False
    seconds: float = 0.0


class Child:
    """A process that runs cases one after the other as it is told."""

    def __init__(self) -> None:
        # a pipe might fill up, as nobody reads it before the end
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed by close()
        path = os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
        self._process = subprocess.Popen(
            [sys.executable, "-X", "faulthandler", "-m", "fuzz", "--child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=environment,
        )
        self._lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()
        self.done = 0
        if self._lines.get() is None:
            raise RuntimeError(f"a child did not start: {self._last_words()}")

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def run(self, case: Case, patience: float) -> Found:
        """The child may be dead afterwards: see ``alive``."""
        assert self._process.stdin is not None
        self.done += 1
        begin = time.monotonic()
        try:
            self._process.stdin.write(case.to_json() + "\n")
            self._process.stdin.flush()
            line = self._lines.get(timeout=patience)
        except queue.Empty:
            self._process.send_signal(signal.SIGABRT)  # faulthandler then says where it was
            self._end()
            return Found(case, FAILED, "hangs", self._last_words(), seconds=time.monotonic() - begin)
        except BrokenPipeError:
            line = None
        if line is None:
            code = self._process.wait()
            name = signal.Signals(-code).name if code < 0 else f"exit status {code}"
            return Found(case, FAILED, f"crashes ({name})", self._last_words(), seconds=time.monotonic() - begin)
        return Found(case, **json.loads(line), seconds=time.monotonic() - begin)

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def _end(self) -> None:
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _last_words(self) -> str:
        self._errors.seek(0)
        lines = [line.strip() for line in self._errors.read().splitlines()]
        ours = [line for line in lines if "carebn" in line and "File" in line]
        return "; ".join(ours[:3] or lines[-3:])

    def close(self) -> None:
        if self.alive:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._end()
        self._errors.close()


def serve() -> None:
    """The child's side."""
    from .judging import judge

    # results go where output went at the start; whatever prints later does not disturb them
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    output.write("ready\n")
    output.flush()
    for line in sys.stdin:
        verdict = judge(Case.from_json(line))
        output.write(json.dumps(asdict(verdict)) + "\n")
        output.flush()


class Crew:
    """Runs cases in a child, and another one when that is gone or old."""

    def __init__(self, patience: float = PATIENCE) -> None:
        self._child: Child | None = None
        self._patience = patience

    def run(self, case: Case, patience: float | None = None, fresh: bool = False) -> Found:
        if self._child is not None and (fresh or self._child.done >= AT_ONCE or not self._child.alive):
            self.close()
        if self._child is None:
            self._child = Child()
        return self._child.run(case, patience or self._patience)

    def close(self) -> None:
        if self._child is not None:
            self._child.close()
            self._child = None


def sweep(cases: Sequence[Case], known: Callable[[Found], bool] = lambda found: False) -> Iterator[Found]:
    """Every case; a failure that is not ``known`` is confirmed in a fresh process."""
    crew, other = Crew(), Crew()
    try:
        for case in cases:
            found = crew.run(case)
            if found.kind == FAILED and not known(found):
                again = other.run(case, LONG_PATIENCE if found.symptom == "hangs" else None, fresh=True)
                if again.kind != FAILED and found.symptom == "hangs":
                    found = again  # it had to compile something
                elif again.kind != FAILED:
                    found = Found(case, FAILED, f"{found.symptom}, but not when run alone", found.detail)
            yield found
    finally:
        crew.close()
        other.close()


def shrink(found: Found, tries: int = SHRINKING) -> Found:
    """A simpler case with the same symptom, by trying."""
    crew = Crew(patience=PATIENCE if found.symptom != "hangs" else 20.0)
    try:
        progress = True
        while progress and tries > 0:
            progress = False
            for case in simpler(found.case):
                tries -= 1
                other = crew.run(case)
                if other.kind == FAILED and other.symptom == found.symptom:
                    found, progress = other, True
                    break
                if tries <= 0:
                    break
        return found
    finally:
        crew.close()
