"""``carebn measure distributions`` and ``carebn measure cost``."""

import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from carebn.commands.consent import Consent
from carebn.training.registered_names import ALGO


@dataclass(frozen=True)
class Distributions(Consent):
    """Draw what reaches a normaliser and what it believes, from the last checkpoint of runs, which stay as they are.

    The numbers lie beside the figure as JSON: there carebn study show and carebn report look for the paper's figure 1.
    """

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Run directories, a row of the figure each."""
    out: Path = Path("runs/input-distributions.png")
    """The figure, .png or .pdf."""
    layer: int = 1
    """Which normaliser, counted from the input."""
    snapshots: int = 4
    """How many distributions are drawn over each other."""
    updates: int = 25
    """Updates between two of them."""


@dataclass(frozen=True)
class TrainingCost:
    """Time and memory of training with each normaliser, measured side by side in one go.

    carebn study show and carebn report make the paper's table 20 of what it writes.
    """

    methods: tyro.conf.Positional[tuple[str, ...]] = ("care-bn", "bn", "tdbn", "bntt", "tebn", "tab")
    """Ratios are to the first."""
    env_id: str = "Ant-v4"
    """The environment; the paper's table is about Ant."""
    algo: str = field(default="td3", metadata=ALGO)
    """The algorithm."""
    steps: int = 400
    """Steps of each method that are timed; the result is scaled to 5000."""
    out: Path = Path("runs/training-cost.json")
    """The numbers as JSON."""


Config = (
    Annotated[Distributions, tyro.conf.subcommand("distributions")]
    | Annotated[TrainingCost, tyro.conf.subcommand("cost")]
)


def run(config: Distributions | TrainingCost) -> int:
    return _draw(config) if isinstance(config, Distributions) else _cost(config)


def _draw(config: Distributions) -> int:
    from carebn.measure.distributions import draw_distributions

    if not config.runs:
        raise ValueError("name one or more run directories")
    try:
        numbers = draw_distributions(
            config.runs, config.out, config.layer, config.snapshots, config.updates, config.word
        )
    except OSError as error:
        raise OSError(f"cannot write {config.out} ({error.strerror}); choose another --out") from error
    print(f"figure: {config.out}\nnumbers: {numbers}")
    return 0


def _cost(config: TrainingCost) -> int:
    from carebn.measure.cost import measure_costs
    from carebn.training.files import as_json, write_atomically

    def tell(text: str) -> None:
        print(text, file=sys.stderr)

    costs = measure_costs(config.env_id, config.algo, config.methods, config.steps, tell)
    first = costs[0]
    width = max(len(cost.method) for cost in costs)
    print(f"{'':{width}}  s per 5000 steps   ratio   peak MiB   ratio")
    for cost in costs:
        memory, ratio = "–", "–"  # where the system does not tell
        if cost.mebibytes is not None and first.mebibytes is not None:
            memory, ratio = f"{cost.mebibytes:.1f}", f"{cost.mebibytes / first.mebibytes:.3f}"
        time = f"{cost.seconds:16.1f}  {cost.seconds / first.seconds:6.3f}"
        print(f"{cost.method:{width}}  {time}  {memory:>9}  {ratio:>6}")
    data = {"env_id": config.env_id, "algo": config.algo, "steps": config.steps, "costs": [*map(asdict, costs)]}
    try:
        config.out.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(config.out, as_json(data))
    except OSError as error:
        raise OSError(f"cannot write {config.out} ({error.strerror}); choose another --out") from error
    print(f"numbers: {config.out}")
    return 0
