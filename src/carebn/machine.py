"""What this machine offers, asked in ways that have an answer on every operating system."""

import ctypes
import gc
import os
import platform
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path

# How many threads the libraries take that have pools of their own: read once, when each is loaded.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
CONTAINER_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def cores() -> int:
    """Cores that this process may use; where the system does not tell which those are, all there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def memory() -> int | None:
    """Bytes that this process may ever have: what is built in, unless a container or a limit leaves it less. None
    where the system does not tell, as on Windows."""
    found = []
    with suppress(AttributeError, ValueError, OSError):
        found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for path in CONTAINER_LIMITS:
        with suppress(OSError, ValueError):  # ValueError: there is none, and it says "max"
            found.append(int(Path(path).read_text()))
    with suppress(ImportError, ValueError, OSError):
        import resource

        for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA):
            limit = resource.getrlimit(kind)[0]
            if limit != resource.RLIM_INFINITY:
                found.append(limit)
    return min((amount for amount in found if amount > 0), default=None)


def peak_memory() -> float | None:
    """The most that this process has occupied so far, in MiB; None where the system does not tell, as on Windows."""
    try:
        import resource
    except ImportError:
        return None
    unit = 1024**2 if sys.platform == "darwin" else 1024  # bytes there, KiB elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


@cache
def processor() -> str:
    """Its name as the system tells it; where it does not, that of its family."""
    with suppress(OSError, ValueError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return " ".join(line.partition(":")[2].split())
    return platform.processor() or platform.machine()


@cache
def keep_freed_memory() -> None:
    """Let the C library keep what is freed, up to 256 MiB, instead of handing it back to the system at once.

    An update frees and takes the same few megabytes again and again; taken from the system, every 4 KiB of them cost a
    page fault, together a tenth of a step. Known for glibc alone, whose own variables (MALLOC_...) win if set.
    """
    if platform.libc_ver()[0] != "glibc" or any(name.startswith("MALLOC_") for name in os.environ):
        return
    trim_threshold, mmap_threshold = -1, -3  # their numbers in malloc.h
    library = ctypes.CDLL(None)
    library.mallopt(trim_threshold, 256 << 20)
    library.mallopt(mmap_threshold, 32 << 20)  # the most that it takes


def collect_seldom() -> None:
    """Let Python look for cycles of garbage after every 100,000 new objects rather than a few hundred.

    Importing torch makes millions that stay, and looking through them again and again took a third of the time in which
    a command starts. A step of training leaves no cycle but now and then a small one.
    """
    young, *older = gc.get_threshold()
    if young > 0:  # else somebody has switched it off
        gc.set_threshold(max(young, 100_000), *older)
