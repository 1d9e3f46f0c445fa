"""Agents for notebooks, in the manner of Stable-Baselines3: ``TD3("Hopper-v4").learn(20_000).predict(obs)``.

An agent is a run directory and what can be done with it. Learning again goes on where it stopped; the directory ends as
if all steps had been asked for at once, also when the process was killed on the way.
"""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from carebn.algorithm import ALGORITHMS
from carebn.api import AnyEnv, RunResult, configured, read_result, train_and_read
from carebn.training.callbacks import Callback
from carebn.training.checkpoint import CheckpointStore
from carebn.training.config import TrainConfig
from carebn.training.environment import Env
from carebn.training.evaluation import Evaluation
from carebn.training.files import flush_directory
from carebn.training.identity import check_same, default_directory, stored_config
from carebn.training.lock import LOCK_FILE, lock
from carebn.training.policy import Policy, read_config
from carebn.training.worlds import MakeEnv, Trust, given_env, id_and_arguments, require_trust


class Agent:
    """``Agent(env, method, run_dir, **options)``: options as for ``carebn.train``.

    ``env`` is a Gymnasium id, an environment, or a function that makes one; ``method`` what learns (``carebn methods``
    lists them); ``run_dir`` where the run lives. ``learn`` trains, ``predict`` acts, ``save`` and ``load`` copy.
    """

    algo: ClassVar[str]

    def __init__(self, env: AnyEnv, method: str = "care-bn", run_dir: Path | str | None = None, **options: Any) -> None:
        for name in ("algo", "total_timesteps"):
            if name in options:
                hint = "the class says it" if name == "algo" else "learn(total_timesteps) says it"
                raise TypeError(f"{name} is not an option here: {hint}")
        # Checked now; the steps are learn's to say, and what follows from them with them.
        self._options = {"algo": self.algo, "method": method, **options}
        self._env, self._directory = env, None if run_dir is None else Path(run_dir)
        self._config: TrainConfig | None = None  # as the run was begun
        self._make: MakeEnv | None = None
        self._learnt = 0
        self._result: RunResult | None = None
        self._policy: Policy | None = None
        configured(env, self._options, run_dir)

    def learn(self, total_timesteps: int, callback: Callback | None = None) -> Self:
        """So many steps, or so many more. A new object with the same options finds the run that is there already."""
        if total_timesteps < 1:
            raise ValueError(f"total_timesteps must be at least 1, got {total_timesteps}")
        target = self._learnt + int(total_timesteps)
        if self._config is None:
            options = {**self._options, "total_timesteps": target}
            config, self._make = configured(self._env, options, self._directory)
            if self._directory is None:
                self._directory = default_directory(config.checked())
        else:
            config = self._config
        assert self._directory is not None
        config = replace(config, total_timesteps=target, run_dir=self._directory)
        there = stored_config(self._directory)
        newest, checked = CheckpointStore(self._directory, config.checkpoint_interval).newest(), config.checked()
        if there is not None and newest is not None and newest > checked.total_timesteps:  # by an earlier process
            check_same(self._directory, there, checked)
            self._result = read_result(self._directory, there, newest, self._make)
        else:
            self._result = train_and_read(config, self._make, callback)
        self._config, self._policy = replace(self._result.config, quiet=config.quiet), None
        self._learnt = min(target, self._result.step)
        return self

    def __repr__(self) -> str:
        env = self._env if self._config is None else self._config.env_id
        method = self._options["method"] if self._config is None else self._config.method
        where = "" if self._directory is None else f", run_dir={str(self._directory)!r}"
        learnt = f"{self._learnt:,} steps learnt" if self._learnt else "nothing learnt yet"
        return f"<{type(self).__name__}({env!r}, {method!r}{where}): {learnt}>"

    @property
    def result(self) -> RunResult:
        """The run so far: learning curve, best and last return, directory."""
        if self._result is None:
            raise ValueError("there is nothing yet: call learn(total_timesteps) first")
        return self._result

    @property
    def policy(self) -> Policy:
        """What ``predict`` acts with: the policy after the last step."""
        if self._policy is None:
            self._policy = self.result.policy()
        return self._policy

    def predict(
        self,
        observation: Any,
        state: NDArray[Any] | None = None,
        episode_start: NDArray[np.bool_] | bool | None = None,
        deterministic: bool = True,
    ) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """Action and state for one observation or a batch of them, as in Stable-Baselines3."""
        return self.policy.predict(observation, state, episode_start, deterministic)

    def evaluate(self, episodes: int = 10, seed: int = 1_000_000) -> Evaluation:
        """Noise-free episodes with the policy, the first with this seed."""
        return self.policy.evaluate(episodes, seed)

    def save(self, directory: Path | str) -> Path:
        """A copy of the run, replay and checkpoints included, from which ``load`` goes on; an earlier one is replaced.

        The run itself stays where it is (``result.path``).
        """
        source, target = self.result.path, Path(directory)
        if target.resolve() == source.resolve():
            return target
        there = stored_config(target)  # what is no run is refused
        if there is not None:
            check_same(target, there, self.result.config)
        hidden = target.with_name(f".{target.name}.part")
        shutil.rmtree(hidden, ignore_errors=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        with lock(source):
            shutil.copytree(source, hidden, ignore=shutil.ignore_patterns(LOCK_FILE, ".*.part"))
        shutil.rmtree(target, ignore_errors=True)
        hidden.rename(target)
        flush_directory(target.parent)
        return target

    @classmethod
    def load(
        cls, directory: Path | str, env: Env | MakeEnv | None = None, trust: Trust = False, quiet: bool = False
    ) -> Self:
        """The agent of a run directory, of this class or of ``carebn train``; ``learn`` goes on with it there.

        ``env``: the environment, if it was given as an object. ``trust``: import what the run's configuration names.
        """
        path = Path(directory)
        config = replace(read_config(path, trust), run_dir=path, quiet=quiet)
        if config.algo != cls.algo:
            raise ValueError(f"{path} was trained by {config.algo}, not by {cls.algo}")
        newest = CheckpointStore(path, config.checkpoint_interval).newest()
        if newest is None:
            raise ValueError(f"{path} has no checkpoint yet")
        agent = cls.__new__(cls)
        agent._env, agent._directory, agent._options = config.env_id, path, {}
        agent._config, agent._learnt, agent._policy = config, newest, None
        agent._make = None if env is None or (isinstance(env, gym.Env) and id_and_arguments(env)) else given_env(env)
        if agent._make is None and trust is not True:
            require_trust(config, trust)
        agent._result = read_result(path, config, newest, agent._make)
        return agent


class TD3(Agent):
    """TD3: twin delayed DDPG, for actions that are numbers within bounds: ``TD3(env).learn(steps).predict(obs)``."""

    algo = "td3"


class DDPG(Agent):
    """DDPG, for actions that are numbers within bounds: ``DDPG(env).learn(steps).predict(obs)``."""

    algo = "ddpg"


class SAC(Agent):
    """SAC: soft actor-critic, for actions that are numbers within bounds: ``SAC(env).learn(steps).predict(obs)``."""

    algo = "sac"


class DQN(Agent):
    """DQN: deep Q-learning, for actions that are one of several: ``DQN(env).learn(steps).predict(obs)``."""

    algo = "dqn"


def __getattr__(name: str) -> type[Agent]:
    """A class for every other algorithm, its name in capitals: ``from carebn.agents import MINE``."""
    algo = {known.upper().replace("-", "_"): known for known in ALGORITHMS}.get(name)
    if algo is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    made = type(name, (Agent,), {"algo": algo, "__module__": __name__})
    globals()[name] = made
    return made
