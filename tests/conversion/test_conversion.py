"""Converted networks against hand-worked spikes, a plain Python network, and the ANN that they stand for."""

from typing import Any

import numpy as np
import pytest
import torch
from slow_conversion import SlowNetwork
from torch import Tensor, nn

from carebn.conversion.convert import Conversion, convert, folded_layers
from carebn.conversion.converted import ConvertedActor, ConvertedQNetwork, Simulation
from carebn.conversion.integrate_fire import IntegrateFireBody, IntegrateFireLayer
from carebn.conversion.thresholds import SMALLEST, maxima
from carebn.kernels import pure
from carebn.network import ANNActor, ANNQNetwork, SpikingActor
from carebn.norm import BNTT, NORMS, Norm


def one_neuron(threshold: float = 1.0) -> IntegrateFireBody:
    body = IntegrateFireBody((1, 1)).requires_grad_(False)
    body.layers[0].linear.weight.fill_(1)
    body.layers[0].linear.bias.fill_(0)
    body.layers[0].threshold.fill_(threshold)
    return body


def fires(body: IntegrateFireBody, x: float, start: float, steps: int) -> list[int]:
    """The spike train of one neuron, from the counts of the last step alone."""
    return [int(body.run(torch.tensor([[x]]), torch.tensor([[start]]), t + 1, t).rate.item()) for t in range(steps)]


@pytest.mark.parametrize("compiled", [True, False])
def test_spikes_by_hand(compiled: bool) -> None:
    def check() -> None:
        # 0.5 → 0.875, 1.25 fires → 0.25, 0.625, 1.0 does not (strictly above), 1.375 fires
        assert fires(one_neuron(), 0.375, 0.5, 5) == [0, 1, 0, 0, 1]
        # a current above the threshold: every step, and the rest piles up
        assert fires(one_neuron(), 2.0, 0.5, 3) == [1, 1, 1]
        assert one_neuron().run(torch.tensor([[2.0]]), torch.tensor([[0.5]]), 3, 0).end.item() == 3.5
        # a negative one: never, and the potential is not held at zero
        assert fires(one_neuron(), -1.0, 0.5, 3) == [0, 0, 0]
        assert one_neuron().run(torch.tensor([[-1.0]]), torch.tensor([[0.5]]), 3, 0).end.item() == -2.5
        # half the threshold at the start rounds the rate instead of cutting it: 0.3·5 = 1.5 → 2 spikes
        assert sum(fires(one_neuron(), 0.3125, 0.5, 5)) == 2

    if compiled:
        check()
    else:
        with pure():
            check()


def dyadic(*shape: int, generator: torch.Generator) -> Tensor:
    """Multiples of 1/16: sums of them are exact, so spikes do not hang on rounding."""
    return torch.randint(-16, 17, shape, generator=generator) / 16


def exact_network(sizes: tuple[int, ...], dtype: torch.dtype) -> tuple[IntegrateFireBody, torch.Generator]:
    generator = torch.Generator().manual_seed(0)
    body = IntegrateFireBody(sizes).requires_grad_(False).to(dtype)
    for layer in body.parts():
        layer.linear.weight.copy_(dyadic(*layer.linear.weight.shape, generator=generator))
        layer.linear.bias.copy_(dyadic(*layer.linear.bias.shape, generator=generator))
        layer.threshold.copy_(dyadic(*layer.threshold.shape, generator=generator).abs() + 0.5)
    return body, generator


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("sizes", [(3, 5), (4, 7, 6), (2, 33, 17, 40), (1, 1, 1)])
@pytest.mark.parametrize("batch", [1, 5, 40])
def test_compiled_and_pure_agree_to_the_bit(sizes: tuple[int, ...], batch: int, dtype: torch.dtype) -> None:
    body, generator = exact_network(sizes, dtype)
    x = dyadic(batch, sizes[0], generator=generator).to(dtype)
    start = dyadic(batch, sum(sizes[1:]), generator=generator).to(dtype)
    given = start.clone()
    spikes = 0.0
    for steps, read_from in ((1, 0), (12, 0), (12, 11), (12, 5)):
        ours = body.run(x, start, steps, read_from)
        with pure():
            slow = body.run(x, start, steps, read_from)
        for a, b in zip(ours, slow, strict=True):
            assert a.equal(b)
        spikes += ours.counts.sum().item()
    assert spikes > 0 or batch == 1
    assert start.equal(given)  # what is passed in is left alone


def test_a_row_does_not_depend_on_its_batch_or_on_threads() -> None:
    torch.manual_seed(0)
    actor = ANNActor(5, 2)
    obs = torch.randn(64, 5)
    network = convert(actor, obs, time_steps=50, iterations=20)
    together = network.observed(obs)[2]
    alone = [network.observed(row[None])[2] for row in obs]
    assert together.counts.equal(torch.cat([activity.counts for activity in alone]))
    assert together.end.equal(torch.cat([activity.end for activity in alone]))
    torch.testing.assert_close(network(obs), torch.cat([network(row[None]) for row in obs]))  # the head's rounding
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        assert network.observed(obs)[2].end.equal(together.end)
    finally:
        torch.set_num_threads(threads)


def test_changed_weights_are_noticed() -> None:
    torch.manual_seed(0)
    obs = torch.randn(9, 5)
    first, second = (convert(ANNActor(5, 2, hidden=(8, 8)), obs, iterations=5) for _ in range(2))
    before = first(obs)
    first.load_state_dict(second.state_dict())
    assert first(obs).equal(second(obs))
    assert not first(obs).equal(before)
    as_double = first.double()
    torch.testing.assert_close(as_double(obs), second(obs).double(), rtol=0, atol=0.05)


# --- whole networks ---------------------------------------------------------------------------------------------------


def slow_twin(ann: ANNActor | ANNQNetwork, thresholds: list[Tensor]) -> SlowNetwork:
    layers = [(layer.weight.tolist(), layer.bias.tolist()) for layer in folded_layers(ann.body)]
    return SlowNetwork(layers, (ann.head.weight.tolist(), ann.head.bias.tolist()), [t.tolist() for t in thresholds])


@pytest.mark.parametrize("rule", ["ltb", "max"])
@pytest.mark.parametrize(("residual", "alpha"), [("none", None), ("crpi", 0.3), ("crpi", 1.0)])
@pytest.mark.parametrize(("steps", "read_from"), [(1, 0), (6, 0), (20, 7)])
def test_decisions_against_plain_python(
    rule: str, residual: str, alpha: float | None, steps: int, read_from: int
) -> None:
    """Three episodes side by side, several decisions each; in the slow network each has a network of its own."""
    torch.manual_seed(0)
    ann = ANNQNetwork(3, 4, hidden=(9, 7)).double()
    obs = torch.randn(60, 3, dtype=torch.float64)
    network = convert(
        ann, obs, rule=rule, time_steps=steps, residual=residual, alpha=alpha, read_out_from=read_from,
        **({"iterations": 30} if rule == "ltb" else {}),
    )  # fmt: skip
    thresholds = [layer.threshold for layer in network.body.parts()]
    twins = [slow_twin(ann, thresholds) for _ in range(3)]
    carried = None
    for decision in obs.view(20, 3, 3)[:8]:
        q, carried = network.decide(decision, carried)
        for row, twin in enumerate(twins):
            slow = twin.decide(decision[row].tolist(), steps, read_from, alpha or 0.0)
            torch.testing.assert_close(q[row], torch.tensor(slow, dtype=torch.float64))
            if residual == "crpi":
                assert carried is not None
                kept = [c for layer in twin.carried for c in layer]
                torch.testing.assert_close(carried[row], torch.tensor(kept, dtype=torch.float64))
    assert (carried is None) == (residual == "none")


def test_activity_counts_every_spike() -> None:
    torch.manual_seed(0)
    ann = ANNActor(3, 2, hidden=(9, 7)).double()
    obs = torch.randn(4, 3, dtype=torch.float64)
    network = convert(ann, obs, time_steps=15, iterations=30, read_out_from=0)
    activity = network.observed(obs)[2]
    for row in range(4):
        twin = slow_twin(ann, [layer.threshold for layer in network.body.parts()])
        twin.decide(obs[row].tolist(), 15, 0)
        assert activity.counts[row].tolist() == [n for layer in twin.counts for n in layer]
        assert activity.end[row].tolist() == pytest.approx([v for layer in twin.end for v in layer])


def test_alpha_zero_is_plain_conversion() -> None:
    torch.manual_seed(0)
    obs = torch.randn(20, 3)
    ann = ANNActor(3, 2, hidden=(9, 7))
    plain = convert(ann, obs, time_steps=8, iterations=9, read_out_from=0)
    network = convert(ann, obs, time_steps=8, iterations=9, residual="crpi", alpha=0.0)
    _, carried = network.decide(obs)
    assert carried is not None
    assert not carried.any()
    assert network.decide(obs.flip(0), carried)[0].equal(plain(obs.flip(0)))


def test_carried_potentials_correct_the_mean_over_a_constant_observation() -> None:
    """What CRPI is for: part of the error of one decision is paid back by the next, so the mean is better."""
    torch.manual_seed(3)
    ann = ANNQNetwork(3, 2, hidden=(32,))
    obs = torch.randn(200, 3)
    network = convert(ann, obs, rule="max", time_steps=4, residual="crpi", alpha=1.0)
    outputs, carried = [], None
    for _ in range(16):
        q, carried = network.decide(obs, carried)
        outputs.append(q)
    want = ann(obs)
    alone = (outputs[0] - want).abs().mean()
    together = (torch.stack(outputs).mean(0) - want).abs().mean()
    assert together < 0.7 * alone  # without it every decision would repeat the first


@pytest.mark.parametrize("rule", ["ltb", "max"])
def test_the_output_approaches_the_anns(rule: str) -> None:
    torch.manual_seed(0)
    ann = ANNActor(6, 3, hidden=(64, 64), low=[-1, -2, 0], high=[1, 3, 0.5])
    obs = torch.randn(500, 6)
    network = convert(ann, obs, rule=rule)
    errors = []
    for steps in (5, 20, 100, 500):
        network.simulation = Simulation(steps)
        errors.append((network(obs) - ann(obs)).abs().mean().item())
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < errors[0] / 20
    assert errors[-1] < 0.003
    assert (network(100 * obs) >= ann.bounds.low).all()
    assert (network(100 * obs) <= ann.bounds.high).all()


@pytest.mark.parametrize("norm", sorted(NORMS))
def test_norms_are_folded(norm: str) -> None:
    torch.manual_seed(0)
    ann = ANNActor(4, 2, norm=norm, hidden=(16, 12))
    obs = torch.randn(300, 4) * 3 + 1
    for module in ann.modules():
        if isinstance(module, Norm):
            for parameter in module.parameters():
                parameter.data.uniform_(0.5, 1.5)
    for _ in range(20):
        ann(obs)  # moves the statistics
    ann.eval()
    x = obs
    for layer in folded_layers(ann.body):
        x = layer(x).relu()
    torch.testing.assert_close(x, ann.body(obs[None])[0], rtol=1e-4, atol=1e-5)
    before = {name: tensor.clone() for name, tensor in ann.state_dict().items()}
    network = convert(ann, obs, rule="max", time_steps=400, read_out_from=0)
    assert (network(obs) - ann(obs)).abs().mean() < 0.01
    assert all(tensor.equal(before[name]) for name, tensor in ann.state_dict().items())  # the ANN is left alone


@pytest.mark.parametrize("raw_bytes", [True, False])
def test_bytes_go_in_as_into_the_ann(raw_bytes: bool) -> None:
    torch.manual_seed(0)
    ann = ANNQNetwork(8, 3, hidden=(32, 32), raw_bytes=raw_bytes)
    obs = np.random.default_rng(0).integers(0, 256, (400, 8), dtype=np.uint8)
    network = convert(ann, obs, time_steps=300)
    assert isinstance(network, ConvertedQNetwork)
    want = ann(torch.from_numpy(obs))
    assert (network(torch.from_numpy(obs)) - want).abs().mean() < 0.02 * want.abs().mean()


def test_thresholds_are_folded_into_the_next_weights() -> None:
    """A spike is 1, so the weight behind it is the ANN's times the threshold."""
    torch.manual_seed(0)
    ann = ANNActor(3, 2, hidden=(5, 4))
    network = convert(ann, torch.randn(50, 3), rule="max", time_steps=10)
    first, second = network.body.parts()
    linear = [m for m in ann.body if isinstance(m, nn.Linear)]
    assert first.linear.weight.equal(linear[0].weight)
    assert second.linear.weight.equal(linear[1].weight * first.threshold)
    assert network.head.weight.equal(ann.head.weight * second.threshold)
    assert isinstance(network, ConvertedActor)
    assert network.bounds.high.equal(ann.bounds.high)


def test_a_neuron_that_was_never_active_stays_all_but_silent() -> None:
    ann = ANNQNetwork(1, 1, hidden=(1,)).requires_grad_(False)
    ann.body[0].weight.fill_(1)
    ann.body[0].bias.fill_(0)
    network = convert(ann, -torch.ones(5, 1), rule="max", time_steps=10)
    assert network.body.thresholds.item() == pytest.approx(SMALLEST)
    torch.testing.assert_close(network(torch.ones(1, 1)), ann.head.bias[None], rtol=0, atol=1e-5)


def test_it_is_the_same_every_time() -> None:
    torch.manual_seed(0)
    ann, obs = ANNActor(3, 2, hidden=(8, 8)), torch.randn(100, 3)
    first, again, other = (convert(ann, obs, iterations=10, seed=s) for s in (0, 0, 1))
    assert all(a.equal(b) for a, b in zip(first.state_dict().values(), again.state_dict().values(), strict=True))
    assert not first.body.thresholds.equal(other.body.thresholds)


def test_the_maximum_rule_sees_every_observation() -> None:
    torch.manual_seed(0)
    ann, obs = ANNActor(3, 2, hidden=(8, 8)), torch.randn(1000, 3)
    obs[-1] *= 50
    network = convert(ann, obs, rule="max", batch_size=64)
    expected = torch.cat(maxima(folded_layers(ann.body), [obs]))
    torch.testing.assert_close(network.body.thresholds, expected)


# --- mistakes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"rule": "lbt"}, "unknown rule 'lbt': did you mean 'ltb'"),
        ({"residual": "cpri"}, "unknown residual 'cpri': did you mean 'crpi'"),
        ({"time_steps": 0}, "at least one time step, got 0"),
        ({"time_steps": -3}, "at least one time step, got -3"),
        ({"residual": "crpi", "alpha": 1.1}, r"alpha must lie in \[0, 1\], got 1.1"),
        ({"residual": "crpi", "alpha": -0.1}, r"alpha must lie in \[0, 1\], got -0.1"),
        ({"residual": "crpi", "alpha": float("nan")}, r"alpha must lie in \[0, 1\]"),
        ({"alpha": 0.3}, "residual is none"),
        ({"time_steps": 10, "read_out_from": 10}, "from 0 to 9"),
        ({"read_out_from": -1}, "from 0 to 99"),
        ({"iterations": 0}, "iterations must be at least 1"),
        ({"rule": "max", "iterations": 10}, "iterations do not apply"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"seed": -1}, "seed must not be negative"),
    ],
)
def test_options_that_make_no_sense(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said) as error:
        convert(ANNActor(3, 2, hidden=(4,)), torch.zeros(5, 3), **options)
    assert "\n" not in str(error.value)


class DoublingLinear(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ([nn.Linear(3, 4), nn.Tanh()], "fold a Tanh where a ReLU is expected"),
        ([nn.Linear(3, 4), nn.LayerNorm(4), nn.ReLU()], "fold a LayerNorm where a ReLU is expected"),
        ([DoublingLinear(3, 4), nn.ReLU()], "fold a DoublingLinear where a Linear is expected"),
        ([nn.Linear(3, 4), BNTT(4, 5), nn.ReLU()], "BNTT has 5 steps in a network of 1"),
        ([nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 4)], "fold a NoneType where a ReLU is expected"),
    ],
)
def test_a_body_that_computes_something_else_is_refused(body: list[nn.Module], said: str) -> None:
    ann = ANNActor(3, 2, hidden=(4,)).eval()
    ann.body = nn.Sequential(*body)
    with pytest.raises(ValueError, match=said) as error:
        convert(ann, torch.randn(5, 3), rule="max")
    assert "\n" not in str(error.value)


def test_networks_and_observations_that_do_not_fit() -> None:
    ann = ANNActor(3, 2, hidden=(4,))
    with pytest.raises(ValueError, match=r"only an ordinary network .* this is a SpikingActor"):
        convert(SpikingActor(3, 2, hidden=(4,)), torch.zeros(5, 3))
    with pytest.raises(ValueError, match="no observations"):
        convert(ann, torch.zeros(0, 3))
    with pytest.raises(ValueError, match=r"shape \[B, 3\], got"):
        convert(ann, torch.zeros(5, 4))
    with pytest.raises(ValueError, match="NaN or infinity"):
        convert(ann, torch.full((5, 3), float("nan")))
    network = convert(ann, torch.randn(5, 3), residual="crpi")
    with pytest.raises(ValueError, match=r"carried potentials of shape \(5, 4\)"):
        network.decide(torch.randn(5, 3), torch.zeros(4, 4))
    with pytest.raises(ValueError, match=r"shape \[B, 3\], got"):
        network(torch.randn(5, 4))


def test_defaults() -> None:
    assert Conversion().checked() == Conversion(iterations=1000)
    assert Conversion(residual="crpi").checked() == Conversion(
        residual="crpi", alpha=0.3, read_out_from=0, iterations=1000
    )
    assert Conversion(rule="max").checked() == Conversion(rule="max")
    assert Conversion(time_steps=20).simulation(3.2) == Simulation(20, 4)


@pytest.mark.parametrize("how", ["data", "numpy", "another layer", "in place"])
def test_a_weight_that_was_changed_after_the_first_call_counts(how: str) -> None:
    """Some of these ways leave no trace in torch's count of versions."""
    torch.manual_seed(0)
    body = IntegrateFireBody([3, 16, 8])
    x, start = torch.randn(4, 3), torch.full((4, 24), 0.5)
    before = body.run(x, start, 12, 0).rate
    weight = body.layers[1].linear.weight
    if how == "data":
        weight.data.mul_(-1.5)
    elif how == "numpy":
        weight.detach().numpy()[:] *= -1.5
    elif how == "in place":
        with torch.no_grad():
            weight.mul_(-1.5)
    else:
        body.layers.append(IntegrateFireLayer(8, 5))
        start = torch.full((4, 29), 0.5)
    after = body.run(x, start, 12, 0)
    with pure():
        expected = body.run(x, start, 12, 0)
    assert torch.equal(after.rate, expected.rate)
    assert torch.equal(after.counts, expected.counts)
    assert after.rate.shape != before.shape or not torch.equal(after.rate, before)
