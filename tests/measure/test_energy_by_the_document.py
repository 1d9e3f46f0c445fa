"""The bill, worked out a second time from docs/energy.md alone: by hand for a small network, and for one of the zoo."""

import json
from itertools import pairwise
from math import ceil, log2
from pathlib import Path

import numpy as np
import pytest
import torch

from carebn.commands import energy
from carebn.measure.crossing import QUANTISED, compare, too_small
from carebn.measure.energy import Count, counterpart
from carebn.measure.prices import MEMORY, Words
from carebn.measure.spikes import Decision, Population
from carebn.network import SpikingActor

ZOO = Path(__file__).parents[2] / "zoo"


def spikes_of(neurons: int, steps: int, number: int) -> np.ndarray:
    values = np.zeros(neurons * steps)
    values[:number] = 1
    return values.reshape(steps, 1, neurons)


@pytest.fixture
def small() -> Count:
    """One observation → 2 encoder neurons → 4 LIF → 2 LIF → one action, T = 2, with 3, 4 and 2 spikes."""
    torch.manual_seed(0)
    actor = SpikingActor(1, 1, hidden=(4,), population=2, time_steps=2, neuron="lif", norm="bn")
    count = Count(actor)
    names = ("encoder", "layer 1", "output population")
    fired = [spikes_of(n, 2, k) for n, k in ((2, 3), (4, 4), (2, 2))]
    count.add(Decision(np.zeros((1, 1)), np.zeros((1, 1)), [Population(*x, True) for x in zip(names, fired)]))  # noqa: B905
    return count


# Spiking: 23 multiplications (encoder 1 + 2·4, membranes 6·2, decoder 2), 36 additions (encoder 2 + 2·2·2, membranes
# 6·2·2, decoder 2), 3·4 + 4·2 + 2 = 22 synaptic operations; 36 of these at a rate of one. ANN, 1 → 4 → 1: 8 products, 5
# biases, tanh and reach and middle, so 10 multiplications and 14 additions. All memories are of 8 KiB: 10/64 pJ a bit,
# 1.25 pJ for a weight, 2.5 pJ for a state; T = 2 makes activations of 2 bits.
BY_HAND = [
    # list, other, E in pJ, C in pJ, E(0), E(1)
    ("paper", "ANN", 59 * 12.5 + 22 * 0.077, 24 * 12.5, 737.5, 737.5 + 36 * 0.077),
    ("45nm", "ANN", 137.3, 49.6, 117.5, 149.9),
    # 21.88 of arithmetic; 22 weights for spikes, 26 bits of addresses, 6 membranes moved twice, 12 biases,
    # 4 weights and 8 states of the encoder, a potential of the decoder (2) and its bias, observation and action
    (MEMORY, "ANN", 134.6925, 164.6, 101.81, 156.47),
    (MEMORY, QUANTISED, 134.6925, 20.715, 101.81, 156.47),
]


@pytest.mark.parametrize(("prices", "other", "own", "ordinary", "silent", "busy"), BY_HAND)
def test_a_small_network_by_hand(small: Count, prices, other, own, ordinary, silent, busy) -> None:
    (row,) = [row for row in compare(small).rows if (row.prices, row.other) == (prices, other)]
    assert row.spiking == pytest.approx(own / 1e3)
    assert row.ordinary == pytest.approx(ordinary / 1e3)
    assert row.crossing == pytest.approx((ordinary - silent) / (busy - silent))
    assert row.own_rate == pytest.approx((own - silent) / (busy - silent))


def bit(kib: float) -> float:
    table = [(8, 10), (32, 20), (1024, 100)]
    (m0, e0), (m1, e1) = table[:2] if kib < 32 else table[1:]
    return e0 / 64 * (kib / m0) ** (log2(e1 / e0) / log2(m1 / m0))


def smallest(bits: float) -> float:
    return max(8, 2 ** ceil(log2(bits / 8 / 1024)))


def by_the_document(sizes: list[int], obs: int, steps: int, spikes: list[float]) -> tuple[float, float]:
    """nJ with memory of a CLIF actor with one action, and of its ANN quantised. ``sizes``: encoder, hidden, output."""
    encoder, *layers = sizes
    fans = [*layers, 1]
    neurons = sum(layers)
    synaptic = sum(n * fan for n, fan in zip(spikes, fans, strict=True))
    multiplications = obs + 4 * encoder + 2 * neurons * steps + 2
    additions = encoder + 2 * encoder * steps + 3 * neurons * steps + 2
    weights = sum(a * b for a, b in zip(sizes, layers, strict=False)) + neurons + 2 * encoder + layers[-1] + 1
    kept = 2 * neurons + 2 * encoder + 1
    b_weight, b_state = bit(smallest(8 * weights)), bit(smallest(16 * (kept + obs + 1)))
    moved_weights = synaptic + neurons * steps + 2 * encoder + 1
    moved_states = 2 * (steps - 1) * (2 * neurons + encoder + 1) + steps * encoder + obs + 1
    addresses = sum(2 * n * ceil(log2(size)) for n, size in zip(spikes, sizes, strict=True))
    own = 0.2 * 16**2 / 64 * multiplications + 0.03 * 2 * (additions + synaptic)
    own += 8 * b_weight * moved_weights + b_state * (16 * moved_states + addresses)
    hidden = layers[:-1]
    ordinary = [obs, *hidden, 1]
    macs = sum(a * b for a, b in pairwise(ordinary))
    biases, a = sum(hidden) + 1, ceil(log2(steps + 1))
    b_weight, b_state = bit(smallest(8 * (macs + biases))), bit(8)
    ann = 0.2 * 8 * a / 64 * (macs + 2) + 0.03 * 2 * (macs + biases + 1)
    ann += 8 * b_weight * (macs + biases) + a * b_state * (2 * sum(hidden) + obs + 1)
    return own / 1e3, ann / 1e3


@pytest.mark.slow
def test_a_policy_of_the_zoo(tmp_path: Path) -> None:
    config = energy.Config(ZOO / "double-pendulum-care", out=tmp_path, episodes=1, max_steps=5, quiet=True)
    assert energy.run(config) == 0
    data = json.loads((tmp_path / "energy.json").read_text())
    lines = [*data["network"]["synapses"], *data["network"]["overhead"]]
    spikes = [line["sender_spikes"] for line in lines if "sender_spikes" in line]
    sizes, obs, steps = [110, 256, 256, 10], 11, 5
    own, ann = by_the_document(sizes, obs, steps, spikes)
    assert data["network"]["total"]["nanojoule"][MEMORY] == pytest.approx(own, rel=1e-9)
    assert data["ann_quantised"]["total"]["nanojoule"][MEMORY] == pytest.approx(ann, rel=1e-9)
    (row,) = [row for row in data["crossings"] if row["other"] == QUANTISED]
    none, all_ = (by_the_document(sizes, obs, steps, [rate * steps * n for n in sizes])[0] for rate in (0, 1))
    assert row["crossing"] == pytest.approx((ann - none) / (all_ - none), rel=1e-9)
    assert row["own_rate"] == pytest.approx((own - none) / (all_ - none), rel=1e-9)


def test_a_memory_that_is_too_small_is_told(small: Count) -> None:
    assert too_small(small, Words(), 8.0) is None
    told = too_small(small, Words(), 0.02)
    assert told is not None
    assert told.startswith("a memory of 0.02 KiB (--sram) does not hold the policy's 8-bit weights (0.0 KiB)")
    assert "the ANN's 32-bit weights" in told
    assert counterpart(small.network) is not None
