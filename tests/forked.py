"""The command ``carebn`` in processes that begin at once: forks of one that has imported everything.

What such a process is and does is its own: its arguments, directory, environment and output, the signals it gets and
the code it ends with. Left out are the imports of a start, so what is about a start needs a real one.

test:    ``Warm().start(words, directory)``, one at a time
warm:    ``python warm.py`` reads an order, forks, tells the number of the process, and how it ended
fork:    the command line
"""

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from said import Said

from carebn.machine import THREAD_VARIABLES


class Forked:
    """A process of the command's."""

    def __init__(self, warm: "subprocess.Popen[bytes]", order: dict[str, Any]) -> None:
        self._warm, self._folder = warm, tempfile.TemporaryDirectory()
        self._out, self._err = (Path(self._folder.name) / name for name in ("out", "err"))
        order |= {"out": str(self._out), "err": str(self._err)}
        assert warm.stdin is not None
        warm.stdin.write(json.dumps(order).encode() + b"\n")
        self.pid: int = self._answer()
        self.returncode: int | None = None

    def _answer(self) -> int:
        assert self._warm.stdout is not None
        return int(self._warm.stdout.readline())

    def poll(self, seconds: float = 0.0) -> int | None:
        """The code it ended with; None if it has not within so many seconds."""
        if self.returncode is None and select.select([self._warm.stdout], [], [], seconds)[0]:
            self.returncode = self._answer()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)
        self.said()

    def said(self, seconds: float = 600.0) -> Said:
        """When it has ended."""
        code = self.poll(seconds)
        assert code is not None, f"it has not ended within {seconds} seconds"
        return Said(code, self._out.read_text(), self._err.read_text())


class Warm:
    """Where the forks come from; of the package that lies in ``source``, or of ours."""

    def __init__(self, source: Path | None = None, **environment: str) -> None:
        path = [str(source or ""), os.environ.get("PYTHONPATH", "")]
        self._environment = environment | dict.fromkeys(THREAD_VARIABLES, "1")
        self._environment["PYTHONPATH"] = os.pathsep.join(filter(None, path))
        self._process = subprocess.Popen(
            [sys.executable, "-P", Path(__file__).with_name("warm.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            bufsize=0, env=os.environ | self._environment,
        )  # fmt: skip
        self._last: Forked | None = None

    def start(self, words: Sequence[object], directory: Path, alone: bool = False) -> Forked:
        """``alone``: in a process group of its own."""
        if self._last is not None:
            self._last.kill()  # of a test that has failed before its end
        order = {"words": [str(word) for word in words], "directory": str(directory), "alone": alone}
        self._last = Forked(self._process, order | {"environment": os.environ | self._environment})
        return self._last

    def said(self, words: Sequence[object], directory: Path) -> Said:
        return self.start(words, directory).said()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
