"""Vectors of eight and of sixteen floats: the same bits, because every column is summed by itself."""

import os
import subprocess
import sys

import pytest

CODE = """
import hashlib
import numpy as np
import torch
from carebn.kernels.simd import LANES
from carebn.network import SpikingActor, SpikingLayer
from carebn.network.inference import FastActor

torch.set_num_threads(1)
digest = hashlib.sha256()

def note(*tensors):
    for t in tensors:
        digest.update(t.detach().numpy().tobytes())

for norm in ("care", "none", "tdbn"):
    for obs_dim, hidden in ((4, (37, 130)), (11, (256, 9))):
        torch.manual_seed(0)
        actor = SpikingActor(obs_dim, 3, norm=norm, hidden=hidden)
        action = actor(torch.randn(100, obs_dim))
        gradients = torch.autograd.grad(action.square().sum(), list(actor.parameters()))
        note(action, *gradients, *actor.state_dict().values())
        note(torch.from_numpy(FastActor(actor)(np.ones((3, obs_dim), np.float32))))
        with torch.no_grad():
            note(actor.eval()(torch.randn(100, obs_dim)))
torch.manual_seed(0)
layer = SpikingLayer(70, 41, neuron="dn", norm="tab")  # layer by layer, with products by look-up
spikes = layer((torch.rand(5, 120, 70) < 0.4).float())
note(spikes, *torch.autograd.grad(spikes.sum(), list(layer.parameters())), *layer.state_dict().values())
print(LANES, digest.hexdigest())
"""


@pytest.mark.slow
def test_results_do_not_depend_on_the_width_of_a_vector():
    said = []
    for lanes in ("8", "16"):
        child = subprocess.run(
            [sys.executable, "-c", CODE],
            env=os.environ | {"CAREBN_LANES": lanes},
            capture_output=True,
            text=True,
            timeout=600,
            check=True,
        )
        width, digest = child.stdout.split()
        assert width == lanes
        said.append(digest)
    assert said[0] == said[1]
