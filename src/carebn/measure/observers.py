"""The observers that ``--measure`` names: whoever starts a run hands it those of its configuration."""

from carebn.measure.wasserstein import WassersteinObserver
from carebn.training.config import TrainConfig
from carebn.training.observers import Observer

OBSERVERS: dict[str, type[Observer]] = {"wasserstein": WassersteinObserver}


def observers_for(config: TrainConfig) -> list[Observer]:
    """Those that the configuration asks for."""
    return [OBSERVERS[name]() for name in config.measure]
