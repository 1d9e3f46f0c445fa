"""Acting: an actor's actions for a few observations, from numpy to numpy, with moving statistics."""

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from carebn.introspection import Noted, not_dense
from carebn.kernels import act
from carebn.kernels.catalogue import KERNELS
from carebn.kernels.fused import constants, neuron_fields
from carebn.kernels.plans import LayerPlan, NotForKernelsError
from carebn.kernels.pool import NOT_FINITE
from carebn.kernels.tables import Filled
from carebn.norm import Norm
from carebn.router import is_plain_batch_norm, moving_map, plan_acting, why_not_here

SINGLE = torch.float32
NOBODY = (0, 0, 0, 0)  # the header of a layer's table: threads look at the actor's


_one_at_a_time = threading.RLock()  # a mode belongs to a module, not to the thread that set it


@contextmanager
def moving_statistics(norms: list[Norm]) -> Iterator[None]:
    """Inside, these use their moving statistics and change nothing; afterwards each is in the mode it was in."""
    with _one_at_a_time:
        modes = [norm.training for norm in norms]
        for norm in norms:
            norm.training = False
        try:
            yield
        finally:
            for norm, mode in zip(norms, modes, strict=True):
                norm.training = mode


class _Plan:
    """An actor as the kernel reads it. Nothing in it changes, so several threads may use it at once."""

    def __init__(self, actor: Any, layers: list[LayerPlan]) -> None:
        encoder, decoder, bounds = actor.encoder, actor.decoder, actor.bounds
        self._noted = Noted(actor.modules())
        self._belongs = decoder.belongs.detach().numpy()
        self._populations = self._belongs.tobytes()
        self._layers, self._neurons = layers, [layer.neuron for layer in actor.layers]
        given = any(map(_has_given_map, layers))  # by torch, from what the norm is when it acts
        self._zscore = encoder.zscore
        self.obs_dim, self._steps = encoder.obs_dim, int(encoder.time_steps)  # with numpy's, actions would be float64
        self._tables = None if given else _layer_tables(layers, self._steps)
        self._outputs = len(layers[-1].weight)
        self._fields = {
            "steps": self._steps, "layers": len(layers), "obs_dim": encoder.obs_dim,
            "population": encoder.population, "outputs": self._outputs,
            "squash": act.TANH if encoder.observation == "tanh" and encoder.zscore is None else act.RAW,
            "widest": max(encoder.out_features, *(len(layer.weight) for layer in layers)),
            "mean": encoder.mean, "std": encoder.std,
            "constants": constants((encoder.threshold, encoder.subtract), SINGLE),
        }  # fmt: skip
        self._weight, self._bias = decoder.weight.detach().numpy(), decoder.bias.detach().numpy()
        self._rate = decoder.readout == "rate"
        self._middle, self._reach, self._low, self._high = (
            b.detach().numpy() for b in (bounds.middle, bounds.reach, bounds.low, bounds.high)
        )

    def holds(self) -> bool:
        """Whether the actor is still, in every part, what it was. Training changes numbers in place, which is none."""
        # no version counts what changes through .data
        same = self._belongs.tobytes() == self._populations and self._noted.holds()
        # something may compute a neuron's constants
        return same and [neuron.kernel_spec() for neuron in self._neurons] == [layer.spec for layer in self._layers]

    def run(self, obs: NDArray[np.float32]) -> NDArray[np.float32]:
        x = torch.from_numpy(obs)
        if self._zscore is not None:
            with torch.no_grad():
                x = self._zscore(x)
            if not_dense(x, "the observation", SINGLE, *obs.shape):
                raise NotForKernelsError
        counts = torch.empty(len(obs), self._outputs, dtype=SINGLE, device="cpu")
        _kept, places = self._tables or _layer_tables(self._layers, self._steps)
        # threads share observations, so that one alone is one thread's work
        noticed = KERNELS["act"](
            SINGLE, serially=len(obs) == 1, batch=len(obs), obs=x, tables=places, counts=counts, **self._fields
        )
        if noticed & NOT_FINITE:
            raise NotForKernelsError  # a norm's map: multiplied out it is another one then
        if not math.isfinite(self._weight.sum(dtype=np.float64)):
            raise NotForKernelsError  # the module makes 0·NaN of what belongs to other outputs
        read = np.einsum("bop,op->bo", counts.numpy().reshape(-1, *self._weight.shape), self._weight)
        potential = read / self._steps + self._bias if self._rate else read + self._steps * self._bias
        action: NDArray[np.float32] = self._middle + self._reach * np.tanh(potential)
        return np.clip(action, self._low, self._high)


def _has_given_map(layer: LayerPlan) -> bool:
    return layer.norm is not None and not is_plain_batch_norm(layer.norm)


def _layer_table(layer: LayerPlan, time_steps: int) -> Filled:
    norm = layer.norm
    maps: tuple[Tensor, ...] | tuple[None, None] = (None, None)
    kind, steps = (act.NO_NORM if norm is None else act.PLAIN_BATCH_NORM), 1
    if _has_given_map(layer):
        with torch.no_grad():
            maps = moving_map(norm)
        if maps[0].shape != maps[1].shape or maps[0].shape not in (
            (1, len(layer.weight)),
            (time_steps, len(layer.weight)),
        ):
            raise NotForKernelsError
        kind, steps = act.GIVEN_MAP, len(maps[0])
    is_batch_norm = kind == act.PLAIN_BATCH_NORM
    fields = {
        "inputs": layer.weight.shape[1], "outputs": layer.weight.shape[0], "map": kind, "map_steps": steps,
        "eps": norm.eps if is_batch_norm else 0.0, "weight": layer.weight, "bias": layer.bias,
        "norm_weight": norm.weight if is_batch_norm else None, "norm_bias": norm.bias if is_batch_norm else None,
        "running_mean": norm.running_mean if is_batch_norm else None,
        "running_var": norm.running_var if is_batch_norm else None,
        "scale": maps[0], "shift": maps[1],
    }  # fmt: skip
    return act.LAYER.fill(NOBODY, 1, SINGLE, {**fields, **neuron_fields(layer.spec, SINGLE)})


def _layer_tables(layers: list[LayerPlan], time_steps: int) -> tuple[list[Filled], Tensor]:
    """The layers' tables, which have to be kept, and their addresses."""
    tables = [_layer_table(layer, time_steps) for layer in layers]
    return tables, torch.tensor([table.address for table in tables], dtype=torch.int64, device="cpu")


class FastActor:
    """Acts as the actor is now: compiled where ``plan_acting`` allows it, else by the module itself."""

    def __init__(self, actor: nn.Module) -> None:
        self.actor = actor
        self._plan: _Plan | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_plan": None}  # a copy's tensors lie elsewhere

    def __call__(self, obs: NDArray[Any]) -> NDArray[np.float32]:
        """Actions [B, A] for observations [B, obs]."""
        obs = np.asarray(obs, dtype=np.float32, order="C")
        if not obs.flags.writeable or min(obs.strides, default=0) < 0:  # which torch does not take, even of one row
            obs = obs.copy()
        plan = self._plan
        if why_not_here():
            plan = None
        elif plan is None or not plan.holds():
            found = plan_acting(self.actor)
            plan = self._plan = None if isinstance(found, str) else _Plan(self.actor, found)
        if plan is None or obs.size == 0:
            return self._by_the_module(obs)
        if obs.ndim != 2 or obs.shape[1] != plan.obs_dim:
            raise ValueError(f"expected observations of shape [B, {plan.obs_dim}], got {obs.shape}")
        if not np.isfinite(obs).all():
            raise ValueError("got NaN or infinity in an observation")
        with suppress(NotForKernelsError):
            return plan.run(obs)
        return self._by_the_module(obs)

    def _by_the_module(self, obs: NDArray[np.float32]) -> NDArray[np.float32]:
        norms = [module for module in self.actor.modules() if isinstance(module, Norm)]
        device = next(self.actor.parameters()).device
        with torch.no_grad(), moving_statistics(norms):
            action: Tensor = self.actor(torch.from_numpy(obs).to(device))
            return action.cpu().numpy()
