"""What the paper claims, as comparisons that runs can decide, and the one rule by which they do.

The rule stands here and nowhere else: ``verdict`` is its code, ``RULE`` its words.
"""

from dataclasses import dataclass
from typing import Literal

from carebn.study.evidence.statistics import REPETITIONS, Estimate

Verdict = Literal["supported", "not supported", "open at this budget"]
SUPPORTED: Verdict = "supported"
NOT_SUPPORTED: Verdict = "not supported"
OPEN: Verdict = "open at this budget"

FEWEST_SEEDS = 5  # of either side: five against five without an overlap is chance in 2 of 252 cases
DEARER = 1.05  # times as long: no more counts as no cost

# How two samples are compared: by which statistic, and which value of it lies between the two sides.
Statistic = Literal["improvement", "spread", "ratio"]
BETWEEN: dict[Statistic, float] = {"improvement": 0.5, "spread": 0.0, "ratio": DEARER}


def verdict(estimate: Estimate | None, statistic: Statistic) -> Verdict:
    """By the 95 % interval over the tasks that count; ``None``: no task counts."""
    if estimate is None:
        return OPEN
    low, high, between = estimate.low, estimate.high, BETWEEN[statistic]
    if statistic == "ratio":  # less is better
        low, high, between = -high, -low, -between
    if low > between:
        return SUPPORTED
    return NOT_SUPPORTED if high < between else OPEN


def verdict_against_all(verdicts: list[Verdict]) -> Verdict:
    """Of a claim against several others: against each, or not."""
    if NOT_SUPPORTED in verdicts:
        return NOT_SUPPORTED
    return SUPPORTED if verdicts and all(each == SUPPORTED for each in verdicts) else OPEN


RULE = f"""\
The rule was written down, and coded, before the runs were compared; all but the line about cost, which was by the \
wall clock at first. It was changed when runs of one method were seen to take four times as long beside other work.

- **Which runs count.** A task counts for a claim if both sides have at least {FEWEST_SEEDS} complete runs of it, a \
seed each, at the planned budget. Tasks with fewer are shown and decide nothing.
- **Returns, exploration, distances, energy**: the probability that a run of the one side is better than a run of the \
other on the same task (a tie is half a win), averaged over the tasks that count, with a 95 % stratified bootstrap \
interval ({REPETITIONS:,} samples). *Supported*: the interval lies wholly above ½. *Not supported*: wholly below ½. \
*Open at this budget*: all else, and whenever no task counts.
- **Variance**: the standard deviation of the final return over seeds, in per cent of its mean; theirs less ours, with \
the same kind of interval, wholly above or below 0.
- **Cost**: the interquartile mean of the processor time per step, ours divided by theirs; no cost is less than \
{DEARER:g}. The wall clock decides nothing.
- **Against several others** a claim is supported if it is against each of them, and not supported as soon as it is \
not against one.
- **Which score.** The verdict is by the paper's own, the maximum over evaluations of the mean return. It flatters the \
noisy, so the final return and the area under the curve have a verdict of their own beside it.
- **What it does not do.** It does not correct for the number of claims, and intervals from so few seeds are a little \
too short. A verdict is about these tasks at these budgets, not about the paper's.
"""


@dataclass(frozen=True)
class Claim:
    """``ours`` beats ``theirs``, by names of the plan, in every task of the plan that has both."""

    name: str
    says: str
    where: str  # in the paper, and what it prints
    ours: str
    theirs: tuple[str, ...]
    algo: str
    quantities: tuple[str, ...]  # names in QUANTITIES; the first decides
    statistic: Statistic = "improvement"


_RETURNS = ("max", "final", "area")
_DISTANCES = ("distance", "distance-1", "distance-2", "distance-3", "distance-recalibrated")

CLAIMS = (
    Claim("without-td3", "CaRe-BN earns more than the same spiking network without a normaliser (TD3)",
          "Table 14: +15.2 % over five tasks", "care-bn", ("pop-san",), "td3", _RETURNS),
    Claim("without-ddpg", "CaRe-BN earns more than the same spiking network without a normaliser (DDPG)",
          "Table 11: +22.6 % over four tasks, +67 % on Walker2d", "care-bn", ("pop-san",), "ddpg", _RETURNS),
    Claim("without-dqn", "CaRe-BN earns more than the same spiking network without a normaliser (Atari, DQN)",
          "Figure 7", "care-bn", ("vanilla",), "dqn", _RETURNS),
    Claim("plain-bn", "CaRe-BN earns more than plain batch normalisation", "Figure 6 c", "care-bn", ("bn",), "td3",
          _RETURNS),
    Claim("ann", "CaRe-BN earns more than the ordinary network (ANN)", "Table 1: +5.9 % over five tasks", "care-bn",
          ("ann",), "td3", _RETURNS),
    Claim("variance", "Returns vary less over seeds than without a normaliser", "Figure 6 ab", "care-bn", ("pop-san",),
          "td3", ("final",), "spread"),
    Claim("variance-ann", "Returns vary even less than the ordinary network's", "Figure 6 ab: 21.24 % for the ANN",
          "care-bn", ("ann",), "td3", ("final",), "spread"),
    Claim("exploration", "While exploring, CaRe-BN earns more than plain batch normalisation", "Figure 4", "care-bn",
          ("bn",), "td3", ("exploration",)),
    Claim("precision", "Moving statistics are closer to the truth than those of plain batch normalisation",
          "Figure 3: in all layers", "care-bn", ("bn",), "td3", _DISTANCES),
    Claim("momentum", "Moving statistics are closer to the truth than a moving average's at any momentum",
          "Figure 1 and its text: low momentum lags, high momentum is noisy", "care-bn", ("bn@0.01", "bn", "bn@0.5"),
          "td3", _DISTANCES[:1]),
    Claim("both-parts", "Both parts are needed: the whole earns more than either alone", "Figure 6 c", "care-bn",
          ("ca", "re"), "td3", _RETURNS),
    Claim("cost", "It costs nothing: a step takes no longer than with plain batch normalisation",
          "Table 20: 247 s per 5000 steps, others 242 to 266 s", "care-bn", ("bn",), "td3",
          ("processor-seconds",), "ratio"),
    Claim("energy", "A decision costs less energy than the ordinary network's", "Table 21: 16.48 against 1775.36 nJ",
          "care-bn", ("ann",), "td3", ("energy", "whole-energy")),
)  # fmt: skip
