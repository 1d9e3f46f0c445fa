"""Algorithms, normalisers and neurons of the user's own: registered by modules that only the user's word imports.

Nothing is imported where all names of a configuration are known: modules that bring only an environment are left to
whoever makes it (``worlds``).
"""

from pathlib import Path

from carebn.algorithm import ALGORITHMS
from carebn.checksums import Vouched
from carebn.errors import unknown_name
from carebn.neuron import NEURONS
from carebn.training.config import TrainConfig
from carebn.training.environment import import_own
from carebn.training.methods import all_methods
from carebn.training.worlds import NeedsWord, Trust


def register(config: TrainConfig, trust: Trust, run_dir: Path | None = None) -> None:
    """Import what a configuration needs before it can be checked; ``run_dir``: where it was read from."""
    unknown = _unknown(config)
    if not unknown:
        return
    given = () if isinstance(trust, bool) else tuple(trust)
    modules = tuple(dict.fromkeys((*given, *config.import_modules)))
    if run_dir is not None:
        if not modules:
            own = "for one of your own, add --import and the module that registers it"
            raise NeedsWord(f"{run_dir / 'config.json'} cannot be read: {unknown}; {own}")
        if trust is not True and set(config.import_modules) - set(given):
            named = config.import_modules
            modules_named = f"{'module' if len(named) == 1 else 'modules'} {', '.join(named)}"
            raise NeedsWord(
                f"{run_dir} needs code of its own ({unknown.partition(';')[0].partition(':')[0]}): its config.json "
                f"names {modules_named}, and nothing is imported on the word of a file; if you trust it, add "
                f"--import {' '.join(named)}, or --trust (in Python: trust=True)"
            )
        Vouched(run_dir).check("config.json")
    for module in modules:
        import_own(module, "--import")


def _unknown(config: TrainConfig) -> str:
    """The first name that nobody has registered, in a sentence; empty: there is none."""
    for what, name, known in (
        ("algorithm", config.algo, ALGORITHMS),
        ("method", config.method, all_methods()),
        ("neuron", config.neuron, {"default", "none", *NEURONS}),
    ):
        if name not in known:
            return unknown_name(what, name, known)
    return ""
