"""A signal while LLVM calls back into Python, where whatever is raised is printed and lost."""

import subprocess
import sys

import pytest

PROGRAM = """
import os, signal, sys
from numba import njit
from numba.core.codegen import CPUCodeLibrary
from carebn import compiling
from carebn.stopping import Stop, StopRequest, obeyed_at_once

usual = CPUCodeLibrary._object_compiled_hook

def interrupted(library, module, buffer):
    if not said and compiling.now():
        said.append("once")
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1000):  # a handler is called between two of these
            pass
    usual(module, buffer)

said = []
CPUCodeLibrary._object_compiled_hook = classmethod(interrupted)
compiling.listen(lambda: None)
request = StopRequest(lambda: "nothing is kept")
try:
    with {where}:
        print(njit(lambda x: x + 1)(1))
except Stop as stop:
    print("stopped", stop.code, *said)
assert compiling._waiting is None and not compiling.now()
print(njit(lambda x: x + 2)(1))
"""


@pytest.mark.parametrize("where", ["obeyed_at_once()", "request.heard()"])
def test_it_is_obeyed_and_nothing_is_printed(where: str) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM.format(where=where)], capture_output=True, text=True)
    assert done.stdout == "stopped 130 once\n3\n", done
    told = {"obeyed_at_once()": "", "request.heard()": "stopping; a step that is compiling cannot be saved\n"}
    assert done.stderr == told[where]
