"""The fast path of acting against the module that it stands for."""

import copy

import numpy as np
import pytest
import torch
from agent_cases import HIGH, LOW, make_actor, make_agent, make_replay

from carebn import router
from carebn.kernels import pure
from carebn.network.inference import FastActor
from carebn.neuron import NEURONS, make_neuron
from carebn.norm import NORMS

SIZES = (1, 2, 5, 17, 40)


def observations(count, seed=0, scale=1.5):
    return (scale * np.random.default_rng(seed).standard_normal((count, 3))).astype(np.float32)


def warm(actor, seed=1):
    """Parameters and moving statistics that are not the first ones, and neurons that fire."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in actor.named_parameters():
            p.add_(0.05 * torch.randn(p.shape, generator=generator) + 0.2 * name.endswith("norm.bias"))
        for i in range(10):
            actor(torch.from_numpy(observations(20, 30 + i)))
    return actor


def expected(actor, obs):
    with torch.no_grad():
        return copy.deepcopy(actor).eval()(torch.from_numpy(obs)).numpy()


def assert_same_actions(fast, actor, obs=None, sizes=SIZES):
    """Row for row. A potential within rounding of the threshold may fire on one path only: one row is forgiven."""
    odd = 0
    for size in sizes:
        rows = observations(size, seed=size) if obs is None else obs[:size]
        ours, theirs = fast(rows), expected(actor, rows)
        assert ours.shape == theirs.shape == (size, 2)
        assert ours.dtype == np.float32
        assert (ours >= np.float32(LOW)).all()
        assert (ours <= np.float32(HIGH)).all()
        odd += int((~np.isclose(ours, theirs, rtol=1e-5, atol=1e-5)).any(1).sum())
    assert odd <= 1, f"{odd} of {sum(sizes)} rows differ"


@pytest.mark.parametrize("steps", [1, 5])
@pytest.mark.parametrize("neuron", NEURONS)
@pytest.mark.parametrize("norm", NORMS)
def test_every_norm_and_neuron(norm, neuron, steps):
    actor = warm(make_actor(norm=norm, neuron=neuron, time_steps=steps, hidden=(12, 9)))
    fast = FastActor(actor)
    assert_same_actions(fast, actor)
    if steps == 5:
        assert len(np.unique(fast(observations(40)), axis=0)) > 2, "the actor says the same to everything"


@pytest.mark.parametrize("reset", ["spike", "threshold"])
@pytest.mark.parametrize("observation", ["tanh", "raw", "zscore"])
@pytest.mark.parametrize("readout", ["membrane", "rate"])
def test_options_of_encoder_and_decoder(readout, observation, reset):
    """Many steps, so that subtracting 0.999 or 1 makes a difference."""
    encoder = {"observation": observation, "reset": reset, "threshold": 0.6, "std": 0.7}
    actor = warm(make_actor(readout=readout, encoder_options=encoder, time_steps=7))
    assert_same_actions(FastActor(actor), actor)


def test_running_statistics_are_read_as_they_are_now():
    actor = warm(make_actor(encoder_options={"observation": "zscore"}))
    fast, obs = FastActor(actor), observations(40)
    before = fast(obs)
    actor.encoder.zscore.update(torch.from_numpy(observations(100, 3, scale=4.0)) + 2)
    assert_same_actions(fast, actor)
    assert not np.array_equal(fast(obs), before)


@pytest.mark.parametrize("norm", ["care", "none", "tab"])
def test_against_the_pure_module(norm):
    """Without any compiled kernel on the other side."""
    actor = warm(make_actor(norm=norm))
    fast = FastActor(actor)
    with pure():
        theirs = expected(actor, observations(40))
    odd = (~np.isclose(fast(observations(40)), theirs, rtol=1e-5, atol=1e-5)).any(1).sum()
    assert odd <= 1


def test_sizes_of_the_paper():
    actor = warm(make_actor(hidden=(256, 256)))
    assert_same_actions(FastActor(actor), actor, sizes=(1, 8, 256))


@pytest.mark.parametrize("hidden", [(5,), (5, 33, 4, 7), (1, 1)])
def test_other_depths(hidden):
    actor = warm(make_actor(hidden=hidden))
    assert_same_actions(FastActor(actor), actor)


def test_neurons_with_their_own_constants():
    neuron = make_neuron("clif", v_threshold=0.3, decay=0.9, current_decay=0.2)
    actor = warm(make_actor(neuron=neuron))
    assert_same_actions(FastActor(actor), actor)


def test_norms_with_another_eps():
    actor = warm(make_actor(norm_options={"eps": 0.5}))
    assert_same_actions(FastActor(actor), actor)


@pytest.mark.parametrize("norm", ["care", "tdbn", "tab", "none"])
def test_follows_training(norm):
    """It reads what training writes in place, statistics included."""
    agent, replay = make_agent("td3", norm=norm, actor_learning_rate=0.02), make_replay("td3")
    rng = np.random.default_rng(1)
    before = agent._fast(observations(40))
    for _ in range(4):
        agent.update(replay, rng)
    assert_same_actions(agent._fast, agent.actor)
    assert not np.array_equal(before, agent._fast(observations(40)))
    agent.recalibrate(replay, rng)
    assert_same_actions(agent._fast, agent.actor)


@pytest.mark.parametrize("norm", ["care", "tab", "none"])
def test_follows_load_state_dict(norm):
    actor, other = make_actor(norm=norm), warm(make_actor(norm=norm, seed=5))
    fast = FastActor(actor)
    before = fast(observations(40))
    actor.load_state_dict(other.state_dict())
    assert_same_actions(fast, other)
    assert not np.array_equal(before, fast(observations(40)))


def test_follows_a_move():
    """Converting there and back puts every tensor in a new place."""
    actor = warm(make_actor())
    fast = FastActor(actor)
    before = fast(observations(40))
    actor.double().float()
    with torch.no_grad():
        actor.decoder.bias.add_(0.05)
    assert_same_actions(fast, actor)
    assert not np.array_equal(before, fast(observations(40)))


def test_follows_assigned_parameters():
    """``assign=True`` replaces the tensors themselves; the old ones must not be read once they may be gone."""
    actor, other = warm(make_actor()), warm(make_actor(seed=5))
    fast = FastActor(actor)
    kept = [*actor.parameters(), *actor.buffers()]  # so that a stale address is still memory of ours
    actor.load_state_dict(copy.deepcopy(other.state_dict()), assign=True)
    assert_same_actions(fast, other)
    del kept


def test_follows_one_replaced_parameter():
    actor = warm(make_actor())
    fast = FastActor(actor)
    kept = actor.layers[1].linear.weight
    actor.layers[1].linear.weight = torch.nn.Parameter(-kept.detach())
    assert_same_actions(fast, actor)
    del kept


def test_does_not_act_in_another_precision():
    """Converted to float64 the actor no longer suits: a refusal is right, bytes taken for other numbers are not."""
    actor = warm(make_actor())
    fast = FastActor(actor)
    actor.double()
    try:
        action = fast(observations(17))
    except (ValueError, TypeError):
        return
    with torch.no_grad():
        theirs = copy.deepcopy(actor).eval()(torch.from_numpy(observations(17)).double()).numpy()
    assert (~np.isclose(action, theirs, rtol=1e-4, atol=1e-4)).any(1).sum() <= 1


def test_takes_observations_of_any_layout_and_precision():
    actor = warm(make_actor())
    fast = FastActor(actor)
    obs = observations(12)
    plain = fast(obs)
    assert np.array_equal(fast(obs.astype(np.float64)), plain)
    assert np.array_equal(fast(np.asfortranarray(obs)), plain)
    assert np.array_equal(fast(np.repeat(obs, 2, 0)[::2]), plain)
    kept = obs.copy()
    fast(obs)
    assert np.array_equal(obs, kept)


def test_large_observations_stay_finite():
    actor = warm(make_actor())
    assert_same_actions(FastActor(actor), actor, obs=observations(17, scale=1e6), sizes=(17,))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_refuses_what_is_not_finite(bad):
    """As the module does."""
    actor = make_actor()
    obs = observations(4)
    obs[2, 1] = bad
    with pytest.raises(ValueError, match="NaN or infinity"):
        FastActor(actor)(obs)
    with pytest.raises(ValueError, match="NaN or infinity"):
        actor(torch.from_numpy(obs))


@pytest.mark.parametrize("shape", [(3,), (2, 4), (2, 2), (1, 2, 3), ()])
def test_refuses_wrong_sizes(shape):
    with pytest.raises(ValueError, match="expected observations of shape"):
        FastActor(make_actor())(np.zeros(shape, np.float32))


@pytest.mark.parametrize("norm", ["care", "tab", "none"])
def test_threads_change_nothing(norm):
    actor = warm(make_actor(norm=norm, hidden=(64, 32)))
    fast = FastActor(actor)
    before, results = torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            results.append([fast(observations(size)) for size in (1, 7, 64)])
    finally:
        torch.set_num_threads(before)
    assert all(np.array_equal(a, b) for a, b in zip(*results, strict=True))


def test_a_row_does_not_depend_on_its_batch():
    """Ten environments side by side get what each would get alone."""
    fast, obs = FastActor(warm(make_actor())), observations(40)
    together = fast(obs)
    assert np.array_equal(together, np.concatenate([fast(obs[i : i + 1]) for i in range(40)]))


def compiled(actor):
    return not isinstance(router.plan_acting(actor), str)


def test_which_actors_act_compiled():
    assert compiled(make_actor())
    for options in ({"coding": "poisson"}, {"coding": "analogue"}):
        assert not compiled(make_actor(encoder_options=options))
    for options in ({"readout": "max-membrane"}, {"readout": "mean-membrane"}, {"intralayer": "intra"}):
        assert not compiled(make_actor(**options))
    assert not compiled(make_actor().double())
    assert not compiled(make_actor("ann", "none"))
    with pure():
        assert not compiled(make_actor())
