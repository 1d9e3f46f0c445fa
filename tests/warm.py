"""A process that imports all that a command may need, and becomes one in a fork for each order; see ``forked.py``."""

import json
import os
import signal
import sys
from importlib import import_module
from typing import Any

from carebn import cli
from carebn.study.warm import _import_what_runs_need


def _become(order: dict[str, Any]) -> None:
    if order["alone"]:
        os.setpgid(0, 0)
    os.chdir(order["directory"])
    os.environ.clear()
    os.environ.update(order["environment"])
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    for number, path in ((1, order["out"]), (2, order["err"])):
        os.dup2(os.open(path, flags), number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in what a shell starts in the background
    sys.argv = ["carebn", *order["words"]]


def _serve() -> None:
    """Returns in the forks only."""
    with open(os.dup(0)) as orders, open(os.dup(1), "w") as answers:
        for line in orders:
            child = os.fork()
            if not child:
                _become(json.loads(line))
                return
            print(child, file=answers, flush=True)
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), file=answers, flush=True)
    sys.exit()


if __name__ == "__main__":
    _import_what_runs_need()
    for name in cli.COMMANDS:
        import_module(f"carebn.commands.{name}")
    _serve()
    cli.main()
