"""A trained run as a policy: ``carebn.load(run_dir).predict(obs)``."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from gymnasium.spaces import Discrete, Space
from numpy.typing import NDArray
from torch import Tensor, nn

from carebn.algorithm import find_algorithm
from carebn.checksums import Mismatch, Vouched
from carebn.conversion import Converted, Simulation, shaped_like
from carebn.network import ANNActor, SpikingActor
from carebn.network.inference import FastActor
from carebn.network.randomness import is_random, seed_of, seeded
from carebn.reading import read_object
from carebn.training.best import POLICY as BEST
from carebn.training.best import read_best
from carebn.training.build import make_policy
from carebn.training.config import TrainConfig
from carebn.training.environment import Env, Spaces, spaces_from
from carebn.training.evaluation import Evaluation, play
from carebn.training.flat import flattened, own_spaces
from carebn.training.own_code import register
from carebn.training.policy_file import NAME, read_policy
from carebn.training.spaces_file import read_spaces
from carebn.training.worlds import MakeEnv, NeedsWord, Trust, env_of, given_env

OwnSpaces = tuple[Space[Any], Space[Any]]

Which = Literal["best", "last"]  # of the best evaluation on the way, or after the last step


class Policy:
    """Acts as Stable-Baselines3's policies do: ``predict(obs, state, episode_start) → (action, state)``.

    The state is None unless the policy carries something from one decision to the next (a converted policy with
    residual potentials, ``stateful``). Then what ``predict`` returns goes into the next call, and None or
    ``episode_start`` begins anew.
    """

    def __init__(
        self,
        network: nn.Module,
        config: TrainConfig,
        obs_dim: int,
        obs_dtype: Any,
        sampler: nn.Module | None = None,
        own: OwnSpaces | None = None,
        trust: Trust = False,
    ) -> None:
        self.network = network.eval().requires_grad_(False)
        self._random = is_random(network)
        self._fast = FastActor(network) if isinstance(network, SpikingActor) and not self._random else None
        self.config = config
        self.obs_dim = obs_dim
        self.obs_dtype = obs_dtype
        self._algorithm = find_algorithm(config.algo)
        self._sampler = None if sampler is None else sampler.eval().requires_grad_(False)
        self._rng = np.random.default_rng()
        self.own = own  # observations and actions as the environment itself has them
        self._action_start = int(own[1].start) if own is not None and isinstance(own[1], Discrete) else 0
        self._make: MakeEnv = partial(env_of, config, trust)

    def make_env(self, **options: Any) -> Env:
        """The environment it was trained in; modules that it needs are imported only if ``trust`` allows them."""
        return self._make(**options)

    def made_by(self, make: MakeEnv | None) -> Self:
        """The same policy, whose environment is made by this function (None: as before)."""
        if make is not None:
            self._make = make
        return self

    def evaluate(
        self,
        episodes: int = 10,
        seed: int = 1_000_000,
        env: Env | Callable[[], Env] | None = None,
        max_steps: int | None = None,
    ) -> Evaluation:
        """Noise-free episodes, the first from ``seed`` and so on; ``env``: in this environment, or what makes it. One
        without an end is cut after ``max_steps``."""
        if episodes < 1:
            raise ValueError(f"--episodes must be at least 1, got {episodes}")
        if seed < 0:
            raise ValueError(f"--seed must not be negative, got {seed}")
        make = self._make if env is None else given_env(env)
        envs: list[Env] = []
        try:
            envs += [make() for _ in range(episodes)]
            most = max_steps or self.config.eval_max_steps
            return play(self.act, envs, range(seed, seed + episodes), self.config.env_id, most)
        finally:
            for made in envs:
                made.close()

    def __repr__(self) -> str:
        return f"<carebn policy: {self.title()}; observations of size {self.obs_dim}>"

    def seed(self, seed: int) -> None:
        """Actions that are sampled (``deterministic=False``) follow from it."""
        self._rng = np.random.default_rng(seed)

    def title(self) -> str:
        """For people: what learnt where, and what became of it."""
        if not isinstance(self.network, Converted):
            return self.config.title()
        run = self.network.simulation
        residual = "" if run.residual == "none" else f", {run.residual} {run.alpha:g}"
        return f"{self.config.title()}, converted to {run.time_steps} steps{residual}"

    @property
    def stateful(self) -> bool:
        return isinstance(self.network, Converted) and self.network.simulation.residual != "none"

    def predict(
        self,
        observation: NDArray[Any],
        state: NDArray[Any] | None = None,
        episode_start: NDArray[np.bool_] | bool | None = None,
        deterministic: bool = True,
    ) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """For one observation or a batch of them, with a row of state each; actions as the environment numbers them.

        An observation that is no flat Box (a Dict, say) is taken one at a time as it comes, or made flat.
        ``deterministic=False`` samples where the algorithm has trained something to sample from (sac: a Gaussian), from
        the generator that ``seed`` starts. Other policies are deterministic and stay so, as does a converted one.
        """
        if self.own is not None:
            observation = flattened(self.own[0], observation)
        action, state = self.act(observation, state, episode_start, deterministic)
        return (action + self._action_start if self._action_start else action), state

    def act(
        self,
        observation: NDArray[Any],
        state: NDArray[Any] | None = None,
        episode_start: NDArray[np.bool_] | bool | None = None,
        deterministic: bool = True,
    ) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """``predict`` for what ``make_env`` gives: flat observations, actions numbered from zero."""
        obs = self.checked(observation)
        batch = obs.reshape(-1, self.obs_dim)
        if not deterministic and self._algorithm.sampling is not None and not isinstance(self.network, Converted):
            action: NDArray[Any] = self._sample(batch)
            state = None
        elif self._fast is not None:
            action = self._fast(batch)
            state = None
        elif self._random:
            action, state = self._each_by_itself(batch), None
        else:
            action, state = self._decide(batch, state, episode_start)
        return (action[0] if obs.ndim == 1 else action), state

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
        action: NDArray[Any] = (output.argmax(-1) if self._algorithm.discrete else output).numpy()
        return action

    def _decide(
        self,
        batch: NDArray[Any],
        state: NDArray[Any] | None = None,
        episode_start: NDArray[np.bool_] | bool | None = None,
    ) -> tuple[NDArray[Any], NDArray[Any] | None]:
        obs = torch.from_numpy(batch)
        kept: Tensor | None = None
        with torch.no_grad():
            if isinstance(self.network, Converted):
                carried = None
                if self.stateful and state is not None:
                    carried = torch.from_numpy(np.array(state, dtype=np.float32))
                    if episode_start is not None:
                        carried[np.array(np.broadcast_to(episode_start, len(carried)))] = 0
                out, kept = self.network.decide(obs, carried)
            else:
                out = self.network(obs)
        return self.choose(out), None if kept is None else kept.numpy()

    def _sample(self, batch: NDArray[Any]) -> NDArray[Any]:
        """From what the network gives before any bounds; the sampling network sees z-scores where the encoder does."""
        if self._sampler is None:
            raise ValueError(
                "this policy was saved without the spread of its actions, so none can be sampled; running the same "
                "carebn train command again adds it"
            )
        assert self._algorithm.sampling is not None
        network, obs = self.network, torch.from_numpy(batch)
        unbounded: Callable[[Tensor], Tensor] = network
        if isinstance(network, SpikingActor | ANNActor):
            unbounded, obs = network.potential, obs.float()
        zscore = network.encoder.zscore if isinstance(network, SpikingActor) else None
        with torch.no_grad():
            if self._random:
                rows = []
                for i, row in enumerate(batch):
                    with seeded(seed_of(row)):
                        rows.append(unbounded(obs[i : i + 1]))
                output = torch.cat(rows)
            else:
                output = unbounded(obs)
            seen = obs if zscore is None else zscore(obs)
            drawn = self._algorithm.sampling.draw(network, self._sampler, output, seen, self._rng)
        action: NDArray[Any] = drawn.numpy()
        return action

    def _each_by_itself(self, batch: NDArray[Any]) -> NDArray[Any]:
        """Random spikes drawn from the observation, so that an action depends on nothing else."""
        actions = []
        for row in batch:
            with seeded(seed_of(row)):
                actions.append(self._decide(row[None])[0])
        return np.concatenate(actions)


def read_config(run_dir: Path | str, trust: Trust = False) -> TrainConfig:
    """What was trained, whether or not it was converted afterwards."""
    return _read(run_dir, trust)[0]


def read_conversion(run_dir: Path | str, trust: Trust = False) -> dict[str, Any] | None:
    """The record of how a policy was converted to a spiking one; None: it is as it was trained."""
    return _read(run_dir, trust)[1]


def _read(run_dir: Path | str, trust: Trust) -> tuple[TrainConfig, dict[str, Any] | None]:
    path = Path(run_dir) / "config.json"
    try:
        data = read_object(path)
        conversion = data.pop("conversion", None)
        config = TrainConfig.from_json(data)
        register(config, trust, Path(run_dir))
        config = config.checked()
        Vouched(Path(run_dir)).check("config.json")
        return config, conversion
    except FileNotFoundError:
        raise ValueError(f"{run_dir} is not a run directory: it has no config.json") from None
    except NotADirectoryError:
        raise ValueError(f"{run_dir} is not a run directory: it is a file") from None
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror})") from error
    except (Mismatch, NeedsWord):
        raise
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from error


def _simulation(record: Any, path: Path) -> Simulation:
    kinds = {"time_steps": int, "read_out_from": int, "residual": str, "alpha": float}
    try:
        values = {name: record[name] for name in kinds}
        if not all(type(values[name]) is kind for name, kind in kinds.items()):
            raise TypeError
    except (KeyError, TypeError):
        wanted = ", ".join(kinds)
        raise ValueError(f"{path} cannot be read: its conversion needs {wanted}, each of the right type") from None
    return Simulation(**values)


def spaces_of_run(run_dir: Path | str, config: TrainConfig, trust: Trust = False) -> tuple[Spaces, OwnSpaces]:
    """From the run's own file; a run of an earlier version has none, and then its environment is asked."""
    own = read_spaces(Path(run_dir))
    if own is None:
        env = env_of(config, trust)
        own = own_spaces(env)
        env.close()
    return spaces_from(*own, config.env_id), own


def load(run_dir: Path | str, which: Which = "last", *, trust: Trust = False) -> Policy:
    """The policy of a run as of its last checkpoint, or that of its best evaluation, or a converted one. Nothing in the
    directory is executed.

    ``trust``: import the modules that the run's configuration names, all of them or those listed, where the environment
    is made (to evaluate, say), or where the policy itself is made of what they register.
    """
    config, conversion = _read(run_dir, trust)
    command = "train" if conversion is None else "convert"
    remedy = f"running the same carebn {command} command again restores it"
    path = Path(run_dir) / NAME
    if which == "best":
        if conversion is not None:
            raise ValueError(f"{run_dir} holds a converted policy, of which there is one alone; leave out --which best")
        read_best(Path(run_dir))
        path = Path(run_dir) / BEST
    elif which != "last":
        raise ValueError(f"which is best or last, got {which!r}")
    spaces, own = spaces_of_run(run_dir, config, trust)
    network = make_policy(config, spaces)
    if conversion is not None:
        network = shaped_like(network, _simulation(conversion, Path(run_dir) / "config.json"))
    tensors = read_policy(Path(run_dir), remedy, path.name)
    try:
        sampler = _sampler(config, spaces, tensors)
        network.load_state_dict(tensors)
    except RuntimeError as error:
        reason = str(error).splitlines()[0].rstrip(":")
        raise ValueError(f"{path} does not hold this run's policy: {reason}; {remedy}") from error
    loaded = [network] if sampler is None else [network, sampler]
    if not all(torch.isfinite(tensor).all() for part in loaded for tensor in part.state_dict().values()):
        raise ValueError(f"{path} holds NaN or infinity")
    if which == "last":  # a whole policy, but is it the one?
        Vouched(Path(run_dir)).check_policy(NAME, remedy)
    return Policy(network, config, spaces.obs_dim, spaces.obs_dtype, sampler, own, trust)


def _sampler(config: TrainConfig, spaces: Spaces, tensors: dict[str, Tensor]) -> nn.Module | None:
    """The network that actions are sampled with, its tensors taken out of a policy file's; None: there is none."""
    sampling = find_algorithm(config.algo).sampling
    if sampling is None:
        return None
    prefix = f"{sampling.name}."
    own = {name.removeprefix(prefix): tensors.pop(name) for name in list(tensors) if name.startswith(prefix)}
    network = sampling.make(spaces.obs_dim, spaces.actions or sum(spaces.action_shape))
    if network.state_dict() and not own:
        return None  # of a converted policy, or as earlier versions saved it
    network.load_state_dict(own)
    return network
