"""The evaluations of a run: re-calibrate, play noise-free episodes, keep the best policy, let observers look.

One can be given up in the middle. Then the run is as it was before, and after resuming it is made whole.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from numpy.typing import NDArray

from carebn.stopping import Stop, StopRequest
from carebn.training import seeds
from carebn.training.config import TrainConfig
from carebn.training.environment import Env, Spaces, with_step_named
from carebn.training.evaluation import Evaluation, evaluate
from carebn.training.observers import Watched
from carebn.training.policy_file import policy_bytes
from carebn.training.run_directory import RunDirectory
from carebn.training.run_state import RunState

T = TypeVar("T")


class Evaluating:
    """An environment and a seed for each episode, the same at every evaluation."""

    def __init__(
        self,
        config: TrainConfig,
        state: RunState,
        files: RunDirectory,
        envs: Sequence[Env],
        spaces: Spaces,
        signals: StopRequest,
        policy: Callable[[], dict[str, torch.Tensor]],
        spent: dict[str, float],
    ) -> None:
        """``policy`` gives the tensors that are kept of the best one; seconds are added to ``spent``."""
        self.config, self.state, self.files, self.envs, self.spaces = config, state, files, envs, spaces
        self.seeds = [seeds.number(config.seed, seeds.EVALUATION, i) for i in range(config.eval_episodes)]
        self._signals, self._policy, self._spent = signals, policy, spent

    def evaluate_unless_stopped(self) -> Evaluation | None:
        """None: it was given up, and all is as it was before."""
        agent, streams = self.state.agent.state_dict(), self.state.streams.state()
        try:
            return self.evaluate()
        except Stop:
            self.state.agent.load_state_dict(agent)
            self.state.streams.restore(streams)
            return None

    def evaluate(self) -> Evaluation:
        config, state, logs = self.config, self.state, self.files.observer_logs
        watched = Watched(state.step, config.seed, state.agent.policy, state.replay)
        with self._signals.can_give_up():
            before = [self._timed("measurement", log.observer.before_recalibration, watched) for log in logs]
            recalibrated = self._timed(
                "recalibration", state.agent.recalibrate, state.replay, state.streams["recalibrate"]
            )
            result = self._timed("evaluation", self._play)
            rows = [
                self._timed("measurement", log.observer.after_evaluation, watched, seen, recalibrated)
                for log, seen in zip(logs, before, strict=True)
            ]
        if state.best is None or result.mean > state.best:
            state.keep_best(result, policy_bytes(self._policy()))
        self.files.record({
            "step": state.step, "eval/mean_return": result.mean, "eval/std_return": result.std,
            "returns": result.returns, "lengths": result.lengths,
        })  # fmt: skip
        for log, row in zip(logs, rows, strict=True):
            log.file.write({"step": state.step, **row})
        return result

    def _play(self) -> Evaluation:
        config = self.config
        with with_step_named("in the evaluation at", self.state.step, self.files.kept):
            return evaluate(self.act, self.envs, self.seeds, config.env_id, config.eval_max_steps)

    def act(self, obs: NDArray[Any]) -> NDArray[Any]:
        """Without noise."""
        self._signals.obey()
        return self.state.agent.act(self.spaces.as_stored(obs), None)

    def _timed(self, name: str, work: Callable[..., T], *arguments: Any) -> T:
        began = time.monotonic()
        done = work(*arguments)
        self._spent[name] = self._spent.get(name, 0.0) + time.monotonic() - began
        return done
