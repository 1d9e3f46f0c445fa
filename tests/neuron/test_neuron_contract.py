"""What holds for every neuron: a pure step run over time, no hidden state, clear refusals."""

import copy

import pytest
import slow_neurons
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from carebn.kernels import pure
from carebn.network import SpikingLayer
from carebn.neuron import CLIF, LIF, NEURONS, SURROGATES, LIFState, Neuron, Surrogate, Triangle, make_neuron

ALL_NEURONS = list(NEURONS)
ALL_SURROGATES = list(SURROGATES)


def random_input(*shape, dtype=torch.float32, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


# Random reals, and multiples of 1/8, which land exactly on the threshold and on the rectangle's edges.
INPUTS = st.lists(st.one_of(st.floats(-2, 2), st.integers(-8, 16).map(lambda n: n / 8)), min_size=1, max_size=8)


@pytest.mark.parametrize("surrogate", ALL_SURROGATES)
@pytest.mark.parametrize("name", ["lif", "clif", "dn", "dn-authors"])  # one that is added brings its own
@settings(max_examples=25, deadline=None)
@given(inputs=INPUTS, seed=st.integers(0, 2**16))
def test_equals_a_loop_over_python_floats(name, surrogate, inputs, seed):
    """Spikes to the last bit and gradients, compiled and pure, against code that shares nothing with the package."""
    weights = random_input(len(inputs), dtype=torch.float64, seed=seed)
    spikes, gradient = slow_neurons.spikes_and_gradient(name, surrogate, inputs, weights.tolist())
    neuron = make_neuron(name, surrogate=surrogate)
    for run in (neuron, neuron.scan):
        x = torch.tensor(inputs, dtype=torch.float64)[:, None].requires_grad_()
        out = run(x)
        assert out.flatten().tolist() == spikes
        (out.flatten() * weights).sum().backward()
        scale = max(1.0, max(abs(g) for g in gradient))
        assert x.grad.flatten().tolist() == pytest.approx(gradient, rel=1e-9, abs=1e-11 * scale)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ALL_NEURONS)
def test_forward_is_the_step_scanned_over_time(name, dtype):
    neuron = make_neuron(name)
    x = random_input(6, 5, 9, dtype=dtype)
    state = neuron.initial_state(x[0])
    assert all((part == 0).all() and part.shape == x[0].shape and part.dtype == dtype for part in state)
    by_hand = []
    for current in x:
        spike, state = neuron.step(current, state)
        by_hand.append(spike)
    expected = torch.stack(by_hand)
    assert 0 < expected.mean() < 1
    assert torch.equal(neuron(x), expected)
    assert torch.equal(neuron.scan(x), expected)
    with pure():
        assert torch.equal(neuron(x), expected)
    assert neuron(x).dtype == dtype


@pytest.mark.parametrize("name", ALL_NEURONS)
def test_the_step_changes_nothing_it_is_given(name):
    neuron = make_neuron(name)
    current = random_input(4, 3)
    _, state = neuron.step(current, neuron.initial_state(current))
    before = [part.clone() for part in state]
    kept = current.clone()
    neuron.step(current, state)
    assert all(torch.equal(a, b) for a, b in zip(state, before, strict=True))
    assert torch.equal(current, kept)


@pytest.mark.parametrize("name", ALL_NEURONS)
def test_no_state_survives_a_call(name):
    """The same input gives the same spikes whatever ran in between, and a neuron has nothing to save."""
    neuron = make_neuron(name)
    x = random_input(5, 4, 7)
    first = neuron(x)
    neuron(random_input(5, 4, 7, seed=1) + 2)
    assert torch.equal(neuron(x), first)
    assert not neuron.state_dict()
    assert not list(neuron.parameters())


@pytest.mark.parametrize("name", ALL_NEURONS)
def test_deepcopy_after_use(name):
    neuron = make_neuron(name, surrogate="triangle", v_threshold=0.4)
    x = random_input(5, 4, 7).requires_grad_()
    neuron(x).sum().backward()
    twin = copy.deepcopy(neuron)
    y = x.detach().clone().requires_grad_()
    out = twin(y)
    out.sum().backward()
    assert torch.equal(out, neuron(x))
    assert torch.equal(y.grad, x.grad)
    twin.v_threshold = 10.0
    assert neuron.v_threshold == 0.4


@pytest.mark.parametrize("name", ALL_NEURONS)
def test_a_changed_threshold_is_obeyed_at_the_next_call(name):
    """Constants handed to the kernels are not frozen at the first call."""
    neuron = make_neuron(name)
    x = torch.full((1, 1, 1), 0.6)
    assert neuron(x).item() == 1
    neuron.v_threshold = 0.7
    assert neuron(x).item() == 0
    neuron.v_threshold = 0.5
    assert neuron(x).item() == 1


@pytest.mark.parametrize("name", ALL_NEURONS)
@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.bool])
def test_integer_input_is_refused(name, dtype):
    with pytest.raises(ValueError, match="floating-point"):
        make_neuron(name)(torch.ones(3, 2, 4, dtype=dtype))


@pytest.mark.parametrize("name", ALL_NEURONS)
def test_no_time_steps_are_refused(name):
    neuron = make_neuron(name)
    for run in (neuron, neuron.scan):
        with pytest.raises(ValueError, match="at least one time step, got 0"):
            run(torch.zeros(0, 2, 4))
    with pytest.raises(ValueError, match="at least one time step, got 0"):
        SpikingLayer(3, 4, norm="none", neuron=name, time_steps=0)


@pytest.mark.parametrize("name", ALL_NEURONS)
def test_a_missing_axis_is_refused(name):
    with pytest.raises(ValueError, match="time first"):
        make_neuron(name)(torch.zeros(4))


@pytest.mark.parametrize("name", ALL_NEURONS)
def test_an_empty_batch_gives_an_empty_answer(name):
    assert make_neuron(name)(torch.zeros(3, 0, 4)).shape == (3, 0, 4)


@pytest.mark.parametrize("name", ALL_NEURONS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_takes_the_pure_path(name, dtype):
    x = random_input(4, 3, 5, dtype=dtype)
    neuron = make_neuron(name)
    out = neuron(x)
    assert out.dtype == dtype
    assert torch.equal(out, neuron.scan(x))


def test_dn_authors_is_refused_beyond_eight_steps_in_a_layer():
    """When the layer is built, and when a longer input arrives, compiled or pure, in training or not."""
    with pytest.raises(ValueError, match=r"dn-authors.*got 9"):
        SpikingLayer(3, 4, neuron="dn-authors", time_steps=9)
    for norm in ("none", "care"):
        layer = SpikingLayer(3, 4, norm=norm, neuron="dn-authors", time_steps=8)
        assert layer(torch.rand(8, 2, 3)).shape == (8, 2, 4)
        for training in (True, False):
            layer.train(training)
            with pytest.raises(ValueError, match=r"dn-authors.*got 9"):
                layer(torch.rand(9, 2, 3))
            with pure(), pytest.raises(ValueError, match=r"dn-authors.*got 9"):
                layer(torch.rand(9, 2, 3))


def test_make_neuron_by_name():
    for name, kind in NEURONS.items():
        assert type(make_neuron(name)) is kind
    clif = make_neuron("clif", surrogate="triangle", current_decay=0.25)
    assert isinstance(clif, CLIF)
    assert clif.surrogate == Triangle()
    assert clif.current_decay == 0.25
    assert make_neuron("lif", surrogate=Triangle(0.7)).surrogate == Triangle(0.7)


def test_make_neuron_hands_a_neuron_back():
    neuron = LIF(v_threshold=0.7)
    assert make_neuron(neuron) is neuron


@pytest.mark.parametrize(("wrong", "near"), [("clief", "clif"), ("LIF", "lif"), ("dn_authors", "dn-authors")])
def test_an_unknown_neuron_is_answered_with_the_nearest(wrong, near):
    with pytest.raises(ValueError, match=f"unknown neuron '{wrong}'.*did you mean '{near}'"):
        make_neuron(wrong)


def test_an_unknown_name_lists_all_known():
    with pytest.raises(ValueError, match="clif, dn, dn-authors, lif"):
        make_neuron("perceptron")


@pytest.mark.parametrize(("wrong", "near"), [("tringle", "triangle"), ("Tanh", "tanh"), ("sigmoids", "sigmoid")])
def test_an_unknown_surrogate_is_answered_with_the_nearest(wrong, near):
    with pytest.raises(ValueError, match=f"unknown surrogate '{wrong}'.*did you mean '{near}'"):
        make_neuron("lif", surrogate=wrong)


class _SoftReset(LIF):
    """LIF that keeps what exceeds the threshold: another step under an inherited kernel."""

    def step(self, current, state):
        h = self.decay * state.v + current
        spike = self.surrogate(h - self.v_threshold)
        return spike, LIFState(h - self.v_threshold * spike)


class _Awake(LIF):
    """LIF that starts charged: another state under an inherited kernel."""

    def initial_state(self, current):
        return LIFState(torch.full_like(current, 0.6))


class _Integrator(Neuron):
    """A neuron of its own that defines its equations and nothing else."""

    def initial_state(self, current):
        return torch.zeros_like(current)

    def step(self, current, state):
        v = state + current
        spike = self.surrogate(v - self.v_threshold)
        return spike, v - spike


class _Flat(Surrogate):
    """A slope of its own, for which there is no compiled one."""

    def slope(self, x):
        return torch.full_like(x, self.size)


def test_a_subclass_with_its_own_step_runs_that_step():
    """The step is the definition of a neuron; a compiled scan of the parent's equations would be silently wrong."""
    x = torch.rand(6, 4, 5, generator=torch.Generator().manual_seed(0))
    neuron = _SoftReset()
    expected = neuron.scan(x)
    assert not torch.equal(expected, LIF()(x))
    assert torch.equal(neuron(x), expected)


def test_a_subclass_with_its_own_start_starts_there():
    """Compiled scans start from zero, so they are not for a neuron that starts elsewhere: H = 0.75·0.6 + 0.1."""
    x = torch.full((2, 1, 1), 0.1)
    assert _Awake().scan(x).flatten().tolist() == [1, 0]
    assert _Awake()(x).flatten().tolist() == [1, 0]


def test_a_new_neuron_needs_only_its_step():
    """No compiled scan exists for it, so the pure path must serve."""
    x = torch.rand(6, 4, 5, generator=torch.Generator().manual_seed(0))
    neuron = _Integrator()
    assert torch.equal(neuron(x), neuron.scan(x))


def test_a_surrogate_of_ones_own_is_used():
    x = torch.full((1, 1, 1), 5.0, requires_grad=True)
    LIF(surrogate=_Flat(0.25))(x).sum().backward()
    assert x.grad.item() == 0.25
