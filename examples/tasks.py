"""Two small tasks for a spiking network of any library: scikit-learn's digits, and balancing a pole.

``run(net, x)`` takes the network from a fresh state through x [T, B, inputs], and gives its outputs [T, B, outputs].
"""

import sys
from collections.abc import Callable

import gymnasium as gym
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from carebn import recalibrate

Run = Callable[[nn.Module, Tensor], Tensor]
STEPS = 4  # simulation steps; the input is the same at each (direct coding)


def repeated(x: Tensor) -> Tensor:
    return x.expand(STEPS, *x.shape)


def classify(net: nn.Module, run: Run, epochs: int = 8) -> float:
    """Trains ``net`` (64 inputs, 10 outputs) on pictures of digits; the share of unseen ones that it gets right."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        sys.exit("the digits are scikit-learn's: pip install scikit-learn")

    pictures, digits = load_digits(return_X_y=True)
    x, y = torch.tensor(pictures / 16, dtype=torch.float32), torch.tensor(digits)
    optimiser = torch.optim.Adam(net.parameters(), lr=3e-3)
    net.train()
    for _ in range(epochs):
        for batch in torch.randperm(1300).split(100):
            loss = F.cross_entropy(run(net, repeated(x[batch])).mean(0), y[batch])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    net.eval()
    with torch.no_grad():
        return float((run(net, repeated(x[1300:])).mean(0).argmax(-1) == y[1300:]).float().mean())


def balance(net: nn.Module, run: Run, rounds: int = 25, envs: int = 16) -> float:
    """Trains ``net`` (4 inputs, 2 outputs) to hold CartPole's pole up; the steps that it then does so, of 200.

    In each round it imitates the better third of its own episodes (the cross-entropy method). It acts with moving
    statistics and learns with those of the batch; re-calibration makes the two agree.
    """
    world = gym.make_vec("CartPole-v1", envs, max_episode_steps=200)
    optimiser = torch.optim.Adam(net.parameters(), lr=5e-3)

    def play(seed: int, greedy: bool = False) -> tuple[Tensor, Tensor, Tensor]:
        """An episode in each world: observations and actions [steps, worlds], and where the pole was still up."""
        net.eval()
        (obs, _), up = world.reset(seed=seed), np.ones(envs, bool)
        rows = []
        while up.any():
            seen = torch.from_numpy(obs)
            with torch.no_grad():
                logits = run(net, repeated(seen)).mean(0)
            action = logits.argmax(-1) if greedy else torch.distributions.Categorical(logits=logits).sample()
            rows.append((seen, action, torch.from_numpy(up)))
            obs, _, terminated, truncated, _ = world.step(action.numpy())
            up = up & ~(terminated | truncated)
        seen, action, lasting = (torch.stack(column) for column in zip(*rows, strict=True))
        return seen, action, lasting

    for i in range(rounds):
        obs, action, up = play(seed=i)
        lengths = up.sum(0)
        better = up & (lengths >= lengths.float().quantile(2 / 3))
        net.train()
        for _ in range(8):
            loss = F.cross_entropy(run(net, repeated(obs[better])).mean(0), action[better])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        recalibrate(net, [repeated(obs[up])], forward=run)
    return float(play(seed=rounds, greedy=True)[2].sum()) / envs
