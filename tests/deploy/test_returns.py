"""When a loss of return by integer weights is believed."""

import pytest

from carebn.deploy.returns import FIRST_SEED, compared
from carebn.training.evaluation import Evaluation


def player(returns_of):
    """Plays by a rule from seed to return; remembers which episodes were asked for."""
    asked = []

    def play(seeds):
        asked.extend(seed - FIRST_SEED for seed in seeds)
        return Evaluation([float(returns_of(seed - FIRST_SEED)) for seed in seeds], [1] * len(seeds))

    return play, asked


def judged(trained, rounded, episodes=10):
    play, asked = player(trained)
    other, _ = player(rounded)
    found = compared(play, other, "int8", episodes)
    assert asked == list(range(episodes))
    return found


def test_what_is_kept_takes_the_episodes_that_were_asked_for():
    found = judged(lambda i: 100, lambda i: 95)
    assert found.kept(0.95)
    assert len(found.trained.returns) == 10
    assert str(found) == (
        "mean return 95.0 ± 0.0 with int8 weights, 100.0 ± 0.0 as trained; both in the same 10 episodes (seeds 2000000 "
        "to 2000009)"
    )


def test_a_loss_is_not_played_on_until_it_looks_like_none():
    """Both fall once in twenty episodes, at different times: in the first ten only one of them does."""
    falls = lambda i: 1000 * (i % 20 != 15), lambda i: 1000 * (i % 20 != 5)
    assert not judged(*falls, episodes=10).kept(0.95)
    assert judged(*falls, episodes=40).kept(0.95)


@pytest.mark.parametrize(
    ("trained", "rounded", "verdict"),
    [
        (100, 94, "keeps 94.0% of its return, and --tolerance 0.95 asks for 95.0%"),
        (-100, -106, "loses 6.0 of its return, and --tolerance 0.95 allows 5.0"),
        (0, -1, "loses 1.0 of its return, and --tolerance 0.95 allows 0.0"),
    ],
)
def test_a_loss_and_what_was_asked_for(trained, rounded, verdict):
    found = judged(lambda i: trained, lambda i: rounded, episodes=3)
    assert not found.kept(0.95)
    assert found.verdict(0.95) == verdict


def test_the_tolerance_is_the_users():
    assert judged(lambda i: 100, lambda i: 60).kept(0.6)
    assert not judged(lambda i: 100, lambda i: 99.9).kept(1.0)
