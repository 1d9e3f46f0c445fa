"""Is what was exported the policy that was trained? Both are asked about the same observations.

Values must agree to 1e-5; to more where they are so large (above 100) that float32 itself is coarser. One thing is
forgiven to float32: where a neuron's potential lies within rounding of its threshold, float32 cannot say whether it
fires, and one spike more or less changes the action (of a max-membrane read-out: where its largest and its smallest
potential are as far from zero as each other). Such observations are counted, few are allowed, and in float64 none.
"""

import copy
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from carebn.deploy.graph import Array, PolicyGraph
from carebn.deploy.runtime import DeployedPolicy

TOLERANCE = 1e-5
LARGE = 100.0
ROUNDING = 1e-5  # a potential this near to its threshold, relative to the potentials around it, may go either way
ALLOWED = 0.01  # of the observations


@dataclass(frozen=True)
class Parity:
    """What a comparison found."""

    observations: int
    tolerance: float
    largest_difference: float  # among the observations that float32 can decide
    on_threshold: int  # observations that differ because a neuron was within rounding of its threshold
    unexplained: int  # observations that differ without such a reason
    passed: bool

    def __str__(self) -> str:
        same = self.observations - self.on_threshold - self.unexplained
        if self.tolerance == 0:
            return f"{same:,} of {self.observations:,} observations agree bit for bit"
        text = f"{same:,} of {self.observations:,} observations agree to {self.tolerance:.0e}"
        text += f" (largest difference {self.largest_difference:.1e})"
        if self.on_threshold:
            text += f"; {_differ(self.on_threshold)} because a neuron is within float32 rounding of its threshold"
        if self.unexplained:
            text += f"; {_differ(self.unexplained)} for no such reason"
        return text

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def _differ(count: int) -> str:
    return f"{count:,} {'differs' if count == 1 else 'differ'}"


@torch.no_grad()
def trained_values(network: nn.Module, obs: NDArray[Any]) -> Array:
    """What the trained network says, normalisers and all, by torch in float64."""
    x = torch.from_numpy(obs)
    values: Array = copy.deepcopy(network).cpu().double().eval()(x if obs.dtype == np.uint8 else x.double()).numpy()
    return values


def compare(
    expected: Array,
    values: Callable[[NDArray[Any]], NDArray[Any]],
    network: PolicyGraph,
    obs: NDArray[Any],
    exact: bool,
) -> Parity:
    """``values`` of an exported policy against the ``expected`` ones; ``network`` says where rounding decides.

    ``exact``: the export computes in float64, so nothing is forgiven.
    """
    found = values(obs)
    if found.shape != expected.shape:
        raise ValueError(f"the exported policy gives values of shape {found.shape}, expected {expected.shape}")
    tolerance = TOLERANCE * max(1.0, float(np.abs(expected).max()) / LARGE)
    difference = np.abs(found - expected).max(1)
    difference[np.isnan(difference)] = np.inf
    differs = difference > tolerance
    near = np.zeros(len(obs), bool)
    if differs.any() and not exact:
        near[differs] = DeployedPolicy(network, compiled=False).trace(obs[differs]).margins < ROUNDING
    forgiven = differs & near
    unexplained = int((differs & ~near).sum())
    few = int(forgiven.sum()) <= max(1, int(ALLOWED * len(obs)))
    return Parity(
        observations=len(obs),
        tolerance=tolerance,
        largest_difference=float(difference[~forgiven].max(initial=0.0)),
        on_threshold=int(forgiven.sum()),
        unexplained=unexplained,
        passed=unexplained == 0 and few,
    )


def same_numbers(expected: NDArray[Any], found: NDArray[Any]) -> Parity:
    """Whole numbers are equal or wrong."""
    if found.shape != expected.shape:
        raise ValueError(f"the exported policy gives values of shape {found.shape}, expected {expected.shape}")
    difference = np.abs(found - expected).max(1)
    wrong = int((difference > 0).sum())
    return Parity(len(expected), 0.0, float(difference.max(initial=0)), 0, wrong, wrong == 0)
