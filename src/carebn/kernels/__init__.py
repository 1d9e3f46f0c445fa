"""Compiled CPU paths; every one equals its pure-torch twin, and ``carebn.router`` decides when one runs."""

from carebn.kernels.plans import explain, pure

__all__ = ["explain", "pure"]
