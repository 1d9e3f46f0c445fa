"""The replay buffer: a ring that forgets the oldest, samples what it holds, and can be saved in pieces."""

import numpy as np
import pytest
import torch
from agent_cases import fill, transitions

from carebn.algorithm import Batch, ReplayBuffer


def numbered(count, capacity, start=0, replay=None):
    """Transition i has i in every field."""
    replay = replay or ReplayBuffer(capacity, (2,), np.float32, (1,))
    for i in range(start, start + count):
        replay.add(np.array([i, -i]), [i / 2], 10.0 * i, np.array([i + 1, -i - 1]), i % 3 == 0)
    return replay


@pytest.mark.parametrize("added", [1, 4, 7, 8, 23])
def test_samples_are_all_and_only_what_is_held(added):
    replay = numbered(added, 7)
    held = list(range(max(0, added - 7), added))
    assert len(replay) == len(held)
    assert replay.added == added
    batch = replay.sample(400, np.random.default_rng(0))
    assert sorted(set(batch.obs[:, 0].int().tolist())) == held
    assert sorted(set(replay.sample_obs(400, np.random.default_rng(0))[:, 0].int().tolist())) == held


def test_the_fields_of_a_sample_belong_together():
    batch = numbered(23, 7).sample(64, np.random.default_rng(1))
    assert isinstance(batch, Batch)
    i = batch.obs[:, 0]
    assert torch.equal(batch.obs, torch.stack([i, -i], 1))
    assert torch.equal(batch.action, i[:, None] / 2)
    assert torch.equal(batch.reward, 10 * i)
    assert torch.equal(batch.next_obs, torch.stack([i + 1, -i - 1], 1))
    assert torch.equal(batch.terminated, (i % 3 == 0).float())


def test_sampling_is_uniform():
    """8000 draws of 8 transitions: each within five standard deviations of 1000."""
    obs = numbered(13, 8).sample(8000, np.random.default_rng(2)).obs[:, 0].int().numpy()
    counts = np.bincount(obs - 5, minlength=8)
    assert np.abs(counts - 1000).max() < 5 * np.sqrt(8000 / 8 * 7 / 8)


def test_samples_come_from_the_generator_and_are_copies():
    replay = numbered(7, 7)
    first, second = (replay.sample(16, np.random.default_rng(3)) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert not torch.equal(first.obs, replay.sample(16, np.random.default_rng(4)).obs)
    first.obs.zero_()
    assert replay.arrays["obs"][:, 0].tolist() == list(range(7))


def test_bytes_stay_bytes():
    replay = fill(ReplayBuffer(50, (6,), np.uint8, ()), transitions("dqn"))
    batch = replay.sample(9, np.random.default_rng(0))
    assert (batch.obs.dtype, batch.next_obs.dtype) == (torch.uint8, torch.uint8)
    assert replay.sample_obs(9, np.random.default_rng(0)).dtype == torch.uint8
    assert batch.action.dtype == torch.int64
    assert batch.action.shape == (9,)
    assert (batch.reward.dtype, batch.terminated.dtype) == (torch.float32, torch.float32)
    assert np.array_equal(replay.rows(0, 40)["obs"], transitions("dqn")[0])


def test_numbers_are_single_precision():
    batch = numbered(5, 7).sample(4, np.random.default_rng(0))
    assert {x.dtype for x in batch} == {torch.float32}
    assert batch.action.shape == (4, 1)


def test_memory_of_a_million_ant_transitions():
    """27 observations twice, 8 actions, a reward and a flag: 253 MB."""
    replay = ReplayBuffer(10**6, (27,), np.float32, (8,))
    size = sum(array.nbytes for array in replay.arrays.values())
    assert size == 10**6 * (4 * (27 + 27 + 8 + 1) + 1)
    assert size <= 260e6


@pytest.mark.parametrize(("start", "stop"), [(0, 5), (2, 2), (0, 0)])
def test_rows_before_the_ring_is_full(start, stop):
    rows = numbered(5, 7).rows(start, stop)
    assert rows["obs"][:, 0].tolist() == list(range(start, stop))
    assert rows["reward"].tolist() == [10.0 * i for i in range(start, stop)]


@pytest.mark.parametrize(("start", "stop"), [(16, 23), (16, 21), (20, 22), (21, 23), (23, 23)])
def test_rows_and_restore_across_the_wrap(start, stop):
    """What was saved goes back to where it was."""
    replay = numbered(23, 7)
    rows = replay.rows(start, stop)
    assert rows["obs"][:, 0].tolist() == list(range(start, stop))
    other = ReplayBuffer(7, (2,), np.float32, (1,))
    other.restore(start, rows)
    assert other.added == stop
    again = other.rows(start, stop)
    for name, array in rows.items():
        assert again[name].dtype == array.dtype
        assert np.array_equal(again[name], array)


def test_restored_in_pieces_it_is_the_same_buffer():
    """And it goes on in the same place."""
    replay, other = numbered(23, 7), ReplayBuffer(7, (2,), np.float32, (1,))
    for start, stop in ((16, 18), (18, 18), (18, 22), (22, 23)):
        other.restore(start, replay.rows(start, stop))
    numbered(3, 7, start=23, replay=replay)
    numbered(3, 7, start=23, replay=other)
    assert (other.added, len(other)) == (26, 7)
    for name, array in replay.arrays.items():
        assert np.array_equal(array, other.arrays[name])
    batches = [x.sample(32, np.random.default_rng(5)) for x in (replay, other)]
    assert all(torch.equal(a, b) for a, b in zip(*batches, strict=True))


def test_rows_are_copies():
    replay = numbered(5, 7)
    rows = replay.rows(0, 5)
    numbered(7, 7, start=5, replay=replay)
    assert rows["obs"][:, 0].tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(("start", "stop"), [(15, 20), (16, 24), (20, 19)])
def test_rows_that_are_not_held_are_refused(start, stop):
    with pytest.raises(ValueError, match="not all held"):
        numbered(23, 7).rows(start, stop)


def test_negative_rows_are_refused():
    with pytest.raises(ValueError, match="not all held"):
        numbered(5, 7).rows(-1, 3)


@pytest.mark.parametrize("capacity", [0, -3])
def test_no_room_is_refused(capacity):
    with pytest.raises(ValueError, match="at least one"):
        ReplayBuffer(capacity, (2,), np.float32, (1,))


@pytest.mark.parametrize(
    "other", [((3,), np.float32, (1,)), ((2,), np.float64, (1,)), ((2,), np.float32, (2,)), ((2,), np.float32, ())]
)
def test_transitions_of_another_environment_are_refused(other):
    """Shape or type differ: nothing is put in."""
    rows = numbered(5, 7).rows(0, 5)
    replay = ReplayBuffer(7, *other)
    with pytest.raises(ValueError, match="do not fit"):
        replay.restore(0, rows)
    assert len(replay) == 0


def test_an_empty_buffer_cannot_be_sampled():
    with pytest.raises(ValueError):  # noqa: PT011  # numpy's own words
        ReplayBuffer(7, (2,), np.float32, (1,)).sample(2, np.random.default_rng(0))
