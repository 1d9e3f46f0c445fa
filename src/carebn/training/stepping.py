"""One step of a run: act, step the environment, store the transition, learn from the replay."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carebn.training import seeds
from carebn.training.config import TrainConfig
from carebn.training.environment import Env, NonFiniteError, Spaces, check_step, reset, step, with_step_named
from carebn.training.record import Row
from carebn.training.run_state import RunState


class Stepping:
    """The environment that a run learns in, with the observation that comes next."""

    def __init__(
        self,
        config: TrainConfig,
        state: RunState,
        env: Env,
        spaces: Spaces,
        record: Callable[[Row], None],
        kept: Callable[[], str],
    ) -> None:
        """``record`` writes a line of metrics; ``kept`` is a sentence about what is left of the run if this fails."""
        assert config.learning_starts is not None
        assert config.random_steps is not None
        assert config.update_interval is not None
        self.learning_starts, self.random_steps = config.learning_starts, config.random_steps
        self.update_interval = config.update_interval
        self.config, self.state, self.env, self.spaces = config, state, env, spaces
        self._record, self._kept = record, kept
        self.obs: NDArray[Any] = np.empty(0)
        self.reward = 0.0

    def begin_episode(self) -> None:
        with with_step_named("at", self.state.step, self._kept):
            self._reset()

    def replay_episode(self, warn: Callable[[str], None]) -> None:
        """Bring the environment to where a checkpoint left it: the same start, the same actions."""
        state, replay = self.state, self.state.replay
        with with_step_named("at", state.step, self._kept):
            self._reset()
            for action in state.episode_actions:
                obs, *_ = step(self.env, self.config.env_id, action)
                self.obs = self._checked(obs, 0.0)
        last = replay.rows(max(0, replay.added - 1), replay.added)["next_obs"]
        if state.episode_actions and not np.array_equal(self.obs, last[-1]):
            warn(
                f"{self.config.env_id} does not repeat itself from the same seed and actions: the run resumes, but an "
                f"exact repetition is not possible"
            )

    def make_step(self) -> None:
        with with_step_named("at", self.state.step + 1, self._kept):
            over = self._act_and_store()
            if self.state.step > self.learning_starts:
                self._learn()
            if over:
                self._begin_next_episode()

    def _act_and_store(self) -> bool:
        """Whether the episode is over."""
        state = self.state
        action = self._random_action() if state.step < self.random_steps else self._chosen_action()
        given, reward, terminated, truncated = step(self.env, self.config.env_id, action)
        next_obs = self._checked(given, reward)
        state.replay.add(self.obs, action, reward, next_obs, terminated)
        state.episode_actions.append(action)
        state.episode_return += reward
        state.step += 1
        self.obs, self.reward = next_obs, reward
        return terminated or truncated

    def _random_action(self) -> Any:
        rng, spaces = self.state.streams["warm_up"], self.spaces
        if spaces.actions is not None:
            return int(rng.integers(spaces.actions))
        assert spaces.low is not None
        assert spaces.high is not None
        return rng.uniform(spaces.low, spaces.high).astype(np.float32)

    def _chosen_action(self) -> Any:
        action = self.state.agent.act(self.obs[None], self.state.streams["explore"])[0]
        if not np.isfinite(action).all():
            raise NonFiniteError("the actor's action became NaN")
        return action

    def _learn(self) -> None:
        state = self.state
        for _ in range(self.update_interval if state.step % self.update_interval == 0 else 0):
            # Losses that are not computed at every step are logged as they last were.
            new = state.agent.update(state.replay, state.streams["update"])
            state.losses |= {name: float(loss) for name, loss in new.items()}
        for name, loss in state.losses.items():
            if not math.isfinite(loss):
                raise NonFiniteError(f"{name} became {loss}")
        if state.step % self.config.log_interval == 0:
            self._record({"step": state.step, **dict(sorted(state.losses.items()))})

    def _begin_next_episode(self) -> None:
        state = self.state
        length = state.replay.added - state.episode_start
        self._record({
            "step": state.step, "charts/episodic_return": state.episode_return, "charts/episodic_length": length
        })  # fmt: skip
        state.begin_episode()
        self._reset()

    def _reset(self) -> None:
        seed = seeds.number(self.config.seed, seeds.EPISODES, self.state.episode)
        self.obs = self._checked(reset(self.env, self.config.env_id, seed), 0.0)

    def _checked(self, obs: NDArray[Any], reward: float) -> NDArray[Any]:
        """A copy in the type that is stored, because an environment may use its array again."""
        obs = self.spaces.as_stored(obs)
        check_step(self.config.env_id, obs, reward)
        return obs
