"""From an observation to spikes: populations of neurons with Gaussian receptive fields."""

import math

import torch
from torch import Tensor, nn

from carebn.errors import unknown_name
from carebn.introspection import stands_for
from carebn.kernels import fused
from carebn.network.straight_through import straight_through
from carebn.router import why_not_fields

CODINGS = ("deterministic", "poisson", "analogue")
OBSERVATIONS = ("tanh", "zscore", "raw")
RESETS = ("spike", "threshold")


def _is_finite(x: Tensor) -> bool:
    """The sum is a quarter of the work, and only an overflow of the sum itself needs the second look."""
    return math.isfinite(float(x.detach().sum())) or bool(torch.isfinite(x).all())


class ZScore(nn.Module):
    """Running standardisation of observations, clipped; updated only by ``update``, never by a forward pass."""

    running_mean: Tensor
    running_var: Tensor
    count: Tensor

    def __init__(self, size: int, clip: float = 3.0) -> None:
        super().__init__()
        self.clip = clip
        self.register_buffer("running_mean", torch.zeros(size))
        self.register_buffer("running_var", torch.ones(size))
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))

    @torch.no_grad()
    def update(self, observations: Tensor) -> None:
        """Merge in the statistics of these observations [B, obs] (Chan's parallel formula)."""
        batch = observations.shape[0]
        if batch == 0 or not _is_finite(observations):
            raise ValueError("got no observations, or NaN or infinity in them; the running statistics are unchanged")
        var, mean = torch.var_mean(observations.double(), 0, correction=0)
        total = self.count + batch
        gap = mean - self.running_mean
        second = self.running_var * self.count + var * batch + gap * gap * self.count * batch / total
        self.running_mean.copy_(self.running_mean + gap * batch / total)
        self.running_var.copy_(second / total)
        self.count.copy_(total)

    def forward(self, x: Tensor) -> Tensor:
        z = (x - self.running_mean) / (self.running_var + torch.finfo(x.dtype).eps).sqrt()
        return z.clamp(-self.clip, self.clip)


@stands_for("encoder", "stimulation spikes forward out_features", "mean std zscore threshold subtract coding")
class PopulationEncoder(nn.Module):
    """``encoder(obs: [B, obs_dim]) → spikes [T, B, obs_dim·population]``.

    Each observation, squashed by tanh, excites a population through Gaussian receptive fields with trainable means and
    widths. The excitation A drives soft-reset integrate-and-fire neurons: V = V + A; spike if V > 0.999; V = V − spike.
    The gradient of every spike with respect to A is taken as one.

    - ``coding``: ``deterministic``, those neurons; ``poisson``, a spike with probability A at every step;
      ``analogue``, A itself, the same at every step, given as [1, B, N]
    - ``observation``: ``tanh``, ``zscore`` (running standardisation, see ``ZScore``) or ``raw``
    - ``reset``: what a spike subtracts, ``spike`` (1, the paper) or ``threshold`` (0.999, PopSAN and authors' code)
    """

    def __init__(
        self,
        obs_dim: int,
        population: int = 10,
        time_steps: int = 5,
        *,
        coding: str = "deterministic",
        observation: str = "tanh",
        reset: str = "spike",
        threshold: float = 0.999,
        mean_range: float = 1.0,
        std: float = math.sqrt(0.05),
    ) -> None:
        super().__init__()
        for what, value, known in (
            ("coding", coding, CODINGS),
            ("observation", observation, OBSERVATIONS),
            ("reset", reset, RESETS),
        ):
            if value not in known:
                raise ValueError(unknown_name(what, value, known))
        self.obs_dim = obs_dim
        self.population = population
        self.time_steps = time_steps
        self.coding = coding
        self.observation = observation
        self.threshold = threshold
        self.subtract = 1.0 if reset == "spike" else threshold
        self.mean = nn.Parameter(torch.linspace(-mean_range, mean_range, population).repeat(obs_dim, 1))
        self.std = nn.Parameter(torch.full((obs_dim, population), std))
        self.zscore = ZScore(obs_dim) if observation == "zscore" else None

    @property
    def out_features(self) -> int:
        return self.obs_dim * self.population

    def stimulation(self, obs: Tensor) -> Tensor:
        """A [B, N], differentiable."""
        if obs.ndim != 2 or obs.shape[1] != self.obs_dim:
            raise ValueError(f"expected observations of shape [B, {self.obs_dim}], got {tuple(obs.shape)}")
        if not torch.compiler.is_compiling() and not _is_finite(obs):
            raise ValueError("got NaN or infinity in an observation")
        if self.zscore is not None:
            obs = self.zscore(obs)
        elif self.observation == "tanh":
            obs = torch.tanh(obs)
        if not why_not_fields(self, obs):
            return fused.receptive_fields(obs, self.mean, self.std)
        u = (obs[..., None] - self.mean) * (1 / self.std)
        return torch.exp(-(u * u * 0.5)).flatten(1)

    def spikes(self, stimulation: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Spikes of a stimulation, without a gradient: [T, B, N], or [1, B, N] for analogue coding."""
        a = stimulation.detach()
        if self.coding == "analogue":
            return a[None]
        if self.coding == "poisson":
            uniform = torch.rand(self.time_steps, *a.shape, generator=generator, dtype=a.dtype, device=a.device)
            return (uniform < a).to(a.dtype)
        v = torch.zeros_like(a)
        spikes = []
        for _ in range(self.time_steps):
            v = v + a
            spike = (v > self.threshold).to(a.dtype)
            v = v - spike * self.subtract
            spikes.append(spike)
        return torch.stack(spikes)

    def forward(self, obs: Tensor, generator: torch.Generator | None = None) -> Tensor:
        a = self.stimulation(obs)
        return straight_through(self.spikes(a, generator), a)
