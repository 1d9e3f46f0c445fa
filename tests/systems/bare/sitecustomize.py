"""With this directory on PYTHONPATH, Python finds nothing that only Linux, or only Unix, has and carebn could want."""

import builtins
import io
import os
import signal
import subprocess
import sys

UNIX_ONLY = {"fcntl", "grp", "pwd", "resource", "syslog", "termios", "tty"}


class Missing:
    def find_spec(self, name, path=None, target=None):
        if name in UNIX_ONLY:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Missing())
for name in UNIX_ONLY & sys.modules.keys():
    del sys.modules[name]
for module, name in (
    (os, "sched_getaffinity"),
    (os, "O_DIRECTORY"),
    (os, "fork"),
    (os, "getuid"),
    (signal, "pthread_sigmask"),
    (signal, "pause"),
):
    if hasattr(module, name):
        delattr(module, name)


def open_file(file, *args, **kwargs):
    if str(file).startswith("/proc/"):
        raise FileNotFoundError(2, "No such file or directory", file)
    return io.open(file, *args, **kwargs)  # noqa: UP020  # builtins.open is this one


def open_descriptor(path, *args, _open=os.open, **kwargs):
    if os.path.isdir(path):
        raise PermissionError(13, "Permission denied", path)  # as Windows says
    return _open(path, *args, **kwargs)


def send_signal(self, number, _send=subprocess.Popen.send_signal):
    if number not in (signal.SIGTERM, signal.SIGKILL):  # Windows ends processes, but sends them nothing
        raise ValueError(f"Unsupported signal: {number}")
    _send(self, number)


builtins.open = open_file
os.open = open_descriptor
subprocess.Popen.send_signal = send_signal
