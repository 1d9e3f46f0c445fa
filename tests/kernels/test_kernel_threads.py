"""Threads change how fast a kernel is, never what it says."""

import copy
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from kernel_cases import ALL_NEURONS, ALL_NORMS, random, random_spikes

from carebn.network import PopulationEncoder, SpikingActor, SpikingLayer
from carebn.neuron import make_neuron


@pytest.fixture
def on_threads():
    """Run something on so many threads; the number is put back afterwards."""
    before = torch.get_num_threads()

    def run(threads, function):
        torch.set_num_threads(threads)
        return function()

    yield run
    torch.set_num_threads(before)


def assert_bitwise_equal(results):
    first, *others = results
    assert len(first) > 1
    for other in others:
        for a, b in zip(first, other, strict=True):
            assert torch.equal(a, b)


THREADS = (1, 2, 5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ALL_NEURONS)
def test_neuron_on_any_number_of_threads(name, dtype, on_threads):
    neuron = make_neuron(name, surrogate="sigmoid")

    def run():
        x = random(5, 37, 300, dtype=dtype).requires_grad_()
        spikes = neuron(x)
        spikes.backward(random(5, 37, 300, seed=1, dtype=dtype))
        return spikes.detach(), x.grad

    assert_bitwise_equal([on_threads(n, run) for n in THREADS])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ALL_NORMS)
def test_layer_on_any_number_of_threads(name, dtype, on_threads):
    """Sums over samples are where the order of threads could show: gradients and moving statistics.

    The weight is the identity, so that torch's own products are exact in any order.
    """
    torch.manual_seed(0)
    layer = SpikingLayer(300, 300, norm=name, neuron="clif").to(dtype)
    torch.nn.init.eye_(layer.linear.weight)

    def run(training):
        twin = copy.deepcopy(layer).train(training)
        x = (random(5, 37, 300, dtype=dtype) + 0.5).requires_grad_()
        spikes = twin(x)
        spikes.backward(random(5, 37, 300, seed=1, dtype=dtype))
        gradients = [p.grad for p in twin.norm.parameters()]
        return [spikes.detach(), x.grad, *gradients, *twin.buffers()]

    for training in (True, False):
        assert_bitwise_equal([on_threads(n, lambda t=training: run(t)) for n in THREADS])


@pytest.mark.parametrize("learning", [True, False])
@pytest.mark.parametrize("norm", ["bntt", "tdbn", "none"])
def test_layers_large_enough_for_the_look_up_on_any_number_of_threads(norm, learning, on_threads):
    """Their products are the kernels' own, so that every gradient is the same to the last bit."""

    def run():
        torch.manual_seed(0)
        layer = SpikingLayer(70, 300, norm=norm, neuron="dn").train(learning)
        x = random_spikes(5, 110, 70, dtype=torch.float32)
        spikes = layer(x)
        spikes.backward(random(*spikes.shape, seed=1, dtype=torch.float32))
        return [spikes.detach(), *(p.grad for p in layer.parameters()), *layer.buffers()]

    assert_bitwise_equal([on_threads(n, run) for n in THREADS])


def test_encoder_on_any_number_of_threads(on_threads):
    encoder = PopulationEncoder(17)

    def run():
        encoder.zero_grad()
        spikes = encoder(random(37, 17, dtype=torch.float32))
        spikes.backward(random(*spikes.shape, seed=1, dtype=torch.float32))
        return [spikes.detach(), encoder.mean.grad.clone(), encoder.std.grad.clone()]

    assert_bitwise_equal([on_threads(n, run) for n in THREADS])


def test_a_small_batch_leaves_some_threads_without_work(on_threads):
    def run():
        x = random(3, 2, 3).requires_grad_()
        spikes = make_neuron("clif")(x)
        spikes.sum().backward()
        return spikes.detach(), x.grad

    assert_bitwise_equal([on_threads(n, run) for n in (1, 2, 7)])


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
def test_kernels_called_from_several_python_threads_at_once(threads, on_threads):
    """Kernels let go of the interpreter lock; each call must have its own scratch space and its own answer."""

    def work(seed):
        name = ALL_NEURONS[seed % len(ALL_NEURONS)]
        norm = ALL_NORMS[seed % len(ALL_NORMS)]
        layer = copy.deepcopy(layers[norm, name])
        x = random_spikes(5, 19, 40, seed=seed).requires_grad_()
        results = []
        for _ in range(2):
            spikes = layer(x)
            (spikes.sum(0) * random(19, 70, seed=seed)).sum().backward()
            results.append(spikes.detach())
        return [*results, x.grad, *(p.grad for p in layer.norm.parameters()), *layer.buffers()]

    layers = {(a, b): SpikingLayer(40, 70, norm=a, neuron=b).double() for a in ALL_NORMS for b in ALL_NEURONS}
    cases = range(36)  # every norm with every neuron
    expected = on_threads(threads, lambda: [work(seed) for seed in cases])
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(work, cases))
    for case, ours, theirs in zip(cases, results, expected, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9, msg=lambda m, c=case: f"case {c}: {m}")


def test_one_actor_shared_by_several_python_threads():
    """An actor in inference mode has no state to trip over: vectorised environments may share it."""
    torch.manual_seed(0)
    actor = SpikingActor(5, 3, hidden=(32, 32)).double().eval()
    observations = [random(seed + 1, 5, seed=seed) for seed in range(24)]

    def act(obs):
        with torch.no_grad():
            return actor(obs)

    expected = [act(obs) for obs in observations]
    with ThreadPoolExecutor(6) as pool:
        for ours, theirs in zip(pool.map(act, observations), expected, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
