"""What this machine offers, asked in ways that have an answer on every operating system."""

import os
import sys


def cores() -> int:
    """Cores that this process may use; where the system does not tell which those are, all there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def peak_memory() -> float | None:
    """The most that this process has occupied so far, in MiB; None where the system does not tell, as on Windows."""
    try:
        import resource
    except ImportError:
        return None
    unit = 1024**2 if sys.platform == "darwin" else 1024  # bytes there, KiB elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
