"""Exports of a trained run: written under a hidden name, compared with the trained network, and only then shown.

Beside the exported file a report of the comparison is left, ``FILE.json``, with the checksum of the file it speaks of.
"""

import importlib
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import nn

from carebn import __version__
from carebn.deploy import c_export, integer_c
from carebn.deploy.blob import MAGIC, blob_of
from carebn.deploy.chip_limits import NO_LIMITS, ChipLimits
from carebn.deploy.folding import fold
from carebn.deploy.graph import LEVELS, PolicyGraph
from carebn.deploy.integer import IntegerPolicy
from carebn.deploy.integerise import check_integer, integerised
from carebn.deploy.loading import load
from carebn.deploy.origin import origin_of
from carebn.deploy.parity import Parity, compare, same_numbers, trained_values
from carebn.deploy.qat import tuned
from carebn.deploy.quantise import quantised
from carebn.deploy.returns import EPISODES, FIRST_SEED, Returns, compared
from carebn.deploy.runtime import DeployedPolicy
from carebn.deploy.threshold_gaps import with_centred_thresholds
from carebn.errors import unknown_name
from carebn.training.evaluation import Evaluation, evaluate
from carebn.training.files import as_json, flush_directory, replaceable, sha256, write_file
from carebn.training.policy import Policy

PRECISIONS: dict[str, type[np.floating[Any]]] = {"float32": np.float32, "float64": np.float64}
TOLERANCE = 0.95  # how much of its return a policy must keep with integer weights


class Bare(NamedTuple):
    """A network that has no run."""

    network: nn.Module
    obs_dtype: Any


class Acting(Protocol):
    """Whoever can play an episode."""

    def values(self, obs: NDArray[Any]) -> NDArray[Any]: ...


@dataclass(frozen=True)
class Options:
    weights: str
    bias: str
    prefix: str = ""
    blob: bool = False  # weights in a file of their own
    qat: int = 0  # steps of fine-tuning
    limits: ChipLimits = NO_LIMITS

    @property
    def rounding(self) -> str | None:
        """int8 or int16, if weights are rounded."""
        return self.limits.quantise or (self.weights if self.weights in LEVELS else None)


@dataclass(frozen=True)
class Format:
    weights: tuple[str, ...]  # the first is the default
    write: Callable[[Any, Path, Options], None]  # a policy graph, or a policy in whole numbers
    open: Callable[[Path], Any]
    biases: tuple[str, ...] = ("affine",)
    header: Callable[[Any, Options], str] | None = None  # the text of a second file, with the ending .h


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
        write=lambda network, path, o: _nir().write_nir(
            network, path, o.bias, PRECISIONS[o.weights], o.limits.quantise, o.limits.shared_threshold
        ),
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
        write=lambda network, path, o: (
            integer_c.write_c(network, path, o.prefix, o.blob)
            if isinstance(network, IntegerPolicy)
            else c_export.write_c(network, path, o.weights, o.prefix)
        ),
        open=c_export.CPolicy,
        header=lambda network, o: (
            integer_c.to_header(network, o.prefix, o.blob)
            if isinstance(network, IntegerPolicy)
            else c_export.to_header(network, o.weights, o.prefix)
        ),
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
    details: tuple[str, ...] = ()  # what whole numbers need, or what a chip asked for

    @property
    def checked(self) -> bool:
        """By a comparison; or, if its numbers are meant to be others, because the file itself has played."""
        return self.parity is not None or self.format == "nir"

    def lines(self) -> list[str]:
        lines = []
        if not self.checked:
            lines = ["NOT CHECKED: there is no C compiler on this machine, so the file was neither compiled nor run"]
        if self.parity is not None:
            lines = [f"checked on {self.source}: {self.parity}"]
        if self.returns is not None:
            lines.append(str(self.returns))
        return lines + list(self.details)

    def as_json(self, digest: str) -> dict[str, Any]:
        more: dict[str, Any] = {"details": list(self.details)} if self.details else {}
        return more | {
            "format": self.format,
            "weights": self.options.weights,
            "bias": self.options.bias,
            "prefix": self.options.prefix,
            "sha256": digest,
            "carebn": __version__,
            "observations": self.source,
            "checked": self.checked,
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
    blob: bool = False,
    qat: int = 0,
    limits: ChipLimits = NO_LIMITS,
    origin: Mapping[str, Any] | None = None,
) -> Report:
    """Write ``policy`` to the file ``out``, if what was written behaves as the trained network on ``obs``.

    A ValueError says why it does not; then nothing is left behind. For float32 weights, thresholds are centred on
    ``others``, observations that the comparison does not use; integer weights are rounded on them. ``blob``: the
    weights of a C file in a file of their own, with the ending .bin. ``qat``: steps of fine-tuning of integer weights.
    ``origin``: what the file says of where the policy comes from; None: what the policy itself knows.
    """
    if to not in FORMATS:
        raise ValueError(unknown_name("export format", to, FORMATS))
    form = FORMATS[to]
    options = Options(weights or form.weights[0], bias, prefix, blob, qat, limits)
    _check_options(policy, to, options, tolerance)
    _check_writable(out)
    header, about, weights_file = out.with_suffix(".h"), Path(f"{out}.json"), out.with_suffix(".bin")
    _check_writable(about)
    if form.header is not None:
        _check_header(out, header)
    if blob:
        _check_blob(out, weights_file)
    network = fold(policy.network, byte_observations=policy.obs_dtype == np.uint8)
    limits.check_network(network, bias == "neuron")
    if options.weights in LEVELS:
        check_integer(network)
    if origin is None:
        origin = {"carebn": __version__} if isinstance(policy, Bare) else origin_of(policy)
    network = replace(network, origin=origin)
    final = (out, header, about, weights_file)
    hidden, hidden_header, hidden_about, hidden_blob = (path.with_name(f".{path.name}.part") for path in final)
    try:
        seen = obs if others is None or not len(others) else others
        written = _written(network, options, seen, others is not None)
        form.write(written, hidden, options)
        if blob:
            write_file(hidden_blob, blob_of(integer_c.tables(written)).data)
        play = _Play(policy, episodes, tolerance)
        report = _checked(policy, network, written, form, to, options, (hidden, hidden_blob), obs, source, play)
        write_file(hidden_about, as_json(report.as_json(sha256(hidden.read_bytes()))))
        if form.header is not None:
            write_file(hidden_header, form.header(written, options).encode())
            os.replace(hidden_header, header)
        if blob:
            os.replace(hidden_blob, weights_file)
        os.replace(hidden, out)
        os.replace(hidden_about, about)
        flush_directory(out.parent)
    except OSError as error:
        raise OSError(f"cannot write {out}: {error.strerror or error}") from error
    finally:
        for path in (hidden, hidden_header, hidden_about, hidden_blob):
            with suppress(OSError):
                path.unlink(missing_ok=True)
    return report


def _check_options(policy: Policy | Bare, to: str, options: Options, tolerance: float) -> None:
    form, rounding = FORMATS[to], options.rounding
    for what, value, known in (("weights", options.weights, form.weights), ("bias", options.bias, form.biases)):
        if value not in known:
            raise ValueError(f"--{what} {value} is not available for --to {to}; it has {', '.join(known)}")
    options.limits.check_options(to)
    if rounding and isinstance(policy, Bare):
        raise ValueError(
            f"{rounding} weights are judged by the return, which a network alone does not have: export its run"
        )
    if not 0 <= tolerance <= 1:
        raise ValueError(f"--tolerance is a share of the return, between 0 and 1; got {tolerance:g}")
    if options.prefix and form.header is None:
        raise ValueError(f"--prefix is for --to c, whose names it begins; --to {to} has none")
    if options.blob and (to != "c" or rounding is None):
        raise ValueError(
            "--blob puts integer weights in a file of their own: give it with --to c and --weights int8 or int16"
        )
    if options.qat < 0 or (options.qat and rounding is None):
        raise ValueError(f"--qat {options.qat} fine-tunes integer weights: give it with --weights int8 or int16")
    c_export.function_name(options.prefix)  # says what is wrong with it


def _written(network: PolicyGraph, options: Options, seen: NDArray[Any], centred: bool) -> Any:
    """What the file is to hold: the policy graph, or the policy in whole numbers."""
    rounding, shared = options.rounding, options.limits.shared_threshold
    if rounding is None:
        return with_centred_thresholds(network, seen) if centred and options.weights == "float32" else network
    whole = quantised(network, rounding, seen, shared=shared, with_bias=options.bias == "neuron")
    if options.qat:
        whole = tuned(network, whole, rounding, seen, options.qat, shared)
    return integerised(whole, seen) if options.weights in LEVELS else whole


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


def _check_blob(out: Path, weights_file: Path) -> None:
    if out == weights_file:
        raise ValueError(f"{out} is the name of the weights that come with the C file; choose another --out")
    _check_writable(weights_file)
    if weights_file.exists() and not weights_file.read_bytes().startswith(MAGIC):
        raise ValueError(f"{weights_file} exists, and the weights of {out} would take its place; choose another --out")


class _Play(NamedTuple):
    """How the return of integer weights is judged."""

    policy: Policy | Bare
    episodes: int
    tolerance: float


def _checked(
    policy: Policy | Bare,
    network: PolicyGraph,
    written: Any,
    form: Format,
    to: str,
    options: Options,
    paths: tuple[Path, Path],
    obs: NDArray[Any],
    source: str,
    play: _Play,
) -> Report:
    path, rounding, details = paths[0], options.rounding, _details(written, to, options)
    parity, acting = None, written
    tried = to != "c" or c_export.compiler() is not None
    if isinstance(written, IntegerPolicy):  # the file is held to the numbers it was given, those to the return
        if tried:
            fixed = written.fixed(obs)
            opened = load(path) if to == "numpy" else integer_c.IntegerProgram(path, *[str(paths[1])] * options.blob)
            parity = same_numbers(written.decide(fixed), opened.decide(fixed))  # type: ignore[union-attr]
    elif rounding:  # whole numbers in NIR: what is written is what plays
        acting = form.open(path)
    elif tried:
        exact = options.weights == "float64" or to == "numpy"
        parity = compare(trained_values(policy.network, obs), form.open(path).values, network, obs, exact)
    if parity is not None and not parity.passed:
        hint = "; use --weights float64" if parity.on_threshold and "float64" in form.weights else ""
        raise ValueError(f"the exported policy is not the trained one, so nothing was written: {parity}{hint}")
    returns = None
    if rounding:
        returns = _returns(network, acting, rounding, play)
        if not returns.kept(play.tolerance):
            wider = [name for name in ("int16", form.weights[0]) if name != rounding and name in form.weights]
            instead = f"--weights {' or '.join(wider)}" if options.weights in LEVELS else "--quantise int16"
            raise ValueError(
                f"with {rounding} weights the policy {returns.verdict(play.tolerance)}, so nothing was written: "
                f"{returns}; use {instead}, or a smaller --tolerance"
                + ("" if options.qat else ", or fine-tune with --qat 500")
            )
    return Report(to, options, source, parity, returns, tuple(details))


def _details(written: Any, to: str, options: Options) -> list[str]:
    if isinstance(written, IntegerPolicy):
        lines = [line.strip() for line in integer_c.bound_lines(written)]
        if to == "c":
            flash, ram = c_export.memory(integer_c.to_c(written, options.prefix, options.blob))
            lines.append(f"flash {flash:,} bytes of constants, RAM {ram:,} bytes, without gaps between arrays")
        return lines
    return options.limits.lines(written, options.bias == "neuron") if options.limits != NO_LIMITS else []


def _returns(trained: PolicyGraph, rounded: Any, weights: str, play: _Play) -> Returns:
    policy = play.policy
    assert not isinstance(policy, Bare)  # refused before
    return compared(
        lambda seeds: _played(policy, DeployedPolicy(trained), seeds, trained.bounds is None),
        lambda seeds: _played(policy, rounded, seeds, trained.bounds is None),
        weights,
        play.episodes,
    )


def _played(policy: Policy, acting: Acting, seeds: range, discrete: bool) -> Evaluation:
    config = policy.config
    envs = [policy.make_env() for _ in seeds]
    try:

        def act(obs: NDArray[Any]) -> NDArray[Any]:
            values = acting.values(obs.astype(policy.obs_dtype))
            return values.argmax(-1) if discrete else values.astype(np.float32)

        return evaluate(act, envs, seeds, config.env_id, config.eval_max_steps)
    finally:
        for env in envs:
            env.close()
