"""Training and exporting from Python: what ``carebn train`` and ``carebn export`` do, with objects for words."""

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, get_type_hints

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from carebn.errors import unknown_name
from carebn.measure.observers import observers_for
from carebn.training import InterruptedRun, TrainConfig
from carebn.training.callbacks import Callback
from carebn.training.conversion import own_directory
from carebn.training.environment import Env
from carebn.training.evaluation import Evaluation
from carebn.training.own_code import register
from carebn.training.policy import Policy, Which, load
from carebn.training.record import read_rows
from carebn.training.whole_run import carry_out
from carebn.training.worlds import MakeEnv, given_env, id_and_arguments, name_of

AnyEnv = str | Env | MakeEnv  # an id, an environment, or a function that makes one


@dataclass(frozen=True, repr=False)
class RunResult:
    """A run as it lies on disk: how far it came, its learning curve, its policy.

    ``steps``, ``returns`` and ``stds`` have one number for each evaluation: the environment step, the mean return of
    its noise-free episodes, and their standard deviation.
    """

    path: Path
    config: TrainConfig
    step: int
    steps: NDArray[np.int64]  # of the evaluations
    returns: NDArray[np.float64]  # their mean returns
    stds: NDArray[np.float64]
    policy_path: Path  # the run itself, or the spiking policy that it was converted to
    make: MakeEnv | None = None  # of an environment that was given as an object

    @property
    def complete(self) -> bool:
        """Trained and evaluated to the end."""
        return len(self.steps) > 0 and bool(self.steps[-1] >= self.config.total_timesteps)

    @property
    def best_return(self) -> float | None:
        """The highest mean return of an evaluation; None: there was none yet."""
        return float(self.returns.max()) if len(self.returns) else None

    @property
    def last_return(self) -> float | None:
        """The mean return of the last evaluation; None: there was none yet."""
        return float(self.returns[-1]) if len(self.returns) else None

    def policy(self, which: Which = "last") -> Policy:
        """The policy after the last step, or that of the best evaluation; ``policy().predict(observation)`` acts."""
        path = self.policy_path if which == "last" else self.path
        return load(path, which, trust=True).made_by(self.make)

    def evaluate(self, episodes: int = 10, seed: int = 1_000_000, which: Which = "last") -> Evaluation:
        """Noise-free episodes with that policy, as ``carebn evaluate`` plays them."""
        return self.policy(which).evaluate(episodes, seed)

    def __repr__(self) -> str:
        score = "" if self.best_return is None else f", best return {self.best_return:.1f}, last {self.last_return:.1f}"
        return f"<carebn run {self.path}: step {self.step:,} of {self.config.total_timesteps:,}{score}>"


def train(
    env: AnyEnv,
    algo: str = "td3",
    method: str = "care-bn",
    run_dir: Path | str | None = None,
    *,
    callback: Callback | None = None,
    **options: Any,
) -> RunResult:
    """Train an agent, or resume the run that the same call began; ``options`` are those of ``carebn train``.

    ``env`` is a Gymnasium id, a function that makes an environment, or an environment. One that gymnasium.make made is
    taken by its id and arguments; any other is copied for every environment that the run needs, and a new process that
    resumes or evaluates the run has to pass it again.
    ``callback``: see ``carebn.training.callbacks``; returning False stops the run, which can be resumed.
    """
    config, make = configured(env, {"algo": algo, "method": method, **options}, run_dir)
    return train_and_read(config, make, callback)


def configured(env: AnyEnv, options: dict[str, Any], run_dir: Path | str | None) -> tuple[TrainConfig, MakeEnv | None]:
    """The configuration, checked but as open as it was given, and what makes its environment if no id does."""
    known = {f.name for f in fields(TrainConfig)} - {"env_id", "trust", "run_dir"}
    for name in options:
        if name not in known:
            raise TypeError(unknown_name("option", name, known))
    make = None
    if isinstance(env, str):
        options = {**options, "env_id": env}
    else:
        for name in ("env_kwargs", "wrappers", "import_modules"):
            if options.get(name):
                raise ValueError(f"{name} goes with the id of an environment, and env is an object")
        found = id_and_arguments(env) if isinstance(env, gym.Env) else None
        if found is not None:
            options = {**options, "env_id": found[0], "env_kwargs": found[1]}
        else:
            make = given_env(env)
            made = make()
            options = {**options, "env_id": name_of(made)}
            made.close()
    hints = get_type_hints(TrainConfig)
    values = {name: _as_option(hints[name], value) for name, value in options.items()}
    config = TrainConfig.from_json(values)
    register(config, True)  # who trains has said what to import
    config.checked()
    return replace(config, run_dir=None if run_dir is None else Path(run_dir)), make


def _as_option(hint: Any, value: Any) -> Any:
    """numpy's numbers as Python's, and 1e6 where a whole number is meant."""
    if isinstance(value, np.generic):
        value = value.item()
    whole = int in (hint, *getattr(hint, "__args__", ())) and float not in getattr(hint, "__args__", ())
    return int(value) if whole and isinstance(value, float) and value.is_integer() else value


def train_and_read(config: TrainConfig, make: MakeEnv | None, callback: Callback | None) -> RunResult:
    """Train until the end, or until the callback says that it is enough."""
    threads = torch.get_num_threads()
    try:
        run = carry_out(config, observers_for(config), make, callback).run
    except InterruptedRun as stop:
        if stop.code == 130:  # Ctrl-C, or the button of a notebook
            raise KeyboardInterrupt(str(stop)) from None
        raise
    finally:
        torch.set_num_threads(threads)
    return read_result(run.directory, run.config, run.step, make)


def read_result(path: Path, config: TrainConfig, step: int, make: MakeEnv | None) -> RunResult:
    converted = own_directory(path, config)
    rows = [row for row in read_rows(path / "metrics.jsonl") if "eval/mean_return" in row]
    return RunResult(
        path,
        config,
        step,
        np.array([row["step"] for row in rows], np.int64),
        np.array([row["eval/mean_return"] for row in rows], np.float64),
        np.array([row["eval/std_return"] for row in rows], np.float64),
        converted if converted is not None and converted.is_dir() else path,
        make,
    )


# --- exporting --------------------------------------------------------------------------------------------------------

RANDOM_OBSERVATIONS = 5000
FEW = 10  # observations that are too few to be divided


def export(
    network: nn.Module,
    to: Literal["nir", "onnx", "c", "numpy"],
    path: Path | str,
    observations: NDArray[Any] | None = None,
    *,
    weights: str | None = None,
    bias: str = "affine",
) -> Any:
    """Write a network of ours (SpikingActor, ANNActor, SpikingQNetwork, ...) as ``carebn export`` writes that of a run.

    What was written is compared with the network on ``observations`` [n, size] (bytes for a network that reads bytes);
    None: on Gaussian ones. Of many, every fifth is compared; thresholds are centred on the others (float32 weights).
    ``weights`` is float32 or float64, ``bias`` (NIR) affine or neuron. Returns what the comparison found; ``path``.json
    has it too.
    """
    from carebn.deploy import export as exporting
    from carebn.deploy.folding import fold
    from carebn.deploy.observations import SHARES

    size = fold(network).encoder.obs_dim
    if observations is None:
        rows = np.random.default_rng(0).standard_normal((RANDOM_OBSERVATIONS, size)).astype(np.float32)
        source = "random observations"
    else:
        rows = np.asarray(observations)
        if rows.ndim != 2 or rows.shape[1] != size or not len(rows):
            raise ValueError(f"observations must have the shape [n, {size}], got {list(rows.shape)}")
        rows = np.ascontiguousarray(rows, dtype=np.uint8 if rows.dtype == np.uint8 else np.float32)
        if not np.isfinite(rows).all():
            raise ValueError("got NaN or infinity in an observation")
        source = "observations that were given"
    compared, others = rows, None
    if len(rows) >= FEW * SHARES:
        index = np.arange(0, len(rows), SHARES)
        compared, others = rows[index], np.delete(rows, index, axis=0)
    policy = exporting.Bare(network, rows.dtype)
    about = f"{len(compared):,} {source}"
    return exporting.export(policy, to, Path(path), compared, about, others=others, weights=weights, bias=bias)
