"""A command line and damaged files, drawn at random; a case says everything, and can be repeated."""

import json
import random
from dataclasses import asdict, dataclass
from typing import Self

from .damage import CONTENTS, KINDS
from .options import Option, options
from .world import PATHS, RUNS, TINY

WHOLE = (
    "0", "-1", "1", "2", "3", "7", "1000", "1000000000", "2147483648", "4294967296", str(2**63),
    str(10**18), str(10**30), "9" * 400, "-2147483649", str(-(10**30)), "1_000", "+5",
)  # fmt: skip
FLOATS = (
    "0", "-1", "1", "0.5", "1.5", "-2.5", "nan", "inf", "-inf", "1e9", "1e18", "1e38", "3.5e38", "1e39", "1e308",
    "1e400", "-1e400", "1e-30", "1e-46", "1e-400", "-0",
)  # fmt: skip
NUMBERS = (
    *FLOATS, "1e12", "1e30", "9" * 5000, "", " ", "0x10", "１２", "²", "None", "True", "[1]", "{}", "five", "1,000",
)  # fmt: skip
NASTY_WORDS = (
    "", " ", "none", "None", "default", "auto", "nonsense", "-", "--", "--help", "-h", "*", "x" * 10_000, "né ☃ 🙂",
    "\udcff\udcfe", "[/bold]", "[link=x", "{0}", "%s%n", "a\nb", "../..", "/dev/zero", "0", "NaN", "=", "a=b",
    "mem_gb=x", ":", "::", "a:b", "CARE-BN", "carebn",
)  # fmt: skip
ENVIRONMENTS = (
    "Pendulum-v1", "CartPole-v1", "MountainCarContinuous-v0", "Hopper-v4", "Hopper-v99", "hopper", "FrozenLake-v1",
    "Taxi-v3", "Blackjack-v1", "CarRacing-v3", "ALE/Pong-v5", "ALE/Nothing-v5", "ALE/", "CliffWalking-v0",
    "LunarLander-v3", "BipedalWalker-v3", "phys2d/CartPole-v1", "GymV21Environment-v0", "tabular/Blackjack-v0", ":",
    ":x", "x:", "no_such_module:X-v0", "os:X-v0", "module_that_fails:X-v0", "module_that_ends:X-v0", "/", "v4", "a b",
    "Hopper-v4\n",
)  # fmt: skip
MODULES = (
    "", ".", "..", ".x", "no_such_module", "os", "os.path", "os.nothing", "module_that_fails", "module_that_ends",
    "module_that_fails.py", "runs", "crowded", "a b", "né", "1", "/etc/passwd", "x" * 5000, "json.decoder",
)  # fmt: skip
DAMAGED = (
    "config.json", "config.json", "config.json", "metrics.jsonl", "metrics.jsonl", "timing.jsonl", "versions.json",
    "command.txt", "policy.safetensors", "policy.safetensors", "checkpoint/000000030/manifest.json",
    "checkpoint/000000030/state.json", "checkpoint/000000030/agent.safetensors", "checkpoint", "checkpoint/000000030",
    "replay", "replay/0000000000-0000000015.safetensors", "energy.json", "measure-wasserstein.jsonl", ".lock",
    "curve.png", "tensorboard", "tensorboard/events.out.tfevents.0.carebn", "../training-cost.json",
    "../input-distributions.json", "evaluation.json",
)  # fmt: skip
CONVERTED = "converted-max-T8-crpi0.3"
WEIGHTS = {
    "train": 5, "evaluate": 3, "study run": 0.6, "study show": 3, "study list": 0.2, "report": 4, "export": 4,
    "energy": 2.5, "watch": 2, "spikes": 2.5, "convert": 3.5, "measure distributions": 2, "measure cost": 0.3,
    "methods": 0.6, "card": 1.5, "push": 1.5, "zoo": 1.5, "study results": 1, "tune": 0.5, "": 0.5,
}  # fmt: skip
NAMES_FIRST = ("study run", "study show", "methods", "measure cost")  # not paths
SPECIAL = {"--env-id": ENVIRONMENTS, "--import": MODULES}
SLOW = {
    ("study run", "--on"): ("local", "slurm", "nonsense"),  # ray starts a cluster
    ("tune", "--on"): ("local", "slurm", "nonsense"),
    ("tune", "--trials"): ("0", "-1", "1", "2", "1000000000", str(10**30), "nan", "five"),  # a thousand are made
}


@dataclass(frozen=True)
class Case:
    command: str  # of WEIGHTS
    words: tuple[str, ...]  # of the command line
    damages: tuple[tuple[str, str, int], ...] = ()  # file, what becomes of it, seed
    output: str = ""  # what standard output is: a file, or "full", or "closed"

    def to_json(self) -> str:
        return json.dumps({k: v for k, v in asdict(self).items() if v})

    @classmethod
    def from_json(cls, text: str) -> Self:
        data = json.loads(text)
        damages = tuple((path, kind, seed) for path, kind, seed in data.pop("damages", ()))
        return cls(data.pop("command", ""), tuple(data.pop("words")), damages, **data)


def draw(seed: int, number: int) -> Case:
    rng = random.Random(f"{seed}/{number}")
    command = rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
    output = rng.choice(["full", "closed"]) if rng.random() < 0.03 else ""
    if not command:
        return Case("", tuple(rng.choice((*NASTY_WORDS, *options())) for _ in range(rng.randrange(4))), (), output)
    run = "ann" if command == "convert" and rng.random() < 0.7 else rng.choice(list(RUNS))
    places, given = _usual(command, run, rng)
    damages: list[tuple[str, str, int]] = []
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3))):
        lot = rng.random()
        if lot < 0.45 and _reads_runs(command):
            damages.append(_damage(run, rng))
        elif lot < 0.57 and places:
            kind = "word" if command in NAMES_FIRST else "path"
            places[rng.randrange(len(places))] = _value(kind, rng)
        else:
            option = rng.choice(options()[command] or (Option("--nothing", "word"),))
            given[option.flag] = _values(command, option, rng)
    if command == "train" and rng.random() < 0.25:  # one that is there already
        given = dict(TINY | RUNS[run]) | {"--run-dir": [f"runs/{run}"]} | _some(given, rng)
        damages = [_damage(run, rng)]
    words = [*command.split(), *places]
    for flag, values in given.items():
        joined = len(values) == 1 and rng.random() < 0.2
        words += [f"{flag}={values[0]}"] if joined else [flag, *values]
    return Case(command, tuple(words), tuple(damages), output)


def _reads_runs(command: str) -> bool:
    return command not in ("train", "tune", "measure cost", "methods", "study list")


def _some(given: dict[str, list[str]], rng: random.Random) -> dict[str, list[str]]:
    return {flag: values for flag, values in given.items() if flag not in TINY and rng.random() < 0.1}


def _usual(command: str, run: str, rng: random.Random) -> tuple[list[str], dict[str, list[str]]]:
    """A command that works: what comes by its place, and the options."""
    if command == "train":
        return [], dict(TINY | RUNS[run]) | ({} if rng.random() < 0.5 else {"--quiet": []})
    if command == "tune":
        given = {"--trials": ["1"], "--search": ["gamma=0.9,0.99"], "--workers": ["1"], "--run-dir": ["tuned"]}
        return [], dict(TINY | {"--env-id": ["InvertedPendulum-v4"]}) | given
    if command == "convert":
        return [f"runs/{run}"], {"--time-steps": ["4"], "--iterations": ["5"], "--episodes": ["1"]}
    if command == "measure cost":
        return ["vanilla"], {"--env-id": ["InvertedPendulum-v4"], "--steps": ["20"]}
    if command == "methods":
        return [rng.choice(("care-bn", "ann"))] if rng.random() < 0.5 else [], {}
    if command == "study run":
        given = {"--scale": ["2e-5"], "--seeds": ["1"], "--envs": ["IDP"], "--workers": ["1"]}
        return ["main"], given | ({"--dry-run": []} if rng.random() < 0.6 else {})
    if command == "study show":
        return [rng.choice(("main", "energy", "all", "table-20", "figure-1"))], {}
    if command == "study list":
        return [], {}
    where = [f"runs/{run}" + (f"/{CONVERTED}" if run == "crpi" and rng.random() < 0.5 else "")]
    return {
        "evaluate": (where, {"--episodes": ["1"]}),
        "study results": (["runs"] if rng.random() < 0.5 else where, {"--out": ["results.md"]}),
        "report": (["runs"] if rng.random() < 0.5 else where, {"--format": [rng.choice(("html", "md", "md", "png"))]}),
        "export": (
            where,
            {"--to": [rng.choice(("nir", "onnx", "c", "numpy"))], "--out": ["exported"]}
            | {"--observations": ["5"], "--episodes": ["1"]},
        ),
        "energy": (where, {"--episodes": ["1"], "--quiet": []}),
        "watch": (where, {"--seconds": ["0.1"], "--out": ["film.gif"], "--quiet": []}),
        "spikes": (where, {"--out": ["raster.png"]}),
        "card": (where, {"--episodes": ["1"]}),
        "push": ([*where, "somebody/policy"], {"--episodes": ["1"], "--folder": ["pushed"]}),
        "zoo": (["add", *where] if rng.random() < 0.8 else [], {"--episodes": ["1"], "--name": ["new"]}),
        "measure distributions": (where, {"--out": ["figure.png"], "--updates": ["1"], "--snapshots": ["2"]}),
    }[command]  # fmt: skip


def _damage(run: str, rng: random.Random) -> tuple[str, str, int]:
    file = rng.choice(DAMAGED)
    kind = rng.choice((*CONTENTS, *KINDS, *KINDS, "set", "set", "set", "drop", "drop", "add"))
    if file.endswith("state.json") and kind in CONTENTS and rng.random() < 0.7:
        kind = f"signed:{kind}"
    inside = f"/{CONVERTED}" if run == "crpi" and (file == "evaluation.json" or rng.random() < 0.4) else ""
    return f"runs/{run}{inside}/{file}", kind, rng.randrange(10**6)


def _values(command: str, option: Option, rng: random.Random) -> list[str]:
    if option.kind == "switch":
        return [] if rng.random() < 0.8 else [rng.choice(NASTY_WORDS)]
    allowed = SLOW.get((command, option.flag))
    if allowed:
        return [rng.choice(allowed)]
    number = rng.choice((0, 1, 1, 1, 2, 3, 40)) if option.many else rng.choice((1,) * 28 + (0, 2))
    return [_one(option, rng) for _ in range(number)]


def _one(option: Option, rng: random.Random) -> str:
    if rng.random() < 0.03:
        return _value(rng.choice(("int", "word", "path")), rng)
    if option.flag in SPECIAL:
        return rng.choice(SPECIAL[option.flag])
    if option.choices and rng.random() < 0.8:
        return rng.choice(option.choices)
    return _value(option.kind, rng)


def _value(kind: str, rng: random.Random) -> str:
    usual = {"int": WHOLE, "float": FLOATS, "path": PATHS, "word": NASTY_WORDS}[kind]
    return rng.choice(NUMBERS if kind in ("int", "float") and rng.random() < 0.15 else usual)
