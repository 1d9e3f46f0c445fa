"""One dataclass of options for a training run; the command line is made from it."""

import hashlib
import json
import shlex
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_type_hints

import tyro

from carebn.algorithm import ProxyOptions, find_algorithm
from carebn.errors import unknown_name
from carebn.limits import (
    BATCHES,
    ENVIRONMENTS,
    EPISODES,
    LARGEST,
    LARGEST_SEED,
    STEPS,
    THREADS,
    TIME_STEPS,
    UPDATES,
    check_float32,
    check_most,
    check_work,
)
from carebn.network.decoder import Q_READOUTS, READOUTS
from carebn.neuron import NEURONS
from carebn.paper.facts import STEPS as PAPER_STEPS
from carebn.training import algo_options, sparsity
from carebn.training.defaults import WHY_IT_DOES_NOT_APPLY, fill, flag
from carebn.training.env_kwargs import EnvKwargs, words_of
from carebn.training.env_kwargs import check as check_env_kwargs
from carebn.training.kinds import has_kind
from carebn.training.methods import find_method
from carebn.training.registered_names import ALGO, NEURON
from carebn.training.schedule import rounded_up
from carebn.training.whole_number import Steps

# Options that say where and how a run is carried out, not what it computes.
OUTSIDE = ("run_dir", "vector", "track", "quiet", "measure", "trust")
# Options that config.json has only where they are used, so that it stays what it was for all other runs.
IF_GIVEN: dict[str, Any] = {
    "env_kwargs": {}, "wrappers": [], "eval_max_steps": None, "algo_options": {}, "num_envs": 1, "updates_per_step": 1,
    "spike_penalty": [], "target_rate": [],
}  # fmt: skip
RATES = ("actor_learning_rate", "critic_learning_rate", "proxy_learning_rate")


@dataclass(frozen=True)
class TrainConfig:
    """Train an agent. Running the same command again resumes the run, or says that it is complete."""

    env_id: str = "Hopper-v4"
    """Gymnasium environment with a finite Box or a Discrete action; observations of any kind but images."""
    algo: str = field(default="td3", metadata=ALGO)
    """Learning algorithm: a name in ``carebn.algorithm.ALGORITHMS``."""
    method: str = "care-bn"
    """What learns: care-bn, vanilla, ann, ...; `carebn methods` lists them all."""
    neuron: str = field(default="default", metadata=NEURON)
    """What fires: a name in ``carebn.neuron.NEURONS``. Default: the method's, else the algorithm's."""
    seed: int = 0
    """All randomness comes from it: the same seed gives the same files."""
    total_timesteps: Steps = PAPER_STEPS
    """Environment steps, random warm-up included."""
    threads: int = 1
    """Threads of this run. One is best when several runs share a machine."""
    num_envs: int = 1
    """Environments that are stepped together, with one batch of actions. More: broader experience, less time to act.
    What takes most of the time are updates: --updates-per-step."""
    vector: Literal["sync", "async"] = "sync"
    """Where several environments run: one after the other in this process, or each in a process of its own, which pays
    where a step takes longer than a message. The run is the same."""
    device: str = "cpu"
    """cpu, or cuda for a graphics card."""
    run_dir: Path | None = None
    """Where the run lives. Default: runs/ and a name made from the configuration."""
    import_modules: Annotated[tuple[str, ...], tyro.conf.arg(name="import")] = ()
    """Python modules to import first, which register environments, algorithms, normalisers or neurons of your own."""
    env_kwargs: EnvKwargs = field(default_factory=dict)
    """Arguments for the environment, as goal_velocity=0.1 gravity=9.8, or one JSON object."""
    wrappers: Annotated[tuple[str, ...], tyro.conf.arg(name="wrapper"), tyro.conf.UseAppendAction] = ()
    """A wrapper class of your own or of Gymnasium's around the environment, as module:Class; may be given again."""
    trust: bool = False
    """Import what a run's own config.json names, where nothing but its --run-dir is given."""

    learning_starts: Steps | None = None
    """Steps before learning. More: a broader first impression, a later start. Default: the paper's 25_000, in a shorter
    run its share (one step in 41), but enough for a batch."""
    random_steps: Steps | None = None
    """Uniform random actions at the beginning. Default: until learning starts."""
    update_interval: int | None = None
    """Learn every so many steps, making as many updates at once. Larger: a steadier policy within it. Default: 1."""
    updates_per_step: float = 1.0
    """Updates for each step of an environment. Fewer: a faster run that learns less from each step."""
    buffer_size: Steps = 1_000_000
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

    algo_options: EnvKwargs = field(default_factory=dict)
    """Options that the algorithm alone has, as policy_noise=0.1 noise_clip=0.3 (td3), or one JSON object."""

    target: Literal["default", "polyak", "proxy"] = "default"
    """Target actor (td3, ddpg): a slow copy, or an ordinary network that imitates the actor. Default: polyak."""
    proxy_hidden: tuple[int, ...] | None = None
    """Hidden layer sizes of the proxy. Default: 512 512; with clif 800 600, but for InvertedDoublePendulum."""
    proxy_learning_rate: float | None = None
    """Step size of the proxy. Larger: it imitates faster, less smoothly. Default: with lif 1e-3, else 3e-3."""
    proxy_updates: int | None = None
    """Imitation steps per update. More: a closer, costlier imitation. Default: 3."""

    time_steps: int = 5
    """Simulation steps per decision. More: finer actions, proportionally slower and costlier."""
    hidden: tuple[int, ...] = (256, 256)
    """Hidden layer sizes of the actor or Q-network."""
    spike_penalty: tuple[float, ...] = ()
    """λ: the loss gets λ times the share of neurons that fire. Higher: fewer spikes, cheaper to run, in the end worse.
    One number, or encoder, layers, output population (Q-network: layers). 0 only logs the rates. Default: none."""
    target_rate: tuple[float, ...] = ()
    """Share of neurons that may fire per step; the penalty is found on the way. One number is for the hidden layers;
    several as above, where 1 leaves one free. Default: none."""
    surrogate: Literal["default", "rectangle", "triangle", "sigmoid", "tanh"] = "default"
    """Slope that stands for the derivative of a spike. Default: rectangle."""
    coding: Literal["default", "deterministic", "poisson", "analogue"] = "default"
    """How the encoder speaks: spikes by integration, random spikes, or numbers. Default: deterministic."""
    observation: Literal["default", "tanh", "zscore", "raw"] = "default"
    """What the encoder sees. zscore: running standardisation, for the critic too. Default: tanh."""
    encoder_reset: Literal["default", "spike", "threshold"] = "default"
    """What an encoder spike subtracts: 1, or the threshold of 0.999. Default: spike."""
    encoder_range: float | None = None
    """Receptive fields start evenly between minus and plus this. Default: 1."""
    encoder_std: float | None = None
    """Width of the receptive fields at the start. Default: the square root of 0.05."""
    readout: Literal["default", "membrane", "rate", "max-membrane", "mean-membrane", "count"] = "default"
    """From spikes to numbers: actors membrane, rate, max- or mean-membrane; Q-networks membrane or count."""
    readout_init: Literal["default", "scaled", "torch"] = "default"
    """A membrane's weights start at 1/T of torch's scale, so that it starts as a rate, or at that scale itself."""
    intralayer: Literal["default", "none", "intra", "no-bias", "no-self", "no-lateral", "bias", "self", "lateral"] = (
        "default"
    )
    """Connections inside the output populations (ILC-SAN, and its ablations). Default: none."""
    norm_momentum: float | None = None
    """Weight of what is new in the moving statistics (care, ca: in their error estimates). Default: as published."""
    norm_init: Literal["own", "care"] = "own"
    """Where γ and β of a normaliser start: as published, or as CaRe-BN's, so that only the statistics differ."""
    conversion_steps: int | None = None
    """Simulation steps of the spiking policy that an ANN is converted to. Default: 100 for ann-snn, 8 for crpi."""
    residual_alpha: float | None = None
    """Share of the residual potentials that is carried over (crpi). Default: 0.3."""
    raw_bytes: bool = False
    """Give byte observations (Atari RAM) to the network as they are, not divided by 255."""

    eval_interval: Steps = 5_000
    """Steps between evaluations, with re-calibration just before each. Smaller: a finer curve, more time spent."""
    eval_episodes: int = 10
    """Noise-free episodes per evaluation, with fixed, distinct seeds. More: less noise in the curve."""
    eval_max_steps: Steps | None = None
    """Longest evaluation episode. Default: the environment's own max_episode_steps; where it has none, 108_000."""
    recalibration_batches: int = 100
    """Replay batches per re-calibration. More: more exact statistics, more time."""
    checkpoint_interval: Steps = 5_000
    """Steps between checkpoints: what a crash can cost at most."""
    log_interval: Steps = 1_000
    """Steps between logged losses."""

    measure: tuple[Literal["wasserstein"], ...] = ()
    """What to measure at every evaluation besides returns. wasserstein: how far each normaliser's statistics are from
    the true distribution (measure-wasserstein.jsonl). The run itself is the same with and without."""
    track: bool = False
    """Also send the figures to Weights & Biases (pip install wandb). The run's files stay the same."""
    quiet: bool = False
    """No progress display: warnings and the result alone."""

    def checked(self) -> Self:
        """The configuration with every default filled in; a mistake is a ValueError of one sentence."""
        for name in (
            "total_timesteps", "threads", "num_envs", "buffer_size", "time_steps", "eval_interval", "eval_episodes",
            "recalibration_batches", "checkpoint_interval", "log_interval",
        ):  # fmt: skip
            if getattr(self, name) < 1:
                raise ValueError(f"{flag(name)} must be at least 1, got {getattr(self, name)}")
        if self.seed < 0:
            raise ValueError(f"--seed must not be negative, got {self.seed}")
        self._check_sense()
        for name in ("hidden", "proxy_hidden"):
            sizes = getattr(self, name)
            if sizes is not None and (not sizes or min(sizes) < 1):
                raise ValueError(f"{flag(name)} needs one or more sizes above zero, got {sizes}")
        check_env_kwargs(self.env_kwargs)
        for wrapper in self.wrappers:
            if not all(part and all(map(str.isidentifier, part.split("."))) for part in wrapper.partition(":")[::2]):
                raise ValueError(f"--wrapper needs module:Class, as my_module:MyWrapper, got {wrapper!r}")
        algorithm, method = find_algorithm(self.algo), find_method(self.method)
        if method.algorithms and self.algo not in method.algorithms:
            raise ValueError(
                f"method {self.method} is defined for {' and '.join(method.algorithms)}, not for {self.algo}"
                + ("; --method vanilla is a Q-network with the neurons of your choice" if algorithm.discrete else "")
            )
        neuron = self.neuron
        if not method.spiking:
            if neuron not in ("default", "none"):
                raise ValueError(f"method {self.method} has no spiking neurons, so --neuron {neuron} does not apply")
            neuron = "none"
        else:
            if neuron == "default":
                neuron = method.neuron or method.preset(self.env_id).get("neuron", algorithm.neuron)
            if neuron not in NEURONS:
                raise ValueError(unknown_name("neuron", neuron, NEURONS))
            if method.neuron is not None and neuron != method.neuron:
                raise ValueError(f"method {self.method} means {method.neuron} neurons; for others use --method vanilla")
        if "wasserstein" in self.measure and method.norm == "none":
            raise ValueError(f"--measure wasserstein is about a normaliser's statistics, and {self.method} has none")
        for name in ("time_steps", "norm_init", "raw_bytes", "spike_penalty", "target_rate"):  # never open
            why = WHY_IT_DOES_NOT_APPLY[name](self, method)
            if why and getattr(self, name) != getattr(TrainConfig, name):
                raise ValueError(f"{flag(name)} does not apply: {why}")
        own = algo_options.check(self.algo, self.algo_options, [f.name for f in fields(self)])
        full = fill(replace(self, neuron=neuron, algo_options=own), method)
        full._check_words(method.spiking)
        full._check_numbers()
        full.algorithm_options()
        sparsity.check(full.spike_penalty, full.target_rate, full.algo, full.hidden, full.coding)
        assert full.learning_starts is not None
        return replace(
            full,
            learning_starts=max(2, full.learning_starts),  # a batch needs transitions to come from
            total_timesteps=rounded_up(full.total_timesteps, full.num_envs),
            updates_per_step=float(full.updates_per_step),
        )

    def _check_sense(self) -> None:
        """Numbers that are whole and above zero, and yet nobody can have meant."""
        check_work("--total-timesteps", self.total_timesteps, STEPS)
        check_work("--eval-episodes", self.eval_episodes, EPISODES)
        check_work("--recalibration-batches", self.recalibration_batches, BATCHES)
        check_work("--proxy-updates", self.proxy_updates or 1, UPDATES)
        check_most("--threads", self.threads, THREADS)
        check_most("--num-envs", self.num_envs, ENVIRONMENTS)
        if self.buffer_size < self.num_envs:
            raise ValueError(
                f"--buffer-size {self.buffer_size:,} does not hold one step of --num-envs {self.num_envs:,}; raise the "
                f"one or lower the other"
            )
        if not 0 < self.updates_per_step <= UPDATES.number:
            raise ValueError(
                f"--updates-per-step must be above zero and at most {UPDATES.number:,}, got {self.updates_per_step}"
            )
        check_most("--seed", self.seed, LARGEST_SEED)
        check_most("--time-steps", self.time_steps, TIME_STEPS)
        check_most("--conversion-steps", self.conversion_steps or 1, TIME_STEPS)

    def _check_words(self, spiking: bool) -> None:
        discrete = find_algorithm(self.algo).discrete
        readouts = Q_READOUTS if discrete else READOUTS
        if self.readout not in (*readouts, "none"):
            kind = "a Q-network" if discrete else "an actor"
            raise ValueError(f"--readout {self.readout} is not one of {kind}: it has {', '.join(readouts)}")
        if self.readout == "rate" and self.readout_init == "torch":
            raise ValueError("--readout-init torch does not apply: a rate read-out starts at torch's scale anyway")
        if self.target == "proxy" and not spiking:
            raise ValueError(f"--target proxy stands in for a spiking target, and method {self.method} has none")

    def _check_numbers(self) -> None:
        for name, least in (
            ("batch_size", 2), ("learning_starts", 0), ("random_steps", 0), ("update_interval", 1),
            ("eval_max_steps", 1),
            ("proxy_updates", 1), ("conversion_steps", 1), ("target_interval", 1), ("epsilon_decay_steps", 1),
        ):  # fmt: skip
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f"{flag(name)} must be at least {least}, got {value}")
        for name in ("gamma", "residual_alpha"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= 1:
                raise ValueError(f"{flag(name)} must lie in [0, 1], got {value}")
        for name in ("tau", "norm_momentum"):
            value = getattr(self, name)
            if value is not None and not 0 < value <= 1:
                raise ValueError(f"{flag(name)} must lie in (0, 1], got {value}")
        for name in RATES:
            rate = getattr(self, name)
            if rate is not None and not 0 < rate < float("inf"):
                raise ValueError(f"{flag(name)} must be a learning rate above zero and finite, got {rate}")
        for name in ("encoder_range", "encoder_std", *RATES):
            value = getattr(self, name)
            if value is not None:
                check_float32(flag(name), value)
        if self.exploration_noise is not None and not 0 <= self.exploration_noise <= LARGEST:
            raise ValueError(
                f"--exploration-noise must not be negative, nor beyond float32, got {self.exploration_noise}"
            )

    def algorithm_options(self) -> Any:
        """Of the algorithm's own dataclass, which may have something against them."""
        shared = {f.name: getattr(self, f.name) for f in fields(self)}
        own = {name: algo_options.as_given(value) for name, value in self.algo_options.items()}
        given = {name: value for name, value in shared.items() if value is not None} | own
        try:
            return find_algorithm(self.algo).options_from(given)
        except ValueError as error:
            raise ValueError(f"{self.algo} does not take these options: {error}") from error

    def proxy_options(self) -> ProxyOptions:
        assert self.proxy_hidden is not None
        assert self.proxy_learning_rate is not None
        assert self.proxy_updates is not None
        return ProxyOptions(self.proxy_hidden, self.proxy_learning_rate, self.proxy_updates)

    def conversion(self) -> dict[str, Any] | None:
        """How the trained ANN becomes spiking when the run ends; None: it does not."""
        rule = find_method(self.method).conversion
        if rule is None:
            return None
        chosen = {"time_steps": self.conversion_steps, "alpha": self.residual_alpha}
        return {name: chosen.get(name, value) for name, value in rule.items()}

    def as_json(self) -> dict[str, Any]:
        """What the run computes, free of paths."""
        values = {name: _plain(value) for name, value in asdict(self).items() if name not in OUTSIDE}
        return {name: value for name, value in values.items() if name not in IF_GIVEN or value != IF_GIVEN[name]}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        if not isinstance(data, dict):
            raise ValueError("it does not hold a configuration")
        names = {f.name for f in fields(cls)} - {"trust"}  # the user's word is not a file's to give
        unknown = sorted(data.keys() - names)
        if unknown:
            raise ValueError(f"the configuration has an option that this version does not know: {unknown[0]!r}")
        values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items()}
        for name in ("spike_penalty", "target_rate"):  # one number for all, as on a command line
            if type(values.get(name)) in (int, float):
                values[name] = (float(values[name]),)
        hints = get_type_hints(cls)
        for name, value in values.items():
            if not has_kind(hints[name], value):
                raise ValueError(f"option {name!r} has a value of the wrong kind: {value!r}")
        return cls(**values)

    def name(self, threads: int = 1) -> str:
        """A directory name that tells the main choices, and by a digest all of them except the threads."""
        options = self.as_json() | {"threads": threads}
        digest = hashlib.sha256(json.dumps(options, sort_keys=True).encode()).hexdigest()[:8]
        parts = [self.env_id.replace("/", "-"), self.algo, self.method, self.neuron, f"s{self.seed}", digest]
        return "__".join(part for part in parts if part != "none")

    def title(self) -> str:
        """For people: what learns where."""
        parts = (self.env_id, self.algo, self.method, self.neuron, f"seed {self.seed}")
        return ", ".join(part for part in parts if part != "none")

    def command(self) -> str:
        """The command that makes this run, with every option that differs from its default."""
        words = ["carebn", "train"]
        default = TrainConfig(self.env_id, self.algo, self.method, self.neuron).checked()
        for name, value in {**self.as_json(), "measure": _plain(self.measure)}.items():
            if name in ("env_id", "algo", "method", "neuron", "seed") or value != _plain(getattr(default, name)):
                if value is None or (name == "neuron" and value == "none"):
                    continue
                option = "--import" if name == "import_modules" else flag(name)
                if name in ("env_kwargs", "algo_options"):
                    words += [option, *words_of(value)]
                elif name == "wrappers":
                    words += [word for wrapper in value for word in ("--wrapper", wrapper)]
                elif isinstance(value, bool):
                    words.append(option if value else option.replace("--", "--no-", 1))
                else:
                    words += [option, *map(str, value if isinstance(value, list) else [value])]
        return shlex.join(words)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
