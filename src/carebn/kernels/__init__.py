"""Compiled CPU scans; every one equals its pure-torch twin."""

from carebn.kernels.fused import pure, usable

__all__ = ["pure", "usable"]
