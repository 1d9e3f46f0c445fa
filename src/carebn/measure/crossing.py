"""Whether spikes pay: a spiking network beside its ordinary counterpart, and the firing rate at which both cost alike.

What a decision costs grows by the same amount with every spike, so it is a straight line in a firing rate that all
spiking populations share: E(r) = E(0) + r · (E(1) − E(0)). With C the cost of the counterpart,

    crossing    r* = (C − E(0)) / (E(1) − E(0))    below it spikes pay; negative: they never do; above one: always
    own rate    r  = (E − E(0)) / (E(1) − E(0))    the rate at which equal populations would cost what these do

so that spikes pay where the network's own rate is below the crossing.
"""

from typing import NamedTuple

from carebn.measure.bill import Bill, ann_size
from carebn.measure.energy import Count, counterpart, shape, spiking_size
from carebn.measure.prices import (
    MEMORY,
    PRICES,
    Lists,
    Prices,
    Words,
    equal_bits,
    float_prices,
    quantised_prices,
    spiking_prices,
)

ANN, QUANTISED = "ANN", "quantised ANN"


class Comparison(NamedTuple):
    """By one price list, with one counterpart; everything counted."""

    prices: str  # the name of the list
    other: str  # ANN, or that ANN quantised
    spiking: float  # nJ per decision
    ordinary: float
    own_rate: float | None  # None: no spike costs anything
    crossing: float | None

    @property
    def pays(self) -> bool:
        return self.spiking < self.ordinary


class Comparisons(NamedTuple):
    spiking: Lists
    ann: Lists
    quantised: Lists  # only lists that know how wide numbers are
    bits: tuple[int, int]  # of a weight, and of an activation of the quantised ANN
    rows: list[Comparison]


def compare(count: Count, words: Words | None = None, kibibytes: float | None = None) -> Comparisons:
    """``kibibytes``: the size of every memory; by default each is as small as can be."""
    words, network = words or Words(), count.network
    ordinary, ann = ann_size(*shape(network)), counterpart(network)
    activation = equal_bits(count.time_steps)
    spiking: Lists = {**PRICES, MEMORY: spiking_prices(words, spiking_size(network), kibibytes)}
    of_ann: Lists = {**PRICES, MEMORY: float_prices(ordinary, kibibytes)}
    quantised: Lists = {MEMORY: quantised_prices(words, activation, ordinary, kibibytes)}
    silent, busy, own = count.at_rate(0.0).bill(), count.at_rate(1.0).bill(), count.bill()
    rows = []
    for other, lists in ((ANN, of_ann), (QUANTISED, quantised)):
        for name, prices in lists.items():
            rows.append(_row(name, other, spiking[name], (silent, busy, own), ann.nanojoule(prices)))
    return Comparisons(spiking, of_ann, quantised, (words.weight, activation), rows)


def too_small(count: Count, words: Words, kibibytes: float) -> str | None:
    """What a memory of this size would not hold, as a sentence; None if it holds all that is compared."""
    network = count.network
    own, ordinary = spiking_size(network), ann_size(*shape(network))
    need = {
        f"the policy's {words.weight}-bit weights": own.weights * words.weight,
        f"its {words.state}-bit membranes": (own.states + own.activations) * words.state,
        f"the quantised ANN's {words.weight}-bit weights": ordinary.weights * words.weight,
        "the ANN's 32-bit weights": ordinary.weights * 32,
    }
    over = [f"{what} ({bits / 8192:.1f} KiB)" for what, bits in need.items() if bits > kibibytes * 8192]
    if not over:
        return None
    return f"a memory of {kibibytes:g} KiB (--sram) does not hold {', '.join(over)}; its price is counted all the same"


def _row(name: str, other: str, prices: Prices, bills: tuple[Bill, Bill, Bill], ordinary: float) -> Comparison:
    none, all_, own = (bill.nanojoule(prices) for bill in bills)
    if not all_ > none:
        return Comparison(name, other, own, ordinary, None, None)
    return Comparison(name, other, own, ordinary, (own - none) / (all_ - none), (ordinary - none) / (all_ - none))
