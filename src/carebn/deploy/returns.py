"""Whether a policy with integer weights still does its task: it is played beside the trained one, from the same seeds.

A policy that falls once in twenty episodes loses a tenth of its return in one set of ten and nothing in the next,
whatever its weights. So the episodes are many, and their number is fixed before: whoever plays on after a loss only
gives the worse policy another chance.
"""

from collections.abc import Callable
from dataclasses import dataclass

from carebn.training.evaluation import Evaluation

FIRST_SEED = 2_000_000  # of the episodes; training and evaluation use others
EPISODES = 40

Play = Callable[[range], Evaluation]  # one episode from each of these seeds


@dataclass(frozen=True)
class Returns:
    """What the two policies reached."""

    weights: str
    trained: Evaluation
    rounded: Evaluation

    @property
    def both(self) -> tuple[Evaluation, Evaluation]:
        return self.trained, self.rounded

    def kept(self, share: float) -> bool:
        """Whether that share of the return is left; of a negative return, whether no more than the rest was added."""
        return self.rounded.mean >= self.trained.mean - (1 - share) * abs(self.trained.mean)

    def verdict(self, share: float) -> str:
        """What was measured, and what was asked for; of a negative return there is no share."""
        before, after = self.trained.mean, self.rounded.mean
        if before > 0:
            return f"keeps {after / before:.1%} of its return, and --tolerance {share:g} asks for {share:.1%}"
        lost, allowed = before - after, (1 - share) * abs(before)
        return f"loses {lost:.1f} of its return, and --tolerance {share:g} allows {allowed:.1f}"

    def __str__(self) -> str:
        number = len(self.trained.returns)
        seeds = f"seed {FIRST_SEED}" if number == 1 else f"seeds {FIRST_SEED} to {FIRST_SEED + number - 1}"
        episodes = "the same episode" if number == 1 else f"the same {number} episodes"
        return (
            f"mean return {_spread(self.rounded)} with {self.weights} weights, {_spread(self.trained)} as trained; "
            f"both in {episodes} ({seeds})"
        )


def compared(trained: Play, rounded: Play, weights: str, episodes: int) -> Returns:
    """The returns of both, in the same episodes."""
    seeds = range(FIRST_SEED, FIRST_SEED + episodes)
    return Returns(weights, trained(seeds), rounded(seeds))


def _spread(result: Evaluation) -> str:
    """Mean ± standard deviation over episodes; one episode has none."""
    return f"{result.mean:.1f}" + (f" ± {result.std:.1f}" if len(result.returns) > 1 else "")
