"""Firing rates as the stack counts them, their gradients, and who is heard: beside the pure path in float64."""

import copy
import threading
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from carebn.kernels import explain, firing_rates, pure
from carebn.network import SpikingActor, SpikingLayer, SpikingQNetwork

OBS, ACTIONS, BATCH = 3, 2, 60
PRICES = torch.tensor([3.0, 5.0, 7.0, 11.0], dtype=torch.float64)


def actor(seed: int = 0, **options: Any) -> SpikingActor:
    torch.manual_seed(seed)
    network = SpikingActor(OBS, ACTIONS, **{"hidden": (24, 17), "time_steps": 5, **options})
    with torch.no_grad():
        for layer in network.layers:  # few different weights, so that float32 and float64 fire alike
            layer.linear.weight.copy_((layer.linear.weight * 64).round() / 16)
    return network


def observations(batch: int = BATCH) -> Tensor:
    torch.manual_seed(1)
    return torch.randn(batch, OBS)


def step(network: nn.Module, obs: Tensor, weight: float = 1.0) -> tuple[Tensor, Tensor, list[Tensor | None]]:
    """Output, rates, and the gradients of a loss that has both."""
    network = copy.deepcopy(network)
    with firing_rates(network) as heard:
        out = network(obs)
    rates = heard.rates
    loss = weight * out.sum() + 100 * (rates * PRICES[: len(rates)].to(rates)).sum()
    if loss.requires_grad:
        loss.backward()
    return out.detach(), rates.detach(), [p.grad for p in network.parameters()]


def by_hand(network: nn.Module, obs: Tensor, weight: float = 1.0) -> tuple[Tensor, Tensor, list[Tensor | None]]:
    """In float64 on the pure path, spikes listened to by hooks: no word of the network's own about rates."""
    network = copy.deepcopy(network).double()
    populations: list[Tensor] = []

    def note(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        if not populations and len(inputs) == 2:  # the first layer's: spikes of the encoder, and what they are from
            spikes, stimulation = inputs
            populations.append(spikes + (stimulation - stimulation.detach()))
        populations.append(output)

    for layer in network.layers:
        layer.register_forward_hook(note)
    with pure():
        out = network(obs.double())
    rates = torch.stack([spikes.sum() / spikes.numel() for spikes in populations])
    loss = weight * out.sum() + 100 * (rates * PRICES[: len(rates)]).sum()
    loss.backward()
    return out.detach(), rates.detach(), [p.grad for p in network.parameters()]


def assert_alike(found: Any, expected: Any) -> None:
    for mine, theirs in zip(found[:2], expected[:2], strict=True):
        torch.testing.assert_close(mine.double(), theirs, rtol=1e-5, atol=1e-6)
    largest = max(theirs.abs().max().item() for theirs in expected[2] if theirs is not None)
    for mine, theirs in zip(found[2], expected[2], strict=True):
        if theirs is None:
            assert mine is None or not mine.any()
            continue
        size = max(theirs.abs().max().item(), 1e-3 * largest)  # a bias before a norm has rounding for a gradient
        torch.testing.assert_close(
            mine.double(), theirs, rtol=0, atol=(2e-4 if mine.dtype is torch.float32 else 1e-8) * size
        )


def paths(network: nn.Module, obs: Tensor) -> dict[str, str]:
    with firing_rates(network):
        return {name: path for name, path, _ in explain(network, obs)}


@pytest.mark.parametrize("steps", [1, 2, 5, 8])
@pytest.mark.parametrize("norm", ["care", "none"])
def test_the_stack_counts_and_differentiates_as_the_pure_path(steps: int, norm: str) -> None:
    obs = observations(300 // steps + 1)
    network = actor(time_steps=steps, norm=norm)
    assert paths(network, obs)["(firing rates)"] == "stack"
    assert_alike(step(network, obs), by_hand(network, obs))
    assert_alike(step(network, obs, weight=0.0), by_hand(network, obs, weight=0.0))  # the rates alone


@pytest.mark.parametrize("threads", [1, 2])
def test_rates_do_not_depend_on_threads(threads: int) -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        expected = step(actor(), observations())
        torch.set_num_threads(threads)
        found = step(actor(), observations())
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found[1], expected[1])
    assert_alike(found, (expected[0].double(), expected[1].double(), [g.double() for g in expected[2]]))


@pytest.mark.parametrize(
    "options",
    [{"neuron": "dn"}, {"neuron": "dn-authors"}, {"norm": "tebn"},
     {"norm": "tdbn", "neuron": "lif", "readout": "mean-membrane"},
     {"readout": "max-membrane"}, {"intralayer": "intra"}, {"encoder_options": {"coding": "analogue"}},
     {"hidden": ()}],
    ids=str,
)  # fmt: skip
def test_layer_by_layer_too(options: dict[str, Any]) -> None:
    obs = observations()
    network = actor(**options)
    if options != {"hidden": ()}:
        assert paths(network, obs)["(firing rates)"] == "torch"
    names = network.populations()
    found = step(network.double(), obs.double())
    assert len(found[1]) == len(names)
    assert ("encoder" in names) == ("encoder_options" not in options)
    assert_alike(found, by_hand(network, obs))


def test_a_q_network_tells_its_layers() -> None:
    torch.manual_seed(0)
    network = SpikingQNetwork(OBS, 4, hidden=(12, 9)).double()
    found = step(network, observations().double())
    assert network.populations() == ["layer_1", "layer_2"]
    assert_alike(found, by_hand(network, observations()))


@pytest.mark.parametrize("frozen", ["encoder", "layers.0", "layers.1", "decoder", "norm", "linear.weight"])
def test_frozen_parts(frozen: str) -> None:
    network = actor()
    for name, parameter in network.named_parameters():
        parameter.requires_grad_(frozen not in name)
    obs = observations()
    assert_alike(step(network, obs), by_hand(network, obs))


def test_poisson_spikes_are_told_as_they_were_drawn() -> None:
    network, obs = actor(encoder_options={"coding": "poisson"}), observations()
    torch.manual_seed(5)
    with firing_rates(network) as heard:
        network(obs)
    torch.manual_seed(5)
    spikes = network.encoder.spikes(network.encoder.stimulation(obs))
    assert heard.rates[0].item() == pytest.approx(spikes.mean().item())
    (grad,) = torch.autograd.grad(heard.rates[0], network.encoder.mean)
    assert grad.abs().sum() > 0


class Louder(SpikingLayer):
    """A layer of somebody's own: its answer is what counts."""

    def forward(self, x: Tensor, stimulation: Tensor | None = None) -> Tensor:
        return super().forward(x, stimulation).roll(1, -1) * 1.0


class Thoughtful(SpikingActor):
    def potential(self, obs: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return super().potential(obs, generator) + 1.0


class Silent(SpikingActor):
    def potential(self, obs: Tensor, generator: torch.Generator | None = None) -> Tensor:
        x = self.encoder(obs, generator)
        for layer in self.layers:
            x = layer(x)
        return self.decoder(x)


def test_subclasses() -> None:
    obs, plain = observations(), actor()
    network = copy.deepcopy(plain)
    network.layers[1].__class__ = Louder
    assert_alike(step(network, obs), by_hand(network, obs))
    network = copy.deepcopy(plain)
    network.__class__ = Thoughtful
    assert torch.equal(step(network, obs)[1], step(plain, obs)[1])
    network.__class__ = Silent
    with pytest.raises(ValueError, match="this Silent does not tell how often its neurons fire"):
        step(network, obs)


def test_hooks_hear_the_same_and_rates_stay_right() -> None:
    obs, network = observations(), actor()
    expected = step(network, obs)
    for module in (network, network.encoder, network.layers[1], network.layers[0].neuron, network.layers[0].norm):
        listened = copy.deepcopy(network)
        heard: list[int] = []
        path = next(name for name, m in network.named_modules() if m is module)
        listened.get_submodule(path).register_forward_hook(lambda *_, heard=heard: heard.append(1))
        found = step(listened, obs)
        torch.testing.assert_close(found[1], expected[1], rtol=1e-6, atol=0)
        assert len(heard) == (0 if module is network.encoder else 1)  # the actor asks it piece by piece


def test_another_network_inside_is_not_heard_and_two_calls_are_averaged() -> None:
    obs, network, other = observations(), actor(), actor(1)
    with firing_rates(network) as heard:
        other(obs)
        network(obs)
    assert torch.equal(heard.rates, step(network, obs)[1])
    with firing_rates(network.eval()) as twice:
        network(obs)
        network(-obs)
    alone = []
    for x in (obs, -obs):
        with firing_rates(network) as once:
            network(x)
        alone.append(once.rates.detach())
    torch.testing.assert_close(twice.rates.detach(), torch.stack(alone).mean(0))


def test_other_threads_are_not_heard() -> None:
    obs, network = observations(), actor().eval()
    with firing_rates(network) as heard:
        thread = threading.Thread(target=lambda: network(obs))
        thread.start()
        thread.join()
        with pytest.raises(ValueError, match="does not tell"):
            _ = heard.rates


def test_nobody_listens_nothing_changes() -> None:
    obs, network = observations(), actor()
    quiet, loud = copy.deepcopy(network), copy.deepcopy(network)
    out = quiet(obs)
    with firing_rates(loud) as heard:
        same = loud(obs)
    assert torch.equal(out, same)
    out.sum().backward()
    (same.sum() + 0 * heard.rates.sum()).backward()
    for a, b in zip(quiet.parameters(), loud.parameters(), strict=True):
        assert torch.equal(a.grad, b.grad)
    assert all(name != "(firing rates)" for name, _, _ in explain(network, obs))


def test_explain_says_why_the_stack_does_not_count() -> None:
    network, obs = actor(neuron="dn"), observations()
    with firing_rates(network) as heard:
        name, path, reason = next(row for row in explain(network, obs) if row[0] == "(firing rates)")
        with pytest.raises(ValueError, match="does not tell"):  # explain asks a copy
            _ = heard.rates
    assert (name, path) == ("(firing rates)", "torch")
    assert "LIF and CLIF" in reason


def half_of_what_goes_in(module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return (inputs[0] * 0.5, *inputs[1:])


def twice_the_gradient(module: nn.Module, to_inputs: Any, to_outputs: Any) -> Any:
    return tuple(None if grad is None else 2 * grad for grad in to_inputs)


HOOKS = {
    "before forward": lambda module: module.register_forward_pre_hook(half_of_what_goes_in),
    "backward": lambda module: module.register_full_backward_hook(twice_the_gradient),
}


@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("where", ["layers.0", "layers.1", "layers.2", "decoder"])
def test_a_hook_of_the_receiver_does_not_change_the_rate_of_the_sender(hook: str, where: str) -> None:
    """A layer that tells the rate of its own input stands behind its hooks: what they change is not the sender's."""
    network = actor()
    HOOKS[hook](network.get_submodule(where))
    out, rates, gradients = step(network, observations())
    with pure():
        pure_out, pure_rates, pure_gradients = step(network, observations())
    torch.testing.assert_close((out, rates), (pure_out, pure_rates))
    for ours, theirs in zip(gradients, pure_gradients, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    plain_rates = by_hand(actor(), observations())[1]
    if where == "decoder" or hook == "backward":  # nobody fires otherwise than without the hook
        torch.testing.assert_close(rates.double(), plain_rates)
