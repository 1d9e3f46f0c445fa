"""The trials of a tuning, in a journal that Optuna's own tools open too: lines of JSON, nothing that is executed.

What is tried next follows from the seed, the number of the trial and the rounds before: not from when it was asked, nor
from how often the tuning was stopped.
"""

import json
import math
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from carebn.tuning.space import Choice, Range, Space

NAME = "carebn"  # of the study in the journal
RANDOM_TRIALS = 10  # before the sampler learns from others
OPEN, COMPLETE, PRUNED, FAILED = "open", "complete", "pruned", "failed"


@dataclass(frozen=True)
class Trial:
    number: int
    values: dict[str, Any]  # of the options that are searched
    state: str = OPEN
    score: float | None = None
    curve: dict[int, float] = field(default_factory=dict)  # step → mean return
    message: str = ""  # why it failed


class _HeldAlready:
    """The journal's lock: whoever tunes holds that of the whole directory."""

    def acquire(self) -> bool:
        return True

    def release(self) -> None: ...


class History:
    def __init__(self, path: Path, space: Space, seed: int) -> None:
        optuna = require_optuna()
        self._optuna, self._seed, self._space = optuna, seed, space
        self._distributions = {name: _distribution(optuna, part) for name, part in space.items()}
        self._states = {
            OPEN: optuna.trial.TrialState.RUNNING, COMPLETE: optuna.trial.TrialState.COMPLETE,
            PRUNED: optuna.trial.TrialState.PRUNED, FAILED: optuna.trial.TrialState.FAIL,
        }  # fmt: skip
        _drop_torn_line(path)
        with _quietly(optuna):
            try:
                backend = optuna.storages.journal.JournalFileBackend(str(path), lock_obj=_HeldAlready())
                self._storage: Any = optuna.storages.JournalStorage(backend)
                study = optuna.create_study(
                    storage=self._storage, study_name=NAME, direction="maximize", load_if_exists=True
                )
                self._study_id = study._study_id
                self.trials()
            except OSError:
                raise
            except Exception as error:  # whatever Optuna makes of lines that are not its own
                reason = f"{type(error).__name__}: {error}".splitlines()[0]
                raise ValueError(
                    f"{path} is damaged ({reason}); put it back as it was, or tune in another --run-dir"
                ) from error

    def trials(self) -> list[Trial]:
        names = {state: name for name, state in self._states.items()}
        found = []
        for frozen in self._storage.get_all_trials(self._study_id, deepcopy=False):
            values = {name: _from_optuna(self._space[name], value) for name, value in frozen.params.items()}
            state = names[frozen.state]
            score = frozen.value if state == COMPLETE else None
            message = str(frozen.user_attrs.get("message", ""))
            found.append(Trial(frozen.number, values, state, score, dict(frozen.intermediate_values), message))
        return found

    def begin(self, known: list[Trial]) -> Trial:
        """The next trial, as a line of the journal. ``known``: what is known of all before it."""
        with _quietly(self._optuna):
            asked = self._in_memory(known).ask(self._distributions)
            template = self._optuna.trial.create_trial(
                state=self._states[OPEN], params=asked.params, distributions=self._distributions
            )
            self._storage.create_new_trial(self._study_id, template_trial=template)
        return self.trials()[-1]

    def _in_memory(self, known: list[Trial]) -> Any:
        """A study of its own, with a sampler of its own."""
        number = len(known)
        seed = int(np.random.SeedSequence([self._seed, number]).generate_state(1)[0])
        sampler = self._optuna.samplers.TPESampler(
            n_startup_trials=RANDOM_TRIALS, multivariate=True, constant_liar=True, seed=seed
        )
        study = self._optuna.create_study(direction="maximize", sampler=sampler)
        for trial in known:
            params = {name: _to_optuna(self._space[name], value) for name, value in trial.values.items()}
            about = {"params": params, "distributions": self._distributions, "intermediate_values": trial.curve}
            value = {"value": trial.score} if trial.state == COMPLETE else {}
            study.add_trial(self._optuna.trial.create_trial(state=self._states[trial.state], **about, **value))
        return study

    def end(self, trial: Trial) -> None:
        """What became of it; may be told again as long as its last line is not written."""
        trial_id = self._storage.get_trial_id_from_study_id_trial_number(self._study_id, trial.number)
        with _quietly(self._optuna):
            for step, value in trial.curve.items():
                self._storage.set_trial_intermediate_value(trial_id, step, value)
            if trial.message:
                self._storage.set_trial_user_attr(trial_id, "message", trial.message)
            values = [trial.score] if trial.state == COMPLETE else None
            self._storage.set_trial_state_values(trial_id, self._states[trial.state], values)


def require_optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise ValueError("carebn tune needs Optuna: pip install optuna") from None
    return optuna


@contextmanager
def _quietly(optuna: Any) -> Iterator[None]:
    """Without its word on every trial, and its warnings of what is new in it."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _distribution(optuna: Any, part: Range | Choice) -> Any:
    kinds = optuna.distributions
    if isinstance(part, Choice):
        return kinds.CategoricalDistribution([_to_optuna(part, value) for value in part.values])
    kind = kinds.IntDistribution if part.whole else kinds.FloatDistribution
    return kind(part.low, part.high, log=part.log)


def _to_optuna(part: Range | Choice, value: Any) -> Any:
    """Choices as text: its journal holds no lists."""
    return json.dumps(value) if isinstance(part, Choice) else value


def _from_optuna(part: Range | Choice, value: Any) -> Any:
    return json.loads(value) if isinstance(part, Choice) else value


def _drop_torn_line(path: Path) -> None:
    """Of a process that was killed while it wrote: nobody has acted on it."""
    with suppress(FileNotFoundError), open(path, "r+b") as file:
        whole = file.read().rfind(b"\n") + 1
        file.truncate(whole)
        os.fsync(file.fileno())


def best_of(trials: list[Trial]) -> Trial | None:
    """The first of the best."""
    done = [trial for trial in trials if trial.state == COMPLETE and trial.score is not None]
    return max(done, key=lambda trial: (trial.score, -trial.number), default=None)


def as_rows(trials: list[Trial]) -> list[Mapping[str, Any]]:
    """For a file: without times, so that two tunings can be compared."""
    return [
        {
            "number": trial.number,
            "state": trial.state,
            "score": trial.score if trial.score is not None and math.isfinite(trial.score) else None,
            "values": trial.values,
            "curve": [[step, value] for step, value in sorted(trial.curve.items())],
            **({"message": trial.message} if trial.message else {}),
        }
        for trial in trials
    ]
