"""The bill of a decision, line by line, and that of an ordinary network, of which nothing has to be counted."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from carebn.measure.prices import PRICES, Lists, Operations, Prices, Size, Traffic, macs, total
from carebn.paper.tables import ENERGY


@dataclass(frozen=True)
class Item:
    """One line of the bill: the synapses between two populations, or something else that computes."""

    name: str
    operations: Operations
    inputs: int = 0
    outputs: int = 0
    sender_spiking: bool = False
    sender_rate: float | None = None  # share of the senders and steps with a spike; analogue: other than zero
    sender_spikes: float | None = None  # per decision
    traffic: Traffic = field(default_factory=Traffic)

    def nanojoule(self, prices: Prices) -> float:
        return self.operations.nanojoule(prices) + self.traffic.nanojoule(prices)


@dataclass(frozen=True)
class Bill:
    synapses: list[Item]
    overhead: list[Item]

    @property
    def synaptic(self) -> Operations:
        return total([item.operations for item in self.synapses])

    @property
    def all(self) -> Operations:
        return total([item.operations for item in (*self.synapses, *self.overhead)])

    def nanojoule(self, prices: Prices, *, synapses_only: bool = False) -> float:
        """With what is moved."""
        items = self.synapses if synapses_only else [*self.synapses, *self.overhead]
        return sum(item.nanojoule(prices) for item in items)


# --- the ordinary network ---------------------------------------------------------------------------------------------


def ann_bill(obs_dim: int, hidden: Sequence[int], outputs: int, *, squashed: bool) -> Bill:
    """An ordinary ReLU network on the raw observation; ``squashed``: its output goes through tanh into bounds."""
    sizes = (obs_dim, *hidden, outputs)
    names = ["input", *(f"layer {i + 1}" for i in range(len(hidden))), "output"]
    synapses = [  # what a layer reads, another has written, but for the observation
        Item(f"{a} → {b}", macs(m * n), m, n, traffic=Traffic(weights=m * n, activations=m if a == "input" else 2 * m))
        for (a, b), (m, n) in zip(pairwise(names), pairwise(sizes), strict=True)
    ]
    biases = Operations(additions=float(sum(sizes[1:])))
    end = biases.plus(squash(outputs) if squashed else Operations())
    return Bill(
        synapses, [Item("biases and output", end, traffic=Traffic(weights=sum(sizes[1:]), activations=outputs))]
    )


def ann_size(obs_dim: int, hidden: Sequence[int], outputs: int) -> Size:
    sizes = (obs_dim, *hidden, outputs)
    return Size(sum((m + 1) * n for m, n in pairwise(sizes)), activations=sum(sizes))


def squash(outputs: int) -> Operations:
    """tanh, then middle + reach · tanh."""
    return Operations(2 * outputs, outputs)


# --- the paper's table ------------------------------------------------------------------------------------------------

PAPER_NJ = {  # energy per inference with CLIF neurons and TD3, in nJ: ordinary network, spiking network with CaRe-BN
    env_id: (ann.mean, snn.mean)
    for env_id, ann, snn in zip(ENERGY.envs, *(row.published for row in ENERGY.rows), strict=True)
}


def as_json(bill: Bill, lists: Lists = PRICES) -> dict[str, Any]:
    def item(each: Item) -> dict[str, Any]:
        row: dict[str, Any] = {"name": each.name}
        if each.inputs:
            row |= {"inputs": each.inputs, "outputs": each.outputs}
        if each.sender_rate is not None:
            row |= {"sender": "spikes" if each.sender_spiking else "analogue", "sender_rate": each.sender_rate}
        if each.sender_spikes is not None:
            row["sender_spikes"] = each.sender_spikes
        return row | priced([each])

    def priced(items: Sequence[Item]) -> dict[str, Any]:
        moved = Traffic()
        for each in items:
            moved = moved.plus(each.traffic)
        return {
            **total([each.operations for each in items])._asdict(),
            "traffic": moved._asdict(),
            "nanojoule": {name: sum(each.nanojoule(prices) for each in items) for name, prices in lists.items()},
        }

    return {
        "synapses": [item(each) for each in bill.synapses],
        "overhead": [item(each) for each in bill.overhead],
        "synapses_total": priced(bill.synapses),
        "total": priced([*bill.synapses, *bill.overhead]),
    }
