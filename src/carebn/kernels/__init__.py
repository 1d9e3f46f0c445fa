"""Compiled CPU paths; every one equals its pure-torch twin, and ``carebn.router`` decides when one runs."""

from carebn.kernels.plans import explain, pure
from carebn.kernels.rates import firing_rates

__all__ = ["explain", "firing_rates", "pure"]
