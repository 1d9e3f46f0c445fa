"""What measuring commands left behind for the paper's tables, read back and checked.

``carebn energy`` leaves ``energy.json`` in the directory of the run that it counted. ``carebn measure`` leaves what it
measured over several methods or runs in the directory that holds the runs, under the name of the study it is for.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from carebn.reading import read_file, read_object
from carebn.study.evidence.runs import RunRecord, holding_runs
from carebn.training.files import sha256

ENERGY_FILE = "energy.json"
COST_FILE = "training-cost.json"
DISTRIBUTIONS_FILE = "input-distributions.json"
Found = TypeVar("Found")


@dataclass(frozen=True)
class Costs:
    """Of one ``carebn measure cost``: methods side by side, on one machine."""

    env_id: str
    algo: str
    steps: int  # that were timed, of each method
    by_method: dict[tuple[str, str], tuple[float, float | None]]  # (method, neuron) → seconds per 5000 steps, MiB


@dataclass(frozen=True)
class Moment:
    """A feature after some updates: its true distribution as a histogram, and the Gaussian it is believed to have."""

    updates: int
    edges: list[float]
    density: list[float]  # one less than edges
    mean: float
    var: float
    distance: float


@dataclass(frozen=True)
class Distribution:
    """Of one run, by ``carebn measure distributions``."""

    run: str
    config: dict[str, Any]
    layer: int
    most: list[Moment]  # of the feature that moved most, snapshot by snapshot
    least: list[Moment]


class Firing(NamedTuple):
    """Of one run's policy, counted by ``carebn energy``."""

    spikes: float  # per decision, encoder and output population included
    rates: dict[str, float]  # share of neurons and steps with a spike, by population


@dataclass(frozen=True)
class Measured:
    costs: Costs | None = None
    distributions: list[Distribution] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)  # a sentence each


def read_measured(roots: Iterable[Path | str]) -> Measured:
    """What lies in ``roots`` or below, in directories that hold runs; of costs, which are one machine's, the first."""
    problems: list[str] = []
    places = holding_runs(roots)
    costs = _read([place / COST_FILE for place in places], _costs, problems)
    distributions = _read([place / DISTRIBUTIONS_FILE for place in places], _distributions, problems)
    if len(costs) > 1:
        problems.append(f"costs of several machines are not mixed: those in {next(iter(costs)).parent} are shown")
    several = [one for each in distributions.values() for one in each]
    return Measured(next(iter(costs.values()), None), several, problems)


def energy_of(run: RunRecord) -> float | None:
    """nJ per decision of the run's policy, in its synapses at the paper's prices; None if nobody counted them."""
    return _counted(run, lambda network: float(network["synapses_total"]["nanojoule"]["paper"]))


def whole_energy_of(run: RunRecord) -> float | None:
    """The same with all that the paper leaves out: encoder, membranes and decoder."""
    return _counted(run, lambda network: float(network["total"]["nanojoule"]["paper"]))


def firing_of(run: RunRecord) -> Firing | None:
    """How often the neurons of the run's policy fire; None if nobody counted."""

    def added(network: Any) -> Firing:
        items = [item for item in (*network["synapses"], *network["overhead"]) if "sender_spikes" in item]
        # what a population sends to itself, it sends to the next one too
        senders = {str(i["name"]).split(" → ")[0]: i for i in items if "itself" not in i["name"]}
        spikes = sum(float(item["sender_spikes"]) for item in senders.values())
        return Firing(spikes, {name: float(item["sender_rate"]) for name, item in senders.items()})

    return _counted(run, added)


def _counted(run: RunRecord, of: Callable[[Any], Found]) -> Found | None:
    """Of a run that is kept for its numbers alone, without its policy, the count is taken at its word."""
    path, policy = run.directory / ENERGY_FILE, run.directory / "policy.safetensors"
    if not path.exists():
        return None
    data = _json(path)
    try:
        if data["policy"] != sha256(read_file(policy)) if policy.exists() else not isinstance(data["policy"], str):
            raise ValueError(
                f"{path} is about another policy than the run's; make it anew: carebn energy {run.directory}"
            )
        return of(data["network"])
    except (KeyError, TypeError) as error:
        raise ValueError(
            f"{path} cannot be read, or an older version wrote it; make it anew: carebn energy {run.directory}"
        ) from error


def _read(paths: Iterable[Path], read: Callable[[Any], Found], problems: list[str]) -> dict[Path, Found]:
    found = {}
    for path in paths:
        if path.exists():
            try:
                found[path] = read(_json(path))
            except ValueError as error:
                problems.append(f"{path} cannot be read as a measurement ({error}); it is left out")
            except (KeyError, TypeError, AttributeError):
                problems.append(f"{path} cannot be read as a measurement (it holds something else); it is left out")
    return found


def _json(path: Path) -> Any:
    try:
        return read_object(path)
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}") from error


def _costs(data: Any) -> Costs:
    costs = {
        (str(cost["method"]), str(cost["neuron"])): (
            float(cost["seconds"]),
            None if cost["mebibytes"] is None else float(cost["mebibytes"]),
        )
        for cost in data["costs"]
    }
    return Costs(str(data["env_id"]), str(data["algo"]), int(data["steps"]), costs)


def _distributions(data: Any) -> list[Distribution]:
    return [
        Distribution(
            run=str(entry["run"]),
            config=dict(entry["config"]),
            layer=int(entry["layer"]),
            most=[_moment(moment) for moment in entry["most"]],
            least=[_moment(moment) for moment in entry["least"]],
        )
        for entry in data["runs"]
    ]


def _moment(data: Any) -> Moment:
    moment = Moment(
        updates=int(data["updates"]),
        edges=[float(x) for x in data["edges"]],
        density=[float(x) for x in data["density"]],
        mean=float(data["mean"]),
        var=float(data["var"]),
        distance=float(data["distance"]),
    )
    if len(moment.edges) != len(moment.density) + 1:
        raise ValueError("a histogram needs one edge more than bars")
    return moment
