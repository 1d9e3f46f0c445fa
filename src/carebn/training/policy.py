"""A trained run as a policy: ``carebn.load(run_dir).predict(obs)``."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from torch import Tensor, nn

from carebn.network.inference import FastActor
from carebn.training.build import make_policy
from carebn.training.config import TrainConfig
from carebn.training.environment import make_env, spaces_of


class Policy:
    """Acts as Stable-Baselines3's policies do: ``predict(obs, deterministic=True) → (action, None)``."""

    def __init__(self, network: nn.Module, config: TrainConfig, obs_dim: int, obs_dtype: Any) -> None:
        self.network = network.eval().requires_grad_(False)
        self._fast = FastActor(network) if FastActor.suits(network) else None
        self.config = config
        self.obs_dim = obs_dim
        self.obs_dtype = obs_dtype

    def predict(
        self,
        observation: NDArray[Any],
        state: None = None,
        episode_start: Any = None,
        deterministic: bool = True,
    ) -> tuple[NDArray[Any], None]:
        """For one observation or a batch of them. Trained policies are deterministic; the arguments are SB3's."""
        obs = self.checked(observation)
        batch = obs.reshape(-1, self.obs_dim)
        if self._fast is not None:
            action: NDArray[Any] = self._fast(batch)
        else:
            with torch.no_grad():
                action = self.choose(self.network(torch.from_numpy(batch)))
        return (action[0] if obs.ndim == 1 else action), None

    def checked(self, observation: NDArray[Any]) -> NDArray[Any]:
        """One observation or a batch of them as the network takes them; one sentence if they are not of its kind."""
        obs = np.asarray(observation)
        if obs.shape[-1:] != (self.obs_dim,) or obs.ndim > 2:
            raise ValueError(f"expected an observation of size {self.obs_dim}, got shape {obs.shape}")
        if self.obs_dtype == np.uint8 and obs.dtype != np.uint8:
            raise ValueError(f"expected an observation of bytes (uint8), got {obs.dtype}")
        obs = np.ascontiguousarray(obs, dtype=self.obs_dtype)
        if not np.isfinite(obs).all():
            raise ValueError("got NaN or infinity in an observation")
        return obs

    def choose(self, output: Tensor) -> NDArray[Any]:
        """The action for what the network returned: that itself, or the action of the largest Q."""
        action: NDArray[Any] = (output.argmax(-1) if self.config.algo == "dqn" else output).numpy()
        return action


def read_config(run_dir: Path | str) -> TrainConfig:
    path = Path(run_dir) / "config.json"
    try:
        return TrainConfig.from_json(json.loads(path.read_bytes()))
    except FileNotFoundError:
        raise ValueError(f"{run_dir} is not a run directory: it has no config.json") from None
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from error


def load(run_dir: Path | str) -> Policy:
    """The policy of a run, as of its last checkpoint. Nothing in the directory is executed."""
    config = read_config(run_dir)
    path = Path(run_dir) / "policy.safetensors"
    env = make_env(config.env_id, config.import_modules)
    spaces = spaces_of(env, config.env_id)
    env.close()
    network = make_policy(config, spaces)
    try:
        network.load_state_dict(safetensors.torch.load_file(path))
    except FileNotFoundError:
        raise ValueError(f"{run_dir} has no policy yet: it was stopped before its first checkpoint") from None
    except (SafetensorError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"{path} does not hold this run's policy: {reason}") from error
    if not all(torch.isfinite(tensor).all() for tensor in network.state_dict().values()):
        raise ValueError(f"{path} holds NaN or infinity")
    return Policy(network, config, spaces.obs_dim, spaces.obs_dtype)
