"""The bill of a converted policy: worked by hand, and against a count of single spikes in plain Python."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from carebn.conversion import Converted, ConvertedActor, ConvertedQNetwork, Simulation, convert
from carebn.measure.bill import ann_bill
from carebn.measure.energy import Count, counterpart
from carebn.measure.prices import Operations
from carebn.measure.spikes import Decision, record, record_converted
from carebn.network import ANNActor, ANNQNetwork


def tiny(kind: type[ConvertedActor] | type[ConvertedQNetwork] = ConvertedActor, **simulation: Any) -> Converted:
    """2 → 2 → 3 → 2, T = 4, with binary fractions throughout."""
    network = kind(2, (2, 3), 2, Simulation(time_steps=4, **simulation)).eval().requires_grad_(False)
    first, second = network.body.parts()
    first.linear.weight.copy_(torch.tensor([[0.375, 0.0], [2.0, 0.0]]))
    first.linear.bias.zero_()
    second.linear.weight.copy_(torch.tensor([[1.0, 0.25]] * 3))
    second.linear.bias.zero_()
    second.threshold.copy_(torch.tensor([2.0, 100.0, 0.5]))
    return network


def counted(network: Converted, *batches: Tensor) -> Count:
    """The batches are decisions of the same episodes, one after the other."""
    count, state = Count(network), None
    for obs in batches:
        output, state, populations = record_converted(network, obs, state)
        count.add(Decision(output.numpy(), output.numpy(), populations))
    return count


@pytest.mark.parametrize("read_out_from", [0, 3])
def test_by_hand(read_out_from: int) -> None:
    """Layer 1 from 1/2: 0.875, 1.25 fires, 0.625, 1.0 does not; and 2.5 fires, then at every step: 1 + 4 spikes.

    Layer 2 receives 0.25, 1.25, 0.25, 0.25. θ = 2 from 1: 1.25, 2.5 fires, 0.75, 1. θ = 100: never.
    θ = 1/2 from 1/4: 0.5 does not, 1.75 fires, 1.5 fires, 1.25 fires: 1 + 0 + 3 spikes.
    """
    network, obs = tiny(read_out_from=read_out_from), torch.tensor([[1.0, 0.0]])
    _, (given, first, second) = record(network, obs)
    assert (given.values.tolist(), given.spiking, given.rate) == ([[[1.0, 0.0]]], False, 0.5)
    assert (first.values.tolist(), first.spiking, first.counted, first.rate) == ([[[1, 4]]], True, 4, 5 / 8)
    assert (second.values.tolist(), second.spiking, second.counted, second.rate) == ([[[1, 0, 3]]], True, 4, 4 / 12)
    bill = counted(network, obs).bill()
    assert [item.name for item in bill.synapses] == ["input → layer 1", "layer 1 → layer 2", "layer 2 → output"]
    assert [item.operations for item in bill.synapses] == [
        Operations(4, 4),  # once, not at every step
        Operations(synaptic=5 * 3),
        Operations(synaptic=4 * 2),
    ]
    assert [item.sender_spikes for item in bill.synapses] == [None, 5, 4]
    assert {item.name: item.operations for item in bill.overhead} == {
        "membranes": Operations(additions=4 * 5),
        "resets": Operations(additions=9),
        "biases": Operations(additions=2 + 4 * 3),
        "output": Operations(4, 2 + 2),
    }
    assert bill.all == Operations(8, 4 + 20 + 9 + 14 + 4, 23)


def test_what_a_residual_and_q_values_change() -> None:
    obs = torch.tensor([[1.0, 0.0]])
    plain, carrying, values = (
        {item.name: item.operations for item in counted(network, obs).bill().overhead}
        for network in (tiny(), tiny(residual="crpi", alpha=0.5), tiny(ConvertedQNetwork))
    )
    assert carrying == plain | {"carried potentials": Operations(10, 10)}
    assert values == plain | {"output": Operations(additions=2)}


def slow_spikes(network: Converted, x: list[float], carried: list[list[float]]) -> tuple[list[int], int]:
    """(synaptic operations by layer, spikes) of one decision, spike by spike; ``carried`` is brought up to date."""
    run = network.simulation
    weights = [layer.linear.weight.double().tolist() for layer in network.body.parts()]
    biases = [layer.linear.bias.double().tolist() for layer in network.body.parts()]
    thetas = [layer.threshold.double().tolist() for layer in network.body.parts()]
    fan_out = [*(len(weight) for weight in weights[1:]), network.head.out_features]
    v = [[t / 2 + c for t, c in zip(a, b, strict=True)] for a, b in zip(thetas, carried, strict=True)]
    start, number = [row[:] for row in v], [[0] * len(row) for row in v]
    walked = [0] * len(weights)
    for _ in range(run.time_steps):
        signal = x
        for k, weight in enumerate(weights):
            out = []
            for i, row in enumerate(weight):
                v[k][i] += biases[k][i] + sum(w * s for w, s in zip(row, signal, strict=True))
                out.append(float(v[k][i] > thetas[k][i]))
                if out[-1]:
                    v[k][i] -= thetas[k][i]
                    number[k][i] += 1
                    walked[k] += sum(1 for _ in range(fan_out[k]))
            signal = out
    for k, row in enumerate(thetas):
        for i, theta in enumerate(row):
            owed = run.alpha * max(v[k][i] - start[k][i], -theta * number[k][i])
            carried[k][i] = min(max(owed, -theta / 2), theta / 2)
    return walked, sum(map(sum, number))


@pytest.mark.parametrize(("residual", "alpha"), [("none", 0.0), ("crpi", 0.7)])
@pytest.mark.parametrize("kind", [ANNActor, ANNQNetwork])
def test_spike_by_spike_through_episodes(kind: Any, residual: str, alpha: float) -> None:
    torch.manual_seed(3)
    ann = kind(3, 2, hidden=(7, 5, 6)).double().eval()
    options = {"residual": residual, "alpha": alpha} if alpha else {}
    network = convert(ann, torch.randn(200, 3).double(), rule="max", time_steps=9, **options)
    batches = [torch.randn(4, 3).double() for _ in range(6)]
    bill = counted(network, *batches).bill()
    walked, spikes = np.zeros(3), 0
    for episode in range(4):
        carried = [[0.0] * n for n in (7, 5, 6)]
        for batch in batches:
            operations, fired = slow_spikes(network, batch[episode].tolist(), carried)
            walked, spikes = walked + operations, spikes + fired
    assert spikes > 100
    assert [item.operations.synaptic * 24 for item in bill.synapses[1:]] == pytest.approx(walked)
    assert {item.name: item for item in bill.overhead}["resets"].operations.additions * 24 == pytest.approx(spikes)
    if alpha:  # what is carried changes the count, so leaving it out would be seen
        forgetful = Count(network)
        for batch in batches:
            output, populations = record(network, batch)
            forgetful.add(Decision(output.numpy(), output.numpy(), populations))
        assert forgetful.bill().synaptic != bill.synaptic


def test_the_counterpart_is_the_network_it_was_converted_from() -> None:
    assert counterpart(tiny()) == ann_bill(2, (2, 3), 2, squashed=True)
    assert counterpart(tiny(ConvertedQNetwork)) == ann_bill(2, (2, 3), 2, squashed=False)
