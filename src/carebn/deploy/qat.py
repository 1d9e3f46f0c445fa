"""Fine-tuning of integer weights: the rounded network learns to act as the trained one, on observations of its run.

Distillation, straight through the rounding: forward, every weight is the nearest level times its factor; backward, the
rounding is not there. The error is that of the actions and that of the spikes of every layer, which have the
rectangular surrogate gradient that training uses. The network with the smallest
error on observations that were held back is kept, which may be the one that there was before.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from carebn.deploy.graph import LEVELS, Array, Integers, Layer, PolicyGraph
from carebn.deploy.quantise import NEAR
from carebn.deploy.runtime import checked, currents, decode, encode, fire, read_out
from carebn.deploy.threshold_gaps import with_centred_thresholds
from carebn.gradients import apply

BATCH = 256
NEAREST = 0.45  # of a level: as near to the trained weight as it may start without being rounded otherwise
HELD_BACK = 4  # one observation of so many
LOOKS = 10  # how often the error is measured on the way
LEARNING_RATE = {"int8": 0.005, "int16": 1.0}  # in levels
BIAS_LEARNING_RATE = 1e-4
KNOWN = ("lif", "clif", "if", "relu")


def tuned(
    trained: PolicyGraph, rounded: PolicyGraph, weights: str, obs: NDArray[Any], steps: int, shared: bool = False
) -> PolicyGraph:
    """The rounded network with better levels and biases, after ``steps`` batches of ``obs``. ``shared``: neurons of a
    layer keep the factor that they have in common."""
    if any(layer.neuron.kind not in KNOWN for layer in rounded.layers):
        raise ValueError(f"--qat knows the neurons {', '.join(KNOWN)}; export without it")
    rows = checked(obs, rounded.encoder)
    held, seen = rows[::HELD_BACK], np.delete(rows, slice(None, None, HELD_BACK), axis=0)
    if not len(seen):
        return rounded
    aim, aim_held = values_of(trained, seen), values_of(trained, held)
    spread = np.maximum(aim.std(0), 1e-6)
    rng = np.random.default_rng(0)
    x = torch.from_numpy(encode(rounded.encoder, rounded.time_steps, seen).astype(np.float32))
    aims = torch.from_numpy((aim / spread).astype(np.float32))
    inside = [torch.from_numpy(spikes.astype(np.float32)) for spikes in _spikes(trained, seen)]
    worth = torch.from_numpy(spread.astype(np.float32))
    latent = [_Latent(*pair) for pair in zip(rounded.layers, trained.layers, strict=True)]
    groups = [
        {"params": [part.levels for part in latent], "lr": LEARNING_RATE[weights]},
        {"params": [part.bias for part in latent], "lr": BIAS_LEARNING_RATE},
    ]
    optimiser = torch.optim.Adam(groups)
    calmer = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.01, steps)
    best, least = rounded, _error(rounded, held, aim_held, spread)
    for step in range(1, steps + 1):
        chosen = torch.from_numpy(rng.integers(0, len(seen), min(BATCH, len(seen))))
        said, spikes = _forward(rounded, latent, x[:, chosen], weights)
        loss = (said / worth - aims[chosen]).square().mean()
        for fired, wanted in zip(spikes, inside, strict=True):
            loss = loss + (fired - wanted[:, chosen]).square().mean()
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        calmer.step()
        if step == steps or step % max(steps // LOOKS, 1) == 0:
            layers = tuple(part.rounded(weights) for part in latent)
            found = replace(rounded, layers=layers)
            found = (found if shared else with_centred_thresholds(found, seen, NEAR[weights])).rounded(np.float32)
            error = _error(found, held, aim_held, spread)
            if error < least:
                best, least = found, error
    return best


def values_of(network: PolicyGraph, rows: NDArray[np.float32]) -> Array:
    """Actions, or values of a discrete policy."""
    return decode(network.bounds, read_out(network.readout, _spikes(network, rows)[-1]))


def _spikes(network: PolicyGraph, rows: NDArray[np.float32]) -> list[Array]:
    """Of every layer."""
    x, found = encode(network.encoder, network.time_steps, rows), []
    for layer in network.layers:
        x = fire(layer, currents(layer, x, network.time_steps))
        found.append(x)
    return found


def _error(network: PolicyGraph, rows: NDArray[np.float32], aim: Array, spread: Array) -> float:
    return float(np.mean(((values_of(network, rows) - aim) / spread) ** 2))


class _Latent:
    """What is learned of a layer: its levels before rounding, and its biases."""

    def __init__(self, layer: Layer, trained: Layer) -> None:
        assert layer.integers is not None
        self.layer, self.whole = layer, layer.integers
        apart = np.clip(trained.weight / self.whole.factor - self.whole.levels, -NEAREST, NEAREST)
        self.levels = torch.tensor((self.whole.levels + apart).astype(np.float32), requires_grad=True)
        self.bias = torch.tensor(layer.bias.astype(np.float32), requires_grad=True)
        self.factor = torch.from_numpy(self.whole.factor.astype(np.float32))
        self.scale = None if layer.scale is None else torch.from_numpy(layer.scale.astype(np.float32))

    def currents(self, x: Tensor, weights: str) -> Tensor:
        last = LEVELS[weights]
        near = self.levels + (self.levels.detach().round() - self.levels.detach())  # straight through
        z = x @ (near.clamp(-last, last) * self.factor)
        if self.scale is not None:
            z = z * self.scale[:, None]
        return z + self.bias[:, None]

    def rounded(self, weights: str) -> Layer:
        last = LEVELS[weights]
        levels = self.levels.detach().round().clamp(-last, last).numpy().astype(weights)
        whole = Integers(levels, self.whole.factor)
        bias = self.bias.detach().numpy().astype(np.float64)
        return replace(self.layer, weight=whole.weight, bias=bias, integers=whole)


def _forward(network: PolicyGraph, latent: list[_Latent], x: Tensor, weights: str) -> tuple[Tensor, list[Tensor]]:
    """Actions (or values), and the spikes of every layer."""
    steps, spikes = network.time_steps, []
    for part in latent:
        current = part.currents(x, weights)
        current = current if len(current) == steps else current.expand(steps, *current.shape[1:])
        x = _fire(part.layer, current)
        spikes.append(x)
    readout = network.readout
    weight, bias = (torch.from_numpy(a.astype(np.float32)) for a in (readout.weight, readout.bias))
    if readout.kind == "sum":
        share = torch.from_numpy(readout.share.astype(np.float32))
        values = torch.tensordot(share, x, 1) @ weight + bias
    else:
        potentials = (x @ weight + bias).cumsum(0)
        values = potentials.gather(0, potentials.detach().abs().argmax(0, keepdim=True))[0]
    if network.bounds is None:
        return values, spikes
    middle, reach = (torch.from_numpy(a.astype(np.float32)) for a in (network.bounds.middle, network.bounds.reach))
    return middle + reach * torch.tanh(values), spikes


def _fire(layer: Layer, currents: Tensor) -> Tensor:
    kind, constants = layer.neuron.kind, layer.neuron.constants
    if kind == "relu":
        return torch.relu(currents)
    threshold, fade = constants["v_threshold"], constants.get("current_decay", 0.0)
    leak = 1.0 if kind == "if" else constants["decay"]
    c, v = torch.zeros_like(currents[0]), torch.full_like(currents[0], constants.get("v_start", 0.0))
    spikes = []
    for now in currents:
        c = fade * c + now
        v = leak * v + c
        spike = apply(_Spike, v, threshold)
        v = v - spike * threshold if kind == "if" else v * (1 - spike)
        spikes.append(spike)
    return torch.stack(spikes)


class _Spike(torch.autograd.Function):
    """1 above the threshold; the gradient is that of a ramp as wide as the threshold on either side."""

    @staticmethod
    def forward(ctx: Any, v: Tensor, threshold: float) -> Tensor:
        ctx.save_for_backward((v - threshold).abs() <= max(threshold, 1e-6))
        ctx.width = 2 * max(threshold, 1e-6)
        return (v > threshold).to(v.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (near,) = ctx.saved_tensors
        return grad * near / ctx.width, None
