"""Exports of a trained run: written under a hidden name, compared with the trained network, and only then shown.

Beside the exported file a report of the comparison is left, ``FILE.json``, with the checksum of the file it speaks of.
"""

import importlib
import itertools
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import safetensors
from numpy.typing import NDArray
from safetensors import SafetensorError

from carebn import __version__
from carebn.deploy import c_export
from carebn.deploy.centring import centred
from carebn.deploy.folded import Folded
from carebn.deploy.folding import fold
from carebn.deploy.parity import Parity, compare, trained_values
from carebn.deploy.runtime import DeployedPolicy, load
from carebn.errors import unknown_name
from carebn.reading import regular_file
from carebn.training.environment import check_step, make_env, reset, step
from carebn.training.evaluation import Evaluation, evaluate
from carebn.training.files import as_json, flush_directory, replaceable, sha256, write_file
from carebn.training.policy import Policy

PRECISIONS: dict[str, type[np.floating[Any]]] = {"float32": np.float32, "float64": np.float64}
RETURN_LOSS = 0.05  # how much of its return a policy may lose by int8 weights
FIRST_SEED = 2_000_000  # of the episodes in which that is seen
SHARES = 5  # observations that are read for each one that is compared
SEGMENTS = 20  # files of the replay that observations are taken from, at most


class Opened(Protocol):
    def values(self, obs: NDArray[Any]) -> NDArray[Any]: ...


@dataclass(frozen=True)
class Options:
    weights: str
    bias: str


@dataclass(frozen=True)
class Format:
    weights: tuple[str, ...]  # the first is the default
    write: Callable[[Folded, Path, Options], None]
    open: Callable[[Path], Opened]
    biases: tuple[str, ...] = ("affine",)


def _nir() -> Any:
    return importlib.import_module("carebn.deploy.nir_export")


def _onnx() -> Any:
    try:
        return importlib.import_module("carebn.deploy.onnx_export")
    except ModuleNotFoundError as error:
        if error.name in ("onnx", "onnxruntime"):
            raise ValueError("this export needs onnx and onnxruntime: pip install 'carebn[onnx]'") from error
        raise


FORMATS: dict[str, Format] = {
    "nir": Format(
        weights=("float32", "float64"),
        write=lambda network, path, o: _nir().write_nir(network, path, o.bias, PRECISIONS[o.weights]),
        open=lambda path: _nir().NIRPolicy(path),
        biases=("affine", "neuron"),
    ),
    "onnx": Format(
        weights=("float32", "float64"),
        write=lambda network, path, o: _onnx().write_onnx(network, path, PRECISIONS[o.weights]),
        open=lambda path: _onnx().ONNXPolicy(path),
    ),
    "c": Format(
        weights=("float32", "float64", "int8"),
        write=lambda network, path, o: c_export.write_c(network, path, o.weights),
        open=c_export.CPolicy,
    ),
    "numpy": Format(
        weights=("float64",),
        write=lambda network, path, o: network.save(path),
        open=load,
    ),
}


@dataclass(frozen=True)
class Report:
    """What is known of an exported file; it lies beside it as JSON."""

    format: str
    options: Options
    source: str  # where the observations came from
    parity: Parity | None  # None: it could not be tried on this machine
    returns: tuple[Evaluation, Evaluation] | None  # of the trained and of the int8 policy, from the same seeds

    def lines(self) -> list[str]:
        lines = ["NOT CHECKED: there is no C compiler on this machine, so the file was neither compiled nor run"]
        if self.parity is not None:
            lines = [f"checked on {self.source}: {self.parity}"]
        if self.returns is not None:
            trained, rounded = self.returns
            number = len(trained.returns)
            seeds = f"seed {FIRST_SEED}" if number == 1 else f"seeds {FIRST_SEED} to {FIRST_SEED + number - 1}"
            episodes = "the same episode" if number == 1 else f"the same {number} episodes"
            lines.append(
                f"mean return {_spread(rounded)} with int8 weights, {_spread(trained)} as trained; both in {episodes} "
                f"({seeds})"
            )
        return lines

    def as_json(self, digest: str) -> dict[str, Any]:
        return {
            "format": self.format,
            "weights": self.options.weights,
            "bias": self.options.bias,
            "sha256": digest,
            "carebn": __version__,
            "observations": self.source,
            "checked": self.parity is not None,
            "parity": None if self.parity is None else self.parity.as_json(),
            "returns": None if self.returns is None else [result.mean for result in self.returns],
            "episode_returns": None if self.returns is None else [result.returns for result in self.returns],
            "first_seed": None if self.returns is None else FIRST_SEED,
        }


def export(
    policy: Policy,
    to: str,
    out: Path,
    obs: NDArray[Any],
    source: str,
    *,
    weights: str | None = None,
    bias: str = "affine",
    others: NDArray[Any] | None = None,
    episodes: int = 10,
) -> Report:
    """Write ``policy`` to the file ``out``, if what was written behaves as the trained network on ``obs``.

    A ValueError says why it does not; then nothing is left behind. For float32 weights, thresholds are centred on
    ``others``, observations that the comparison does not use.
    """
    if to not in FORMATS:
        raise ValueError(unknown_name("export format", to, FORMATS))
    form = FORMATS[to]
    options = Options(weights or form.weights[0], bias)
    for what, value, known in (("weights", options.weights, form.weights), ("bias", bias, form.biases)):
        if value not in known:
            raise ValueError(f"--{what} {value} is not available for --to {to}; it has {', '.join(known)}")
    _check_writable(out)
    network = fold(policy.network, byte_observations=policy.obs_dtype == np.uint8)
    about = Path(f"{out}.json")
    hidden, hidden_about = (path.with_name(f".{path.name}.part") for path in (out, about))
    try:
        written = network
        if others is not None and options.weights == "float32":
            written = centred(network, others)
        form.write(written, hidden, options)
        report = _checked(policy, network, form, to, options, hidden, obs, source, episodes)
        write_file(hidden_about, as_json(report.as_json(sha256(hidden.read_bytes()))))
        os.replace(hidden, out)
        os.replace(hidden_about, about)
        flush_directory(out.parent)
    except OSError as error:
        raise OSError(f"cannot write {out}: {error.strerror or error}") from error
    finally:
        for path in (hidden, hidden_about):
            with suppress(OSError):
                path.unlink(missing_ok=True)
    return report


def _check_writable(out: Path) -> None:
    if out.is_dir():
        raise ValueError(f"{out} is a directory; give the name of a file")
    try:
        replaceable(out)
        replaceable(Path(f"{out}.json"))
    except OSError as error:
        raise ValueError(f"cannot write {out}: {error.filename}: {error.strerror}") from error
    if not out.parent.is_dir():
        raise ValueError(f"cannot write {out}: there is no directory {out.parent}")
    if not os.access(out.parent, os.W_OK):
        raise ValueError(f"cannot write {out}: no permission to write in {out.parent}")


def _checked(
    policy: Policy,
    network: Folded,
    form: Format,
    to: str,
    options: Options,
    path: Path,
    obs: NDArray[Any],
    source: str,
    episodes: int,
) -> Report:
    expected, meant = trained_values(policy.network, obs), network
    if options.weights == "int8":  # the program is held to the weights it was given, those to the return
        meant = c_export.as_exported(network, "int8")
        expected = DeployedPolicy(meant).values(obs)
    parity = None
    if to != "c" or c_export.compiler() is not None:
        parity = compare(expected, form.open(path).values, meant, obs, exact=options.weights == "float64")
        if not parity.passed:
            hint = "; use --weights float64" if parity.on_threshold and "float64" in form.weights else ""
            raise ValueError(f"the exported policy is not the trained one, so nothing was written: {parity}{hint}")
    returns = None
    if options.weights == "int8":
        returns = (_played(policy, network, episodes), _played(policy, meant, episodes))
        trained, rounded = returns
        if rounded.mean < trained.mean - RETURN_LOSS * abs(trained.mean):
            raise ValueError(
                f"with int8 weights the policy's mean return falls from {_spread(trained)} to {_spread(rounded)}, by "
                f"more than {RETURN_LOSS:.0%}, so nothing was written; use --weights float32"
            )
    return Report(to, options, source, parity, returns)


def _spread(result: Evaluation) -> str:
    """Mean ± standard deviation over episodes; one episode has none."""
    return f"{result.mean:.1f}" + (f" ± {result.std:.1f}" if len(result.returns) > 1 else "")


def _played(policy: Policy, network: Folded, episodes: int) -> Evaluation:
    config, deployed = policy.config, DeployedPolicy(network)
    envs = [make_env(config.env_id, config.import_modules) for _ in range(episodes)]
    try:
        seeds = range(FIRST_SEED, FIRST_SEED + episodes)
        return evaluate(lambda obs: deployed.predict(obs.astype(policy.obs_dtype))[0], envs, seeds, config.env_id)
    finally:
        for env in envs:
            env.close()


# --- observations ----------------------------------------------------------------------------------------------------


class Observations(NamedTuple):
    compared: NDArray[Any]  # the two are compared on these
    others: NDArray[Any]  # thresholds are centred on these
    source: str


def observations(run_dir: Path, policy: Policy, count: int) -> Observations:
    """Of the run's replay, or of random episodes where there are not enough."""
    rows, source = _recorded(sorted((run_dir / "replay").glob("*.safetensors")), count * SHARES), "the run's replay"
    if rows is None or len(rows) < count:
        rows, source = _random_episodes(policy, count * SHARES), "random episodes"
    index = np.linspace(0, len(rows) - 1, count).astype(int)
    return Observations(rows[index], np.delete(rows, index, axis=0), f"{count:,} observations of {source}")


def _recorded(segments: Sequence[Path], count: int) -> NDArray[Any] | None:
    if not segments:
        return None
    chosen = [segments[i] for i in np.unique(np.linspace(0, len(segments) - 1, SEGMENTS).astype(int))]
    try:
        parts = []
        for path in chosen:
            with safetensors.safe_open(regular_file(path), framework="numpy") as file:
                parts.append(file.get_tensor("obs"))
    except (SafetensorError, OSError) as error:
        reason = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.strerror else error
        raise ValueError(f"the run's replay cannot be read: {reason}") from error
    rows = np.concatenate(parts)
    return np.ascontiguousarray(rows[np.linspace(0, len(rows) - 1, min(count, len(rows))).astype(int)])


def _random_episodes(policy: Policy, count: int) -> NDArray[Any]:
    config = policy.config
    env = make_env(config.env_id, config.import_modules)
    env.action_space.seed(0)
    rows: list[NDArray[Any]] = []
    for episode in itertools.count():
        obs, over, reward = reset(env, config.env_id, seed=episode), False, 0.0
        while len(rows) < count and not over:
            check_step(config.env_id, obs, reward)
            rows.append(np.array(obs, dtype=policy.obs_dtype))
            obs, reward, terminated, truncated = step(env, config.env_id, env.action_space.sample())
            over = terminated or truncated
        if len(rows) == count:
            break
    env.close()
    return np.stack(rows)
