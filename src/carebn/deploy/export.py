"""Exports of a trained run: written under a hidden name, compared with the trained network, and only then shown.

Beside the exported file a report of the comparison is left, ``FILE.json``, with the checksum of the file it speaks of.
"""

import importlib
import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import safetensors
from numpy.typing import NDArray
from safetensors import SafetensorError
from torch import nn

from carebn import __version__
from carebn.deploy import c_export
from carebn.deploy.folding import fold
from carebn.deploy.graph import PolicyGraph
from carebn.deploy.origin import origin_of
from carebn.deploy.parity import Parity, compare, trained_values
from carebn.deploy.quantise import LEVELS, quantised
from carebn.deploy.returns import EPISODES, FIRST_SEED, Returns, compared
from carebn.deploy.runtime import DeployedPolicy, load
from carebn.deploy.threshold_gaps import with_centred_thresholds
from carebn.errors import unknown_name
from carebn.reading import regular_file
from carebn.training.environment import check_step, reset, step
from carebn.training.evaluation import Evaluation, evaluate
from carebn.training.files import as_json, flush_directory, replaceable, sha256, write_file
from carebn.training.flat import flat_space
from carebn.training.policy import Policy
from carebn.training.spaces_file import sample
from carebn.training.worlds import NeedsWord

PRECISIONS: dict[str, type[np.floating[Any]]] = {"float32": np.float32, "float64": np.float64}
TOLERANCE = 0.95  # how much of its return a policy must keep with integer weights
SHARES = 5  # observations that are read for each one that is compared
SEGMENTS = 20  # files of the replay that observations are taken from, at most


class Bare(NamedTuple):
    """A network that has no run."""

    network: nn.Module
    obs_dtype: Any


class Opened(Protocol):
    def values(self, obs: NDArray[Any]) -> NDArray[Any]: ...


@dataclass(frozen=True)
class Options:
    weights: str
    bias: str
    prefix: str = ""


@dataclass(frozen=True)
class Format:
    weights: tuple[str, ...]  # the first is the default
    write: Callable[[PolicyGraph, Path, Options], None]
    open: Callable[[Path], Opened]
    biases: tuple[str, ...] = ("affine",)
    header: Callable[[PolicyGraph, Options], str] | None = None  # the text of a second file, with the ending .h


def _nir() -> Any:
    return importlib.import_module("carebn.deploy.nir_export")


def _onnx() -> Any:
    try:
        return importlib.import_module("carebn.deploy.onnx_export")
    except ModuleNotFoundError as error:
        if error.name in ("onnx", "onnxruntime"):
            raise ValueError("this export needs onnx and onnxruntime: pip install onnx onnxruntime") from error
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
        weights=("float32", "float64", "int8", "int16"),
        write=lambda network, path, o: c_export.write_c(network, path, o.weights, o.prefix),
        open=c_export.CPolicy,
        header=lambda network, o: c_export.to_header(network, o.weights, o.prefix),
    ),
    "numpy": Format(
        weights=("float64", "int8", "int16"),
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
    returns: Returns | None  # with integer weights

    def lines(self) -> list[str]:
        lines = ["NOT CHECKED: there is no C compiler on this machine, so the file was neither compiled nor run"]
        if self.parity is not None:
            lines = [f"checked on {self.source}: {self.parity}"]
        if self.returns is not None:
            lines.append(str(self.returns))
        return lines

    def as_json(self, digest: str) -> dict[str, Any]:
        return {
            "format": self.format,
            "weights": self.options.weights,
            "bias": self.options.bias,
            "prefix": self.options.prefix,
            "sha256": digest,
            "carebn": __version__,
            "observations": self.source,
            "checked": self.parity is not None,
            "parity": None if self.parity is None else self.parity.as_json(),
            "returns": None if self.returns is None else [result.mean for result in self.returns.both],
            "episode_returns": None if self.returns is None else [result.returns for result in self.returns.both],
            "first_seed": None if self.returns is None else FIRST_SEED,
        }


def export(
    policy: Policy | Bare,
    to: str,
    out: Path,
    obs: NDArray[Any],
    source: str,
    *,
    weights: str | None = None,
    bias: str = "affine",
    others: NDArray[Any] | None = None,
    episodes: int = EPISODES,
    tolerance: float = TOLERANCE,
    prefix: str = "",
    origin: Mapping[str, Any] | None = None,
) -> Report:
    """Write ``policy`` to the file ``out``, if what was written behaves as the trained network on ``obs``.

    A ValueError says why it does not; then nothing is left behind. For float32 weights, thresholds are centred on
    ``others``, observations that the comparison does not use; integer weights are rounded on them. ``origin``: what the
    file says of where the policy comes from; None: what the policy itself knows.
    """
    if to not in FORMATS:
        raise ValueError(unknown_name("export format", to, FORMATS))
    form = FORMATS[to]
    options = Options(weights or form.weights[0], bias, prefix)
    for what, value, known in (("weights", options.weights, form.weights), ("bias", bias, form.biases)):
        if value not in known:
            raise ValueError(f"--{what} {value} is not available for --to {to}; it has {', '.join(known)}")
    if options.weights in LEVELS and isinstance(policy, Bare):
        raise ValueError(
            f"{options.weights} weights are judged by the return, which a network alone does not have: export its run"
        )
    if not 0 <= tolerance <= 1:
        raise ValueError(f"--tolerance is a share of the return, between 0 and 1; got {tolerance:g}")
    if prefix and form.header is None:
        raise ValueError(f"--prefix is for --to c, whose names it begins; --to {to} has none")
    c_export.function_name(prefix)  # says what is wrong with it
    _check_writable(out)
    header, about = out.with_suffix(".h"), Path(f"{out}.json")
    _check_writable(about)
    if form.header is not None:
        _check_header(out, header)
    network = fold(policy.network, byte_observations=policy.obs_dtype == np.uint8)
    if origin is None:
        origin = {"carebn": __version__} if isinstance(policy, Bare) else origin_of(policy)
    network = replace(network, origin=origin)
    hidden, hidden_header, hidden_about = (path.with_name(f".{path.name}.part") for path in (out, header, about))
    try:
        written = network
        seen = obs if others is None or not len(others) else others
        if options.weights in LEVELS:
            written = quantised(network, options.weights, seen)
        elif others is not None and options.weights == "float32":
            written = with_centred_thresholds(network, others)
        form.write(written, hidden, options)
        play = _Play(policy, episodes, tolerance)
        report = _checked(policy, network, written, form, to, options, hidden, obs, source, play)
        write_file(hidden_about, as_json(report.as_json(sha256(hidden.read_bytes()))))
        if form.header is not None:
            write_file(hidden_header, form.header(written, options).encode())
            os.replace(hidden_header, header)
        os.replace(hidden, out)
        os.replace(hidden_about, about)
        flush_directory(out.parent)
    except OSError as error:
        raise OSError(f"cannot write {out}: {error.strerror or error}") from error
    finally:
        for path in (hidden, hidden_header, hidden_about):
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


def _check_header(out: Path, header: Path) -> None:
    if out == header:
        raise ValueError(f"{out} is the name of the header that comes with the C file; choose another --out")
    _check_writable(header)
    if header.exists() and c_export.HEADER_MARK.encode() not in header.read_bytes():
        raise ValueError(f"{header} exists, and the header of {out} would take its place; choose another --out")


class _Play(NamedTuple):
    """How the return of integer weights is judged."""

    policy: Policy | Bare
    episodes: int
    tolerance: float


def _checked(
    policy: Policy | Bare,
    network: PolicyGraph,
    written: PolicyGraph,
    form: Format,
    to: str,
    options: Options,
    path: Path,
    obs: NDArray[Any],
    source: str,
    play: _Play,
) -> Report:
    expected, meant = trained_values(policy.network, obs), network
    whole = options.weights in LEVELS
    if whole:  # the file is held to the weights it was given, those to the return
        meant = written
        expected = DeployedPolicy(meant).values(obs)
    parity = None
    if to != "c" or c_export.compiler() is not None:
        exact = options.weights == "float64" or to == "numpy"
        parity = compare(expected, form.open(path).values, meant, obs, exact)
        if not parity.passed:
            hint = "; use --weights float64" if parity.on_threshold and "float64" in form.weights else ""
            raise ValueError(f"the exported policy is not the trained one, so nothing was written: {parity}{hint}")
    returns = None
    if whole:
        returns = _returns(network, meant, options.weights, play)
        if not returns.kept(play.tolerance):
            wider = [name for name in ("int16", form.weights[0]) if name != options.weights]
            raise ValueError(
                f"with {options.weights} weights the policy {returns.verdict(play.tolerance)}, so nothing was written: "
                f"{returns}; use --weights {' or '.join(wider)}, or a smaller --tolerance"
            )
    return Report(to, options, source, parity, returns)


def _returns(trained: PolicyGraph, rounded: PolicyGraph, weights: str, play: _Play) -> Returns:
    policy = play.policy
    assert not isinstance(policy, Bare)  # refused before
    return compared(
        lambda seeds: _played(policy, trained, seeds),
        lambda seeds: _played(policy, rounded, seeds),
        weights,
        play.episodes,
    )


def _played(policy: Policy, network: PolicyGraph, seeds: range) -> Evaluation:
    config, deployed = policy.config, DeployedPolicy(network)
    envs = [policy.make_env() for _ in seeds]
    try:
        act = lambda obs: deployed.predict(obs.astype(policy.obs_dtype))[0]  # noqa: E731
        return evaluate(act, envs, seeds, config.env_id, config.eval_max_steps)
    finally:
        for env in envs:
            env.close()


# --- observations ----------------------------------------------------------------------------------------------------


class Observations(NamedTuple):
    compared: NDArray[Any]  # the two are compared on these
    others: NDArray[Any]  # thresholds are centred on these
    source: str


def observations(run_dir: Path, policy: Policy, count: int) -> Observations:
    """Of the run's replay; where there are not enough, of random episodes, or drawn at random if its environment
    cannot be made without the user's word."""
    rows, source = _recorded(sorted((run_dir / "replay").glob("*.safetensors")), count * SHARES), "the run's replay"
    if rows is None or len(rows) < count:
        try:
            rows, source = _random_episodes(policy, count * SHARES), "random episodes"
        except NeedsWord:  # then from what the run says of its observations
            if policy.own is None:
                raise
            space = flat_space(policy.own[0], policy.config.env_id)
            rows, source = sample(space, count * SHARES, policy.obs_dtype), "random numbers within their bounds"
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
    env = policy.make_env()
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
