"""A normaliser inside a spiking actor, where a fused kernel does its work, follows the same reference."""

from copy import deepcopy

import pytest
import torch

from carebn import SpikingActor

from .helpers import MOMENTUM, NORM_NAMES, close
from .reference import Moving

T = 4
SIZES = (5, 9, 7)


@pytest.mark.parametrize("momentum", ["default", None])
@pytest.mark.parametrize("name", NORM_NAMES)
def test_moving_statistics_while_an_actor_trains(name, momentum):
    """Every layer's inputs are read off a watched copy, which takes the path without the kernel."""
    torch.manual_seed(3)
    options = {} if momentum == "default" else {"momentum": momentum}
    actor = SpikingActor(3, 2, norm=name, hidden=(6,), time_steps=T, norm_options=options).double()
    watched = deepcopy(actor)
    seen = [[] for _ in watched.layers]
    for layer, inputs in zip(watched.layers, seen, strict=True):
        layer.norm.register_forward_hook(lambda module, args, output, inputs=inputs: inputs.append(args[0].detach()))
    for size in SIZES:
        obs = torch.randn(size, 3, dtype=torch.float64)
        actor(obs)
        watched(obs)
    for layer, inputs in zip(actor.layers, seen, strict=True):
        assert len(inputs) == len(SIZES)
        moving = Moving(name, T, layer.norm.num_features, MOMENTUM[name] if momentum == "default" else None)
        for x in inputs:
            moving.update(x.numpy())
        close(layer.norm.running_mean, moving.mean)
        close(layer.norm.running_var, moving.var)
        assert int(layer.norm.num_batches_tracked) == len(SIZES)
        if name in ("care", "ca"):
            close(layer.norm.error_mean, moving.error_mean)
            close(layer.norm.error_var, moving.error_var)
