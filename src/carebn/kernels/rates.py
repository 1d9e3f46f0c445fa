"""How often a network's neurons fire, heard while it runs, with a gradient: what a penalty on spikes is made of.

    with firing_rates(actor) as heard:
        action = actor(observation)
    heard.rates    # [populations], encoder first; each the mean of a population's spikes over steps, batch and neurons

A network hands over its own rates, whichever path it takes. Outside of the context nothing is counted.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor, nn

from carebn.introspection import listeners, mode_of_torch


class FiringRates:
    """Of one network, in one thread; calls of other networks meanwhile are not heard."""

    def __init__(self, network: nn.Module) -> None:
        self.network = network
        self.path, self.reason = "", ""  # what counted, and why not something faster
        self._heard: list[Tensor] = []
        self._asked: nn.Module | None = None
        self._answer: Tensor | None = None

    def ask(self, receiver: nn.Module) -> None:
        """Let the module that is called next tell the rate of its input, if it can: it has that gradient at hand. Not
        where a hook may change what goes in, or the gradient that comes back: neither is the sender's."""
        self._asked, self._answer = None if listeners(receiver) or mode_of_torch() else receiver, None

    def answered(self, spikes: Tensor | Callable[[], Tensor]) -> Tensor:
        """What it told, or else the mean of its input [T, B, N]; as a function, that is made only then."""
        rate, self._asked, self._answer = self._answer, None, None
        if rate is not None:
            return rate
        return (spikes if isinstance(spikes, Tensor) else spikes()).mean()

    def note(self, rates: Tensor, path: str, reason: str = "") -> None:
        self._heard.append(rates)
        self.path, self.reason = path, reason

    @property
    def rates(self) -> Tensor:
        """If the network was called more than once, the mean over its calls."""
        if not self._heard:
            raise ValueError(
                f"this {type(self.network).__name__} does not tell how often its neurons fire: its own potential() or "
                "forward() leaves that out; call that of SpikingActor or SpikingQNetwork in it"
            )
        return self._heard[0] if len(self._heard) == 1 else torch.stack(self._heard).mean(0)


_listening: ContextVar[FiringRates | None] = ContextVar("carebn_firing_rates", default=None)


def who_listens() -> FiringRates | None:
    return None if torch.compiler.is_compiling() else _listening.get()


def listener_of(network: nn.Module) -> FiringRates | None:
    """Whoever wants to hear of this network's spikes."""
    listener = who_listens()
    return listener if listener is not None and listener.network is network else None


def is_asked(module: nn.Module) -> bool:
    """Whether somebody waits for ``answer`` from this module."""
    listener = who_listens()
    return listener is not None and listener._asked is module


def answer(rate: Tensor) -> None:
    listener = who_listens()
    assert listener is not None
    listener._answer = rate


@contextmanager
def firing_rates(network: nn.Module) -> Iterator[FiringRates]:
    """Inside, in this thread, every call of the network leaves its firing rates.

    ``with firing_rates(actor) as heard: actor(obs)``; then ``heard.rates`` [populations] has a gradient, encoder first.
    """
    heard = FiringRates(network)
    token = _listening.set(heard)
    try:
        yield heard
    finally:
        _listening.reset(token)
