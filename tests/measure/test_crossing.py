"""The bill with memory, and where spikes begin to pay: against a slow account, operation by operation, word by word."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from measured_networks import SPIKING, make

from carebn.measure.bill import Bill, as_json
from carebn.measure.crossing import ANN, QUANTISED, Comparison, compare
from carebn.measure.energy import Count, counterpart
from carebn.measure.energy_report import figure, table, verdict
from carebn.measure.prices import MEMORY, PRICES, Words, equal_bits, memory_for, sram_bit
from carebn.measure.spikes import Decision, Population, record
from carebn.network import SpikingActor

OBS, FIELDS, HIDDEN, OUT, STEPS = 2, 40, (40, 60), 20, 3  # places of every population are multiples of 20
STATES = {"lif": 1, "clif": 2}
# by neuron, of one step: multiplications and additions of λV + x, and for CLIF of λ_c·C + x too
STEP_COST = {"lif": (1, 1), "clif": (2, 2)}


class Account:
    """pJ, one operation after the other; prices are written out here again."""

    def __init__(self, prices: str, kind: str, words: tuple[int, int] = (8, 16), bit: float = 10 / 64) -> None:
        weight, state = words
        activation = 2  # bits for the numbers 0 to 3
        self.spent = 0.0
        if prices == "paper":
            self.mul, self.add, self.syn = 12.5, 12.5, 0.077
            self.weight = self.state = self.number = self.bit = 0.0
        elif prices == "45nm":
            self.mul, self.add, self.syn = 3.7, 0.9, 0.9
            self.weight = self.state = self.number = self.bit = 0.0
        else:
            self.bit = bit
            self.add = self.syn = 0.03 * state / 8
            self.mul = 0.2 * {"snn": state * state, "qnn": weight * activation, "ann": 0}[kind] / 64
            self.weight, self.state = weight * bit, state * bit
            self.number = {"snn": state, "qnn": activation, "ann": 32}[kind] * bit
            if kind == "ann":
                # its 2,641 weights need more than 8 KiB: 16, halfway between 10 and 20 pJ for 64 bits
                self.mul, self.add, self.weight = 3.7, 0.9, 32 * math.sqrt(10 * 20) / 64

    def pay(self, price: str, times: int = 1) -> None:
        for _ in range(times):
            self.spent += getattr(self, price)


def slow_spiking(account: Account, spikes: list[np.ndarray], neuron: str) -> float:
    """One decision; spikes [T, N] of encoder, layers and output population."""
    sizes = [s.shape[1] for s in spikes]
    for _ in range(OBS):
        account.pay("number")  # read
        account.pay("mul")  # tanh
    for _ in range(FIELDS):
        account.pay("weight", 2)  # mean and width
        account.pay("add")
        account.pay("mul", 4)
        for t in range(STEPS):
            account.pay("state")  # the stimulation: written in the first step, read in the others
            if t > 0:
                account.pay("state")  # the potential, read
            if t < STEPS - 1:
                account.pay("state")  # and written
            account.pay("add", 2)
    for size in sizes[1:]:
        for _ in range(size):
            for t in range(STEPS):
                for _ in range(STATES[neuron]):
                    if t > 0:
                        account.pay("state")
                    if t < STEPS - 1:
                        account.pay("state")
                mul, add = STEP_COST[neuron]
                account.pay("mul", mul)
                account.pay("add", add)
                account.pay("weight")  # the bias
                account.pay("add")
    for place, fired in enumerate(spikes):
        fan_out = sizes[place + 1] if place + 1 < len(sizes) else 1
        for _ in np.argwhere(fired):
            for _ in range(math.ceil(math.log2(sizes[place]))):
                account.pay("bit", 2)  # of the address: written, read
            for _ in range(fan_out):
                account.pay("weight")
                account.pay("syn")
    account.pay("state", 2 * (STEPS - 1))  # the read-out's potential
    account.pay("weight")
    account.pay("add")
    account.pay("mul", 2)
    account.pay("add")
    account.pay("number")  # the action, written
    return account.spent / 1000


def slow_ordinary(account: Account) -> float:
    sizes = (OBS, *HIDDEN, 1)
    for layer, (m, n) in enumerate(pairwise(sizes)):
        for _ in range(m):
            account.pay("number", 1 if layer == 0 else 2)
        for _ in range(n):
            for _ in range(m):
                account.pay("weight")
                account.pay("mul")
                account.pay("add")
            account.pay("weight")
            account.pay("add")
    account.pay("mul", 2)
    account.pay("add")
    account.pay("number")
    return account.spent / 1000


def network(neuron: str) -> SpikingActor:
    return SpikingActor(OBS, 1, hidden=HIDDEN, population=20, time_steps=STEPS, neuron=neuron)


def fired(rates: list[float]) -> list[np.ndarray]:
    """Exactly so many spikes, at random places."""
    rng, found = np.random.default_rng(0), []
    for size, rate in zip((FIELDS, *HIDDEN, OUT), rates, strict=True):
        flat = np.zeros(STEPS * size, np.float32)
        flat[rng.permutation(flat.size)[: round(rate * flat.size)]] = 1
        found.append(flat.reshape(STEPS, size))
    return found


def counted(neuron: str, spikes: list[np.ndarray]) -> Count:
    count, action = Count(network(neuron)), np.zeros((1, 1), np.float32)
    names = ("encoder", "layer 1", "layer 2", "output population")
    populations = [Population(name, s[:, None], True) for name, s in zip(names, spikes, strict=True)]
    count.add(Decision(action, action, populations))
    return count


@pytest.mark.parametrize("neuron", ["lif", "clif"])
@pytest.mark.parametrize("prices", ["paper", "45nm", MEMORY])
def test_the_bill_is_the_slow_accounts(neuron: str, prices: str) -> None:
    spikes = fired([0.2, 0.05, 0.45, 0.5])
    count = counted(neuron, spikes)
    compared = compare(count)
    assert count.bill().nanojoule(compared.spiking[prices]) == pytest.approx(
        slow_spiking(Account(prices, "snn"), spikes, neuron)
    )
    ann = counterpart(count.network)
    assert ann.nanojoule(compared.ann[prices]) == pytest.approx(slow_ordinary(Account(prices, "ann")))
    if prices == MEMORY:
        assert ann.nanojoule(compared.quantised[prices]) == pytest.approx(slow_ordinary(Account(prices, "qnn")))


@pytest.mark.parametrize("neuron", ["lif", "clif"])
@pytest.mark.parametrize(("prices", "other"), [("paper", ANN), ("45nm", ANN), (MEMORY, ANN), (MEMORY, QUANTISED)])
def test_the_crossing_is_where_the_slow_account_has_it(neuron: str, prices: str, other: str) -> None:
    """Every twentieth of all possible spikes is tried; between the two that surround the counterpart lies the point."""
    reference = slow_ordinary(Account(prices, "qnn" if other == QUANTISED else "ann"))
    rates = [k / 20 for k in range(21)]
    energies = [slow_spiking(Account(prices, "snn"), fired([rate] * 4), neuron) for rate in rates]
    row = next(
        row for row in compare(counted(neuron, fired([0.2, 0.05, 0.45, 0.5]))).rows
        if (row.prices, row.other) == (prices, other)
    )  # fmt: skip
    assert row.ordinary == pytest.approx(reference)
    assert row.crossing is not None
    below = [rate for rate, energy in zip(rates, energies, strict=True) if energy < reference]
    if not below:
        assert row.crossing <= 0
    elif len(below) == len(rates):
        assert row.crossing > 1
    else:
        at = rates.index(below[-1])
        assert rates[at] <= row.crossing <= rates[at + 1]
        share = (reference - energies[at]) / (energies[at + 1] - energies[at])
        assert row.crossing == pytest.approx(rates[at] + share / 20)
    assert row.pays == (row.spiking < reference)
    assert row.pays == (row.own_rate < row.crossing)


def test_a_common_rate_is_its_own_rate() -> None:
    for row in compare(counted("clif", fired([0.35] * 4))).rows:
        assert row.own_rate == pytest.approx(0.35)


@pytest.mark.parametrize("name", SPIKING)
def test_costs_are_a_straight_line_for_every_network(name: str) -> None:
    torch.manual_seed(0)
    net, obs = make(name), torch.randn(11, 3)
    count = Count(net)
    output, populations = record(net, obs)
    count.add(Decision(output.numpy(), output.numpy(), populations))
    compared = compare(count)
    for name_of_list, prices in compared.spiking.items():
        none, half, full = (count.at_rate(rate).bill().nanojoule(prices) for rate in (0.0, 0.5, 1.0))
        assert half == pytest.approx((none + full) / 2)
        assert none < full
        row = next(r for r in compared.rows if r.prices == name_of_list)
        assert row.spiking == pytest.approx(count.bill().nanojoule(prices))
    ann = counterpart(net)
    told = verdict(count.bill(), ann, compared)
    assert [line.split(" (")[0] for line in told] == ["paper's prices", "45 nm", "with memory"]
    for row in compared.rows:
        [line] = [line for line, name in zip(told, compared.spiking, strict=True) if name == row.prices]
        assert compared.spiking[row.prices].source in line
        assert f"a uniform firing rate of {100 * row.own_rate:.1f} %" in line
        assert f"the {row.other}, which takes" in line
    assert compared.quantised[MEMORY].source in told[2]
    assert compared.ann[MEMORY].source in told[2]
    picture = figure("title", count.bill(), ann, "Hopper-v4", compared)
    assert picture.axes[0].get_title().startswith("Do spikes pay? In ")
    assert len(picture.axes) == 5
    captions = [axes.get_xlabel().splitlines() for axes in picture.axes[1:4]]
    assert all(caption[0] == "nJ per decision, logarithmic" for caption in captions)
    assert [len(caption) for caption in captions] == [2, 2, 4]
    assert captions[2][2] == f"ANN counterpart: {compared.ann[MEMORY].source}"
    data = as_json(count.bill(), compared.spiking)
    assert data["total"]["nanojoule"][MEMORY] == pytest.approx(count.bill().nanojoule(compared.spiking[MEMORY]))
    assert data["total"]["traffic"]["weights"] > 0
    rows = table("title", count.bill(), ann, "Hopper-v4", compared).columns[0]._cells
    assert any(cell.startswith("ANN quantised to 8 and ") for cell in rows)


def test_the_old_lists_have_no_traffic() -> None:
    bill = counted("clif", fired([0.2, 0.05, 0.45, 0.5])).bill()
    for prices in PRICES.values():
        assert bill.nanojoule(prices) == pytest.approx(bill.all.nanojoule(prices))
        assert bill.nanojoule(prices, synapses_only=True) == pytest.approx(bill.synaptic.nanojoule(prices))


def test_memories() -> None:
    assert [64 * sram_bit(size) for size in (8, 32, 1024)] == pytest.approx([10, 20, 100])
    assert 64 * sram_bit(16) == pytest.approx(math.sqrt(10 * 20))  # halfway, in powers of two
    assert sram_bit(4) < sram_bit(8) < sram_bit(9) < sram_bit(4096)
    assert [memory_for(bits) for bits in (0, 8 * 8192, 8 * 8192 + 1, 100 * 8192)] == [8, 8, 16, 128]
    assert [equal_bits(steps) for steps in (1, 2, 3, 4, 5, 7, 8, 100)] == [1, 2, 2, 3, 3, 3, 4, 7]


def test_wider_words_and_larger_memories_are_dearer() -> None:
    count = counted("clif", fired([0.2] * 4))
    plain = compare(count).rows[-1]
    for words, sram in ((Words(16, 16), None), (Words(8, 32), None), (Words(), 512.0)):
        assert compare(count, words, sram).rows[-1].spiking > plain.spiking
    with pytest.raises(ValueError, match="--bits must lie between 1 and 64, got 0"):
        Words(0)
    with pytest.raises(ValueError, match="--state-bits must lie between 1 and 64"):
        Words(8, 65)


@pytest.mark.parametrize(
    ("crossing", "said"),
    [(-0.1, "would not pay even if there were none"), (1.4, "even if every neuron fired always"),
     (0.062, "spikes pay below 6.2 %"), (None, "no spike costs anything")],
)  # fmt: skip
def test_what_is_said_of_a_crossing(crossing: float | None, said: str) -> None:
    count = counted("clif", fired([0.2] * 4))
    compared, bill, ann = compare(count), count.bill(), counterpart(count.network)
    row = Comparison("45nm", ANN, 2.0, 1.0, None if crossing is None else 0.2, crossing)
    (line,) = verdict(bill, ann, compared._replace(rows=[row]))
    assert said in line
    assert "2.0 times dearer than the ANN, which takes 1.00 nJ" in line
    assert ("its spikes cost as much as a uniform firing rate of 20.0 %" in line) == (crossing is not None)
    assert line.endswith(" than the ANN in synapses alone")
    (silent,) = verdict(Bill([], bill.overhead), ann, compared._replace(rows=[row]))
    assert silent.endswith("; nothing spent in synapses alone")
