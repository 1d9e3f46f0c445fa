"""The compiled scan of every neuron against its pure-torch twin: the same bits out, the same gradients back."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_cases import ALL_NEURONS, ALL_SURROGATES, assert_near, kernels_called, max_steps, random

from carebn.kernels import pure
from carebn.neuron import CLIF, DN, LIF, Sigmoid, Tanh, Triangle, make_neuron
from carebn.neuron.surrogate import Rectangle

GRADIENT_TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-11}


def compare(neuron, x, seed=7):
    """Spikes bitwise and gradients up to rounding, for an input that may be any view of its leaf."""
    results = []
    for run in (neuron, neuron.scan):
        leaf = x.base if isinstance(x, View) else x
        leaf = leaf.detach().clone().requires_grad_()
        current = x.of(leaf) if isinstance(x, View) else leaf
        spikes = run(current)
        weights = random(*spikes.shape, seed=seed, dtype=spikes.dtype)
        (spikes * weights).sum().backward()
        results.append((spikes.detach(), leaf.grad))
    (compiled, compiled_grad), (pure_spikes, pure_grad) = results
    assert compiled.dtype == pure_spikes.dtype
    assert torch.equal(compiled, pure_spikes)
    assert_near(compiled_grad, pure_grad, GRADIENT_TOLERANCE[compiled.dtype])
    return compiled


class View:
    """An input that is a view of another tensor, made anew for each run."""

    def __init__(self, base, of):
        self.base, self.of = base, of


@st.composite
def currents(draw, steps):
    """Sizes around the kernels' own: 16 blocks of rows, 256 features at a time. Every other case is rounded to
    eighths, which puts potentials exactly on the threshold and on the rectangle's edges."""
    T = draw(st.integers(1, steps))
    B = draw(st.sampled_from([1, 2, 15, 16, 17]))
    F = draw(st.sampled_from([1, 7, 255, 257, 300]))
    x = random(T, B, F, seed=draw(st.integers(0, 2**16)), dtype=draw(st.sampled_from([torch.float32, torch.float64])))
    x = x * draw(st.sampled_from([0.3, 1.0, 3.0]))
    return (x * 8).round() / 8 if draw(st.booleans()) else x


@pytest.mark.parametrize("surrogate", ALL_SURROGATES)
@pytest.mark.parametrize("name", ALL_NEURONS)
def test_equals_the_pure_step_for_any_shape(name, surrogate):
    @settings(max_examples=8, deadline=None)
    @given(x=currents(max_steps(name)))
    def check(x):
        compare(make_neuron(name, surrogate=surrogate), x)

    check()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ALL_NEURONS)
def test_every_number_of_steps(name, dtype):
    for T in range(1, max_steps(name) + 1):
        compare(make_neuron(name, surrogate="triangle"), random(T, 5, 7, seed=T, dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("F", [1, 7, 255, 256, 257, 300, 513])
@pytest.mark.parametrize("B", [1, 5, 16, 19])
def test_every_block_edge(B, F, dtype):
    """The last block of rows and the last strip of features are shorter than the rest, or empty."""
    for name in ("clif", "dn"):
        spikes = compare(make_neuron(name), random(3, B, F, seed=B + F, dtype=dtype))
        assert spikes.shape == (3, B, F)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "neuron",
    [
        LIF(v_threshold=0.3, decay=0.9),
        LIF(v_threshold=0.0, decay=0.1, surrogate=Rectangle(0.3)),
        CLIF(v_threshold=1.1, decay=0.6, current_decay=0.7, surrogate=Sigmoid(7.3)),
        CLIF(v_threshold=-0.2, decay=0.99, current_decay=0.01, surrogate=Tanh(0.9)),
        DN(v_threshold=0.3, current_decay=0.7, theta_v=-0.3, theta_u=0.2, theta_r=0.1, theta_s=0.33),
        DN(v_threshold=0.7, theta_v=0.1, theta_s=-0.2, surrogate=Triangle(0.45)),
    ],
    ids=repr,
)
def test_constants_that_are_not_exact_in_binary(neuron, dtype):
    """0.3 differs between the precisions: the kernel must round it as torch does."""
    compare(neuron, random(6, 19, 40, dtype=dtype) * 0.8)


LAYOUTS = {
    "batch first": ((9, 5, 7), lambda base: base.transpose(0, 1)),
    "features first": ((7, 9, 5), lambda base: base.permute(2, 1, 0)),
    "strided in time": ((10, 9, 7), lambda base: base[::2]),
    "strided in features": ((5, 9, 14), lambda base: base[..., 1::2]),
    "a slice of the batch": ((5, 12, 7), lambda base: base[:, 2:11]),
    "constant in time": ((1, 9, 7), lambda base: base.expand(5, -1, -1)),
    "constant over the batch": ((5, 1, 7), lambda base: base.expand(-1, 9, -1)),
    "constant over features": ((5, 9, 1), lambda base: base.expand(-1, -1, 7)),
    "backwards in time": ((5, 9, 7), lambda base: base.flip(0)),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ALL_NEURONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_input_of_any_layout(name, layout, dtype):
    shape, of = LAYOUTS[layout]
    spikes = compare(make_neuron(name, surrogate="triangle"), View(random(*shape, dtype=dtype), of))
    assert spikes.shape == (5, 9, 7)


@pytest.mark.parametrize("shape", [(4, 5), (4, 3, 2, 5), (4, 1, 6, 5), (3, 2, 3, 2, 7)])
@pytest.mark.parametrize("name", ALL_NEURONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_any_number_of_axes_between_time_and_features(name, shape, dtype):
    x = random(*shape, dtype=dtype)
    spikes = compare(make_neuron(name), x)
    assert spikes.shape == shape
    flat = make_neuron(name)(x.reshape(shape[0], -1, shape[-1]))
    assert torch.equal(spikes.reshape(flat.shape), flat)


def test_permuted_middle_axes():
    compare(CLIF(), View(random(5, 3, 4, 6), lambda base: base.permute(2, 1, 0, 3)))


@pytest.mark.parametrize("name", ALL_NEURONS)
def test_gradient_of_any_layout(name):
    """The gradient that arrives may be a transposed, strided or expanded tensor; its numbers are what counts."""
    neuron = make_neuron(name, surrogate="triangle")
    arriving = {
        "constant in time": random(9, 7)[None].expand(5, 9, 7),
        "constant everywhere": random(1, 1, 1).expand(5, 9, 7),
        "constant over the batch": random(5, 1, 7).expand(5, 9, 7),
        "transposed": random(9, 5, 7).transpose(0, 1),
        "strided": random(5, 9, 14)[..., ::2],
    }
    for layout, grad in arriving.items():
        results = []
        for run, g in ((neuron, grad), (neuron, grad.contiguous()), (neuron.scan, grad.contiguous())):
            x = random(5, 9, 7, seed=3).requires_grad_()
            run(x).backward(g)
            results.append(x.grad)
        assert torch.equal(results[0], results[1]), layout
        assert_near(results[0], results[2], 1e-11)


@pytest.mark.parametrize("name", ALL_NEURONS)
def test_a_sum_over_time_sends_a_gradient_of_stride_zero(name):
    """This is what a read-out of spike counts does; the kernel then reads one step only."""
    neuron = make_neuron(name)
    results = []
    for run in (neuron, neuron.scan):
        x = random(5, 9, 7).requires_grad_()
        (run(x).sum(0) * random(9, 7, seed=1)).sum().backward()
        results.append(x.grad)
    assert_near(*results, 1e-11)


@pytest.mark.parametrize("name", ALL_NEURONS)
def test_the_graph_can_be_walked_twice(name):
    """Backward recomputes the potentials; it must not eat what it saved."""
    x = random(5, 4, 6).requires_grad_()
    spikes = make_neuron(name)(x)
    spikes.sum().backward(retain_graph=True)
    first = x.grad.clone()
    x.grad = None
    spikes.sum().backward()
    assert torch.equal(x.grad, first)


@pytest.mark.parametrize("name", ALL_NEURONS)
def test_input_changed_before_backward_is_noticed(name):
    """The kernels keep the input by reference: torch must see that it changed, not compute with other numbers."""
    x = random(5, 4, 6).requires_grad_()
    y = x * 1
    spikes = make_neuron(name)(y)
    with torch.no_grad():
        y.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        spikes.sum().backward()


def test_where_kernels_are_used():
    """In float32 and float64 on the CPU, and nowhere inside ``pure()``, nested or left by an exception. Otherwise every
    comparison here would compare the pure path with itself."""

    def used(x):
        with kernels_called() as names:
            CLIF()(x)
        return names == ["fire"]

    x = torch.zeros(2, 3, 4)
    assert used(x)
    assert used(x.double())
    assert not used(x.half())
    assert not used(x.bfloat16())
    assert not used(x.to("meta"))
    assert not used(x[:, :0])
    with pure():
        assert not used(x)
        with pure():
            assert not used(x)
        assert not used(x)
    assert used(x)
    with pytest.raises(KeyError), pure():
        raise KeyError
    assert used(x)


@pytest.mark.parametrize("broken", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ALL_NEURONS)
def test_a_broken_number_does_not_spread(name, dtype, broken):
    """It leaves other samples and features alone, forwards and backwards, though they share a vector register."""
    neuron = make_neuron(name)
    results = []
    for value in (0.5, broken):
        x = random(5, 6, 9, dtype=dtype)
        x[1, 2, 3] = value
        x.requires_grad_()
        spikes = neuron(x)
        spikes.backward(random(5, 6, 9, seed=1, dtype=dtype))
        others = torch.ones(5, 6, 9, dtype=torch.bool)
        others[:, 2, 3] = False
        results.append((spikes[others], x.grad[others]))
        assert spikes[0, 2, 3] == neuron(x[:1])[0, 2, 3]
    (spikes, grad), (spikes_beside, grad_beside) = results
    assert torch.equal(spikes, spikes_beside)
    assert torch.equal(grad, grad_beside)


@pytest.mark.parametrize("name", ALL_NEURONS)
def test_a_missing_number_silences_its_neuron(name):
    """NaN is above no threshold, so from there on there are no spikes, compiled or pure."""
    x = torch.full((5, 1, 1), 0.9, dtype=torch.float64)
    x[2] = float("nan")
    neuron = make_neuron(name)
    assert neuron(x).flatten()[2:].tolist() == [0, 0, 0]
    assert torch.equal(neuron(x), neuron.scan(x))
