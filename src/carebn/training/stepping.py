"""One step of a run: act, step the environments, store the transitions, learn from the replay."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carebn.training import seeds
from carebn.training.config import TrainConfig
from carebn.training.environment import NonFiniteError, Spaces, with_step_named
from carebn.training.record import Row
from carebn.training.run_state import RunState
from carebn.training.schedule import reaches, updates_until
from carebn.training.side_by_side import SideBySide


class Stepping:
    """The environments that a run learns in, with the observations that come next."""

    def __init__(
        self,
        config: TrainConfig,
        state: RunState,
        envs: SideBySide,
        spaces: Spaces,
        record: Callable[[Row], None],
        kept: Callable[[], str],
    ) -> None:
        """``record`` writes a line of metrics; ``kept`` is a sentence about what is left of the run if this fails."""
        assert config.learning_starts is not None
        assert config.random_steps is not None
        self.learning_starts, self.random_steps = config.learning_starts, config.random_steps
        self.config, self.state, self.envs, self.spaces = config, state, envs, spaces
        self._record, self._kept = record, kept
        self.obs: NDArray[Any] = np.empty(0)  # a row for each environment
        self.reward = 0.0  # the mean of theirs

    def begin_episodes(self) -> None:
        with with_step_named("at", self.state.step, self._kept):
            self.obs = self.envs.reset(self._seeds())

    def replay_episodes(self, warn: Callable[[str], None]) -> None:
        """Bring every environment to where a checkpoint left it: the same start, the same actions."""
        episodes, replay = self.state.episodes, self.state.replay
        with with_step_named("at", self.state.step, self._kept):
            actions = {place: episode.actions for place, episode in enumerate(episodes)}
            self.obs = self.envs.reset(self._seeds(), actions)
        under_way = [bool(episode.actions) for episode in episodes]
        last = replay.rows(max(0, replay.added - len(episodes)), replay.added)["next_obs"]
        if any(under_way) and not np.array_equal(self.obs[under_way], last[under_way]):
            warn(
                f"{self.config.env_id} does not repeat itself from the same seed and actions: the run resumes, but an "
                f"exact repetition is not possible"
            )

    def make_step(self) -> None:
        """Of all environments."""
        before = self.state.step
        with with_step_named("at", before + self.envs.count, self._kept):
            over = self._act_and_store()
            if self.state.step > self.learning_starts:
                self._learn(updates_until(self.config, self.state.step) - updates_until(self.config, before))
            if any(over):
                self._begin_next_episodes(over)

    def _act_and_store(self) -> list[bool]:
        """Which episodes are over."""
        state = self.state
        actions = self._random_actions() if state.step < self.random_steps else self._chosen_actions()
        next_obs, rewards, terminated, truncated = self.envs.step(actions)
        for place, episode in enumerate(state.episodes):
            action, reward = actions[place], rewards[place]
            state.replay.add(self.obs[place], action, reward, next_obs[place], terminated[place])
            episode.actions.append(action)
            episode.total += reward
        state.step += self.envs.count
        self.obs, self.reward = next_obs, sum(rewards) / len(rewards)
        return [ended or cut for ended, cut in zip(terminated, truncated, strict=True)]

    def _random_actions(self) -> NDArray[Any]:
        rng, spaces, count = self.state.streams["warm_up"], self.spaces, self.envs.count
        if spaces.actions is not None:
            return rng.integers(spaces.actions, size=count)
        assert spaces.low is not None
        assert spaces.high is not None
        return rng.uniform(spaces.low, spaces.high, (count, *spaces.low.shape)).astype(np.float32)

    def _chosen_actions(self) -> NDArray[Any]:
        actions = self.state.agent.act(self.obs, self.state.streams["explore"])
        if not np.isfinite(actions).all():
            raise NonFiniteError("the actor's action became NaN")
        return actions

    def _learn(self, updates: int) -> None:
        state = self.state
        for _ in range(updates):
            # Losses that are not computed at every step are logged as they last were.
            new = state.agent.update(state.replay, state.streams["update"])
            state.losses |= {name: float(loss) for name, loss in new.items()}
        for name, loss in state.losses.items():
            if not math.isfinite(loss):
                raise NonFiniteError(f"{name} became {loss}")
        if reaches(state.step, self.config.log_interval, self.envs.count):
            self._record({"step": state.step, **dict(sorted(state.losses.items()))})

    def _begin_next_episodes(self, over: Sequence[bool]) -> None:
        state = self.state
        for place, ended in enumerate(over):
            if ended:
                episode = state.episodes[place]
                self._record({
                    "step": state.step, "charts/episodic_return": episode.total,
                    "charts/episodic_length": len(episode.actions),
                })  # fmt: skip
                state.begin_episode(place)
        self.obs = self.envs.reset(self._seeds(over))

    def _seeds(self, wanted: Sequence[bool] | None = None) -> list[int | None]:
        """Of the episodes that the environments are in; where it is not wanted, None."""
        return [
            seeds.number(self.config.seed, seeds.EPISODES, episode.number) if wanted is None or wanted[place] else None
            for place, episode in enumerate(self.state.episodes)
        ]
