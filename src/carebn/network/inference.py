"""Acting: a spiking actor's actions for a few observations, from numpy to numpy, with moving statistics."""

from itertools import chain
from typing import TypeGuard

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from carebn.kernels import fused
from carebn.kernels.entries import KERNELS
from carebn.kernels.infer import GIVEN_MAP, NO_NORM, PLAIN_NORM, RAW, TANH
from carebn.kernels.pool import run
from carebn.network.actor import SpikingActor
from carebn.network.layer import SpikingLayer, is_plain
from carebn.norm import Norm


class FastActor:
    """Reads the actor's parameters and statistics where they are, so it always acts as the actor is now.

    ``FastActor.suits(actor)`` says whether it can: on the CPU, in float32, with deterministic coding and without
    connections inside a layer.
    """

    def __init__(self, actor: SpikingActor) -> None:
        self.actor = actor
        self._find()

    def _unmoved(self) -> bool:
        """Whether every tensor is still the one, and at the place, that was noted."""
        return all(held.get(name) is t and t.data_ptr() == place for held, name, t, place in self._noted)

    @staticmethod
    def suits(actor: object) -> TypeGuard[SpikingActor]:
        return (
            isinstance(actor, SpikingActor)
            and fused.usable(actor.encoder.mean)
            and actor.encoder.mean.dtype == torch.float32
            and actor.encoder.coding == "deterministic"
            and actor.decoder.readout in ("membrane", "rate")
            and all(type(layer) is SpikingLayer and layer.neuron.kernel_spec() for layer in actor.layers)
        )

    def _find(self) -> None:
        """Note where everything is. Training changes parameters in place, so this holds until the module is moved."""
        if not self.suits(self.actor):
            raise ValueError("this actor has moved to a device or precision that needs the module itself")
        self._noted = [
            (held, name, t, t.data_ptr())
            for module in self.actor.modules()
            for held in (module._parameters, module._buffers)
            for name, t in held.items()
            if t is not None
        ]
        actor, encoder, decoder = self.actor, self.actor.encoder, self.actor.decoder
        layers = [layer for layer in actor.layers if isinstance(layer, SpikingLayer)]
        spec = layers[0].neuron.kernel_spec()
        assert spec is not None
        self._zscore = encoder.zscore
        self._obs_dim, self._steps = encoder.obs_dim, encoder.time_steps
        self._constants = torch.tensor((*spec.constants, *[0.0] * (6 - len(spec.constants))))
        self._encoder_constants = torch.tensor((encoder.threshold, encoder.subtract))
        self._eps = torch.tensor([getattr(layer.norm, "eps", 0.0) for layer in layers])
        squash = TANH if encoder.observation == "tanh" else RAW
        widest = max(encoder.out_features, *(layer.linear.out_features for layer in layers))
        # the batch goes between these two, the observations and counts behind
        self._shape = (self._steps, len(layers), encoder.obs_dim, encoder.population, squash, widest)
        self._family = spec.family
        self._encoder = tuple(
            t.data_ptr() for t in (encoder.mean, encoder.std, self._encoder_constants, self._constants)
        )
        self._layers = [self._entries(layer, self._eps[i : i + 1]) for i, layer in enumerate(layers)]
        self._given = [
            (i, layer.norm)
            for i, layer in enumerate(layers)
            if isinstance(layer.norm, Norm) and not is_plain(layer.norm)
        ]
        self._weight, self._bias = decoder.weight.detach().numpy(), decoder.bias.detach().numpy()
        self._rate = decoder.readout == "rate"
        bounds = actor.bounds
        self._middle, self._reach, self._low, self._high = (
            b.numpy() for b in (bounds.middle, bounds.reach, bounds.low, bounds.high)
        )

    @staticmethod
    def _entries(layer: SpikingLayer, eps: Tensor) -> list[int]:
        """The layer's part of the kernel's table."""
        linear, norm = layer.linear, layer.norm
        head = [linear.in_features, linear.out_features, linear.weight.data_ptr(), linear.bias.data_ptr()]
        if is_plain(norm):
            statistics = (norm.weight, norm.bias, norm.running_mean, norm.running_var, eps)
            return [*head, PLAIN_NORM, 1, *(t.data_ptr() for t in statistics)]
        return [*head, GIVEN_MAP if isinstance(norm, Norm) else NO_NORM, 1, 0, 0, 0, 0, 0]

    def __call__(self, obs: NDArray[np.float32]) -> NDArray[np.float32]:
        """Actions [B, A] for observations [B, obs]."""
        if not self._unmoved():
            self._find()
        if obs.ndim != 2 or obs.shape[1] != self._obs_dim:
            raise ValueError(f"expected observations of shape [B, {self._obs_dim}], got {obs.shape}")
        obs = np.ascontiguousarray(obs, dtype=np.float32)
        if not np.isfinite(obs).all():
            raise ValueError("got NaN or infinity in an observation")
        if self._zscore is not None:
            with torch.no_grad():
                obs = self._zscore(torch.from_numpy(obs)).numpy()
        batch = len(obs)
        counts = np.empty((batch, self._weight.size), dtype=np.float32)
        maps = []  # what the kernel reads must outlive the call
        for i, norm in self._given:
            with torch.no_grad():
                maps.append([m.reshape(-1, m.shape[-1]).contiguous() for m in norm.moving_scale_shift()])
            self._layers[i][5:8] = [len(maps[-1][0]), *(m.data_ptr() for m in maps[-1])]
        run(
            KERNELS[torch.float32]["act"],
            self._family, batch, *self._shape, obs.ctypes.data, *self._encoder, counts.ctypes.data, 0,
            *chain.from_iterable(self._layers),
        )  # fmt: skip
        read = np.einsum("bop,op->bo", counts.reshape(batch, *self._weight.shape), self._weight)
        potential = read / self._steps + self._bias if self._rate else read + self._steps * self._bias
        action: NDArray[np.float32] = self._middle + self._reach * np.tanh(potential)
        return np.clip(action, self._low, self._high)
