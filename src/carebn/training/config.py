"""One dataclass of options for a training run; the command line is made from it."""

import hashlib
import json
import shlex
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import tyro

from carebn.algorithm import DDPGOptions, DQNOptions, SACOptions, TD3Options
from carebn.errors import unknown_name
from carebn.neuron import NEURONS
from carebn.training.methods import find_method

ALGORITHMS: dict[str, type[Any]] = {"dqn": DQNOptions, "ddpg": DDPGOptions, "td3": TD3Options, "sac": SACOptions}

# Options that say where and how a run is carried out, not what it computes.
OUTSIDE = ("run_dir", "track", "quiet", "measure")


@dataclass(frozen=True)
class TrainConfig:
    """Train an agent. Running the same command again resumes the run, or says that it is complete."""

    env_id: str = "Hopper-v4"
    """Gymnasium environment with a flat Box observation and a finite Box or a Discrete action."""
    algo: Literal["dqn", "ddpg", "td3", "sac"] = "td3"
    """Learning algorithm: dqn for discrete actions, the others for continuous ones."""
    method: str = "care-bn"
    """What learns: care-bn, bn, ca, re, tdbn, bntt, tebn, tab, vanilla, pop-san, mdc-san, ann, ann-care."""
    neuron: str = "default"
    """lif, clif, dn or dn-authors. Default: clif for an actor, lif for a Q-network, as in the paper."""
    seed: int = 0
    """All randomness comes from it: the same seed gives the same files."""
    total_timesteps: int = 1_025_000
    """Environment steps, random warm-up included."""
    threads: int = 1
    """Threads of this run. One is best when several runs share a machine."""
    device: str = "cpu"
    """cpu, or cuda for a graphics card."""
    run_dir: Path | None = None
    """Where the run lives. Default: runs/ and a name made from the configuration."""
    import_modules: Annotated[tuple[str, ...], tyro.conf.arg(name="import")] = ()
    """Python modules to import first, which register environments of your own."""

    learning_starts: int = 25_000
    """Uniform random steps before learning. More: a broader first impression, a later start."""
    buffer_size: int = 1_000_000
    """Transitions kept for replay. Fewer: less memory, and old behaviour is forgotten sooner."""
    batch_size: int | None = None
    """Transitions per update. Larger: smoother gradients and statistics, slower steps. Default: the paper's table."""
    gamma: float | None = None
    """Discount. Nearer to one: longer foresight, noisier values. Default: the paper's table."""
    tau: float | None = None
    """How fast targets follow. Larger: faster learning, less stable. Default: the paper's table."""
    actor_learning_rate: float | None = None
    """Step size of the actor. Larger: faster, less stable. Default: the paper's table."""
    critic_learning_rate: float | None = None
    """Step size of the critic (or Q-network). Default: the paper's table."""
    exploration_noise: float | None = None
    """Noise on actions, relative to half their range (td3, ddpg). More: explores wider, acts worse."""
    target_interval: int | None = None
    """Updates between two copies to the target network (dqn). Larger: steadier, slower. Default: the paper's table."""
    epsilon_decay_steps: int | None = None
    """Updates until exploration is down to a tenth (dqn). More: explores longer. Default: the paper's table."""

    time_steps: int = 5
    """Simulation steps per decision. More: finer actions, proportionally slower and costlier."""
    hidden: tuple[int, ...] = (256, 256)
    """Hidden layer sizes of the actor or Q-network."""
    norm_init: Literal["own", "care"] = "own"
    """Where γ and β of a normaliser start: as published, or as CaRe-BN's, so that only the statistics differ."""
    raw_bytes: bool = False
    """Give byte observations (Atari RAM) to the network as they are, not divided by 255."""

    eval_interval: int = 5_000
    """Steps between evaluations, with re-calibration just before each. Smaller: a finer curve, more time spent."""
    eval_episodes: int = 10
    """Noise-free episodes per evaluation, with fixed, distinct seeds. More: less noise in the curve."""
    recalibration_batches: int = 100
    """Replay batches per re-calibration. More: more exact statistics, more time."""
    checkpoint_interval: int = 5_000
    """Steps between checkpoints: what a crash can cost at most."""
    log_interval: int = 1_000
    """Steps between logged losses."""

    measure: tuple[Literal["wasserstein"], ...] = ()
    """What to measure at every evaluation besides returns. wasserstein: how far each normaliser's statistics are from
    the true distribution (measure-wasserstein.jsonl). The run itself is the same with and without."""
    track: bool = False
    """Weights & Biases logging: not available yet, and refused."""
    quiet: bool = False
    """No progress display."""

    def checked(self) -> Self:
        """The configuration with every default filled in; a mistake is a ValueError of one sentence."""
        for name in (
            "total_timesteps", "threads", "buffer_size", "time_steps", "eval_interval", "eval_episodes",
            "recalibration_batches", "checkpoint_interval", "log_interval",
        ):  # fmt: skip
            if getattr(self, name) < 1:
                raise ValueError(f"--{name.replace('_', '-')} must be at least 1, got {getattr(self, name)}")
        if self.seed < 0 or self.learning_starts < 0:
            raise ValueError("--seed and --learning-starts must not be negative")
        if not self.hidden or min(self.hidden) < 1:
            raise ValueError(f"--hidden needs one or more sizes above zero, got {self.hidden}")
        method = find_method(self.method)
        neuron = self.neuron
        if not method.spiking:
            if neuron not in ("default", "none"):
                raise ValueError(f"method {self.method} has no spiking neurons, so --neuron {neuron} does not apply")
            neuron = "none"
        else:
            if neuron == "default":
                neuron = method.neuron or ("lif" if self.algo == "dqn" else "clif")
            if neuron not in NEURONS:
                raise ValueError(unknown_name("neuron", neuron, NEURONS))
            if method.neuron is not None and neuron != method.neuron:
                raise ValueError(f"method {self.method} means {method.neuron} neurons; for others use --method vanilla")
        if "wasserstein" in self.measure and method.norm == "none":
            raise ValueError(f"--measure wasserstein is about a normaliser's statistics, and {self.method} has none")
        filled: dict[str, Any] = {"neuron": neuron}
        table = asdict(ALGORITHMS[self.algo]())
        rates = {"critic_learning_rate": "learning_rate"} if self.algo == "dqn" else {}
        for name in (
            "batch_size", "gamma", "tau", "actor_learning_rate", "critic_learning_rate", "exploration_noise",
            "target_interval", "epsilon_decay_steps",
        ):  # fmt: skip
            key = rates.get(name, name)
            if getattr(self, name) is None:
                filled[name] = table.get(key)
            elif key not in table:
                raise ValueError(f"--{name.replace('_', '-')} does not apply to {self.algo}")
        full = replace(self, **filled)
        assert full.batch_size is not None
        if full.batch_size < 2:
            raise ValueError(f"--batch-size must be at least 2, got {full.batch_size}")
        if full.gamma is not None and not 0 <= full.gamma <= 1:
            raise ValueError(f"--gamma must lie in [0, 1], got {full.gamma}")
        if full.tau is not None and not 0 < full.tau <= 1:
            raise ValueError(f"--tau must lie in (0, 1], got {full.tau}")
        for name in ("actor_learning_rate", "critic_learning_rate"):
            rate = getattr(full, name)
            if rate is not None and not 0 < rate < float("inf"):
                option = name.replace("_", "-")
                raise ValueError(f"--{option} must be a learning rate above zero and finite, got {rate}")
        if full.exploration_noise is not None and not 0 <= full.exploration_noise < float("inf"):
            raise ValueError(f"--exploration-noise must not be negative, got {full.exploration_noise}")
        if self.learning_starts < 2:
            full = replace(full, learning_starts=2)  # a batch needs transitions to come from
        return full

    def algorithm_options(self) -> Any:
        table = ALGORITHMS[self.algo]
        known = {f.name for f in fields(table)}
        given = {name: getattr(self, name) for name in known if hasattr(self, name)}
        if self.algo == "dqn":
            given["learning_rate"] = self.critic_learning_rate
        return table(**{name: value for name, value in given.items() if value is not None})

    def as_json(self) -> dict[str, Any]:
        """What the run computes, free of paths."""
        return {name: _plain(value) for name, value in asdict(self).items() if name not in OUTSIDE}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        if not isinstance(data, dict):
            raise ValueError("it does not hold a configuration")
        names = {f.name for f in fields(cls)}
        unknown = sorted(data.keys() - names)
        if unknown:
            raise ValueError(f"the configuration has an option that this version does not know: {unknown[0]!r}")
        values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items()}
        for f in fields(cls):
            if f.name in values and not _has_type_of(f.default, values[f.name]):
                raise ValueError(f"option {f.name!r} has a value of the wrong type: {values[f.name]!r}")
        return cls(**values)

    def name(self) -> str:
        """A directory name that tells the main choices, and by a digest all of them."""
        digest = hashlib.sha256(json.dumps(self.as_json(), sort_keys=True).encode()).hexdigest()[:8]
        parts = [self.env_id.replace("/", "-"), self.algo, self.method, self.neuron, f"s{self.seed}", digest]
        return "__".join(part for part in parts if part != "none")

    def title(self) -> str:
        """For people: what learns where."""
        parts = (self.env_id, self.algo, self.method, self.neuron, f"seed {self.seed}")
        return ", ".join(part for part in parts if part != "none")

    def command(self) -> str:
        """The command that makes this run, with every option that differs from its default."""
        words = ["carebn", "train"]
        default = TrainConfig(algo=self.algo, method=self.method, neuron=self.neuron).checked()
        for name, value in self.as_json().items():
            if name in ("env_id", "algo", "method", "neuron", "seed") or value != _plain(getattr(default, name)):
                if value is None or (name == "neuron" and value == "none"):
                    continue
                option = "--import" if name == "import_modules" else f"--{name.replace('_', '-')}"
                if isinstance(value, bool):
                    words.append(option if value else option.replace("--", "--no-", 1))
                else:
                    words += [option, *map(str, value if isinstance(value, list) else [value])]
        return shlex.join(words)


def _has_type_of(default: Any, value: Any) -> bool:
    """Whether a value read from a file is of the kind that the option holds."""
    if default is None:  # an optional number
        return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))
    if isinstance(default, tuple):
        items = str if default == () else int
        return isinstance(value, tuple) and all(type(item) is items for item in value)
    return type(value) is type(default)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
