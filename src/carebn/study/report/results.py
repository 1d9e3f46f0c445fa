"""docs/results.md in words: every claim with its verdict, every curve, every seed, and what is missing."""

from collections.abc import Sequence
from dataclasses import replace
from html import escape

from carebn.paper.facts import STEPS
from carebn.study.claims import FEWEST_SEEDS, NOT_SUPPORTED, OPEN, RULE, SUPPORTED, Statistic
from carebn.study.evidence.statistics import Estimate
from carebn.study.numbers import MISSING, per_cent, spelled
from carebn.study.plan import LABELS
from carebn.study.report.markdown import grid, safe
from carebn.study.views.results import SEED_SCORES, Results, SeedRow, TaskResult
from carebn.study.views.verdicts import Against, Judged, OnTask, Sample

FEW = "too few seeds"
TELLS = 3  # seeds from which on an interval is told
SCORE_NAMES = {"max": "maximum", "final": "final return", "area": "area under the curve"}
HEADLINE = ("care-bn", "bn", "pop-san", "vanilla", "ann")  # in one sentence; the others are in the tables
BESIDE: dict[Statistic, str] = {
    "improvement": "probability of improvement",
    "spread": "how much less ours varies, in points",
    "ratio": "ours / theirs",
}


def render_results(results: Results, pictures: str) -> str:
    """``pictures``: where the figures and the page lie, as the text names it."""
    blocks = [
        "# What the runs say",
        "*Made by `carebn study results` from the files of runs alone. Here that is `make results` and `results/`: "
        "whatever is added there changes this page.*",
        _summary(results),
        _problems(results),
        "## The rule",
        RULE.strip(),
        "## The claims of the paper",
        _verdicts(results),
        *(block for number, judged in enumerate(results.judged, 1) for block in _claim(number, judged)),
        *_cost(results),
        "## Learning curves and every seed",
        *(block for task in results.tasks for block in _task(task, pictures)),
        "## What is missing",
        *_missing(results),
        *_others(results),
        "## What the full budget would take",
        *_full(results),
        "## Again",
        "`make results` writes this page, its figures and [the report page](" + pictures + "/page.html), which has the "
        "paper's tables and figures beside ours, curves against time, and the command of every run. It is "
        "`carebn study results results --out docs/results.md --readme README.md --algorithms docs/algorithms`. A test "
        "makes all of it again from the committed files and compares the bytes.",
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def render_headline(results: Results, pictures: str, page: str) -> str:
    """The part of the README: a picture that takes half of a line, a number, and the verdicts in a sentence."""
    best = results.headline
    blocks = []
    if best is not None:
        picture, alt = f"{pictures}/{best.task.file}.svg", f"Learning curves: {best.task.title}"
        blocks.append(f'<a href="{escape(page)}"><img src="{escape(picture)}" width="48%" alt="{escape(alt)}"></a>')
        share = f"{100 * best.task.budget.total_timesteps / STEPS:.2g} % of the paper's budget"
        blocks.append(
            f"Final return on {best.task.env_id} after {best.task.budget} ({share}), interquartile mean over seeds "
            f"with its 95 % interval: {_told_returns(best)}. {_tally(results)}"
        )
    else:
        blocks.append(f"There is no complete run of the plan yet. {_tally(results)}")
    blocks[-1] += f" [Every claim, every seed, every curve]({page})."
    return "\n\n".join(blocks)


# --- the top ----------------------------------------------------------------------------------------------------------


def _summary(results: Results) -> str:
    best = results.headline
    return _tally(results) if best is None else f"{_tally(results)} {_final_returns(best)}"


def _tally(results: Results) -> str:
    tally, number = results.tally(), len(results.judged)
    return (
        f"Of {number} claims of the paper, {_are(tally[SUPPORTED])} supported by our runs, "
        f"{_are(tally[NOT_SUPPORTED])} not, and {_are(tally[OPEN])} open at these budgets."
    )


def _are(number: int) -> str:
    return "1 is" if number == 1 else f"{number} are"


def _final_returns(result: TaskResult) -> str:
    """The honest number: of the final policy, not of the best on the way."""
    share = f"{result.task.budget.total_timesteps / STEPS:.2g} of the paper's budget"
    return (
        f"On {result.task.env_id} after {result.task.budget} ({share}), the final return is, as interquartile mean "
        f"over seeds with its 95 % interval (from {TELLS} seeds on): {_told_returns(result)}. The return of a run is "
        f"the mean of ten episodes; over hundreds some of these policies fall, as the cards of the zoo tell."
    )


def _told_returns(result: TaskResult) -> str:
    samples = {sample.name: (sample.iqm, len(sample.by_seed)) for sample in result.samples["final"]}
    return "; ".join(
        f"{LABELS[name]} {_estimate(*samples[name])}, {_seeds(samples[name][1])}"
        for name in HEADLINE
        if name in samples
    )


def _problems(results: Results) -> str:
    told = [*results.runs.problems, *results.runs.gaps(), *results.measured.problems]
    return "\n".join(f"- {safe(problem)}" for problem in told)


def _verdicts(results: Results) -> str:
    rows = [
        [f"{number}", judged.claim.says, judged.claim.where, f"**{judged.verdict}**", _decided_by(judged)]
        for number, judged in enumerate(results.judged, 1)
    ]
    return grid(["", "claim", "in the paper", "verdict", "decided by"], rows, left=5)


def _decided_by(judged: Judged) -> str:
    parts = []
    for against in judged.against[judged.claim.quantities[0]]:
        if against.estimate is not None:
            tasks = ", ".join(_short(one) for one in against.counted)
            told = _statistic(judged.claim.statistic, against.estimate, True)
            parts.append(f"{told} against {LABELS[against.theirs]} on {tasks}")
    deciding = judged.against[judged.claim.quantities[0]]
    measured = any(one.begun for one in deciding) or not deciding[0].quantity.lacking
    return "; ".join(parts) or ("too few runs" if measured else "not measured")


def _short(one: OnTask) -> str:
    return one.task.env_id.removeprefix("ALE/").partition("-v")[0]


# --- a claim ----------------------------------------------------------------------------------------------------------


def _claim(number: int, judged: Judged) -> list[str]:
    claim = judged.claim
    blocks = [f"### {number}. {claim.says}", f"**{judged.verdict.capitalize()}.** {_plainly(judged)}{_by_task(judged)}"]
    if len(set(judged.verdicts.values())) > 1:
        told = [f"by {_measure(judged, name)}: {each}" for name, each in judged.verdicts.items()]
        blocks[-1] += f" The scores disagree: {'; '.join(told)}."
    rows = [
        row
        for name in claim.quantities
        for against in judged.against[name]
        for row in _rows(judged, SCORE_NAMES.get(name, against.quantity.title), against)
    ]
    if rows:
        other = LABELS[claim.theirs[0]] if len(claim.theirs) == 1 else "the other"
        heads = ["task", "what", LABELS[claim.ours], other, "difference", BESIDE[claim.statistic], "verdict"]
        blocks.append(grid(heads, rows, left=2))
    deciding = judged.against[claim.quantities[0]]
    without = [one.task.title for one in deciding[0].tasks if not any(one.task == there.task for against in deciding
                                                                      for there in against.begun)]  # fmt: skip
    if without:
        blocks.append(f"Planned, and nothing to compare yet: {safe('; '.join(without))}.")
    return blocks


def _measure(judged: Judged, name: str) -> str:
    title = judged.against[name][0].quantity.title
    return f"the {SCORE_NAMES[name]}" if name in SCORE_NAMES else title.removeprefix("... ")


def _plainly(judged: Judged) -> str:
    """Why the verdict is what it is, in a sentence."""
    claim = judged.claim
    deciding = judged.against[claim.quantities[0]]
    if judged.verdict == SUPPORTED:
        return f"The paper says the same ({claim.where}).{_sizes(judged)}"
    if judged.verdict == NOT_SUPPORTED:
        names = " and ".join(LABELS[one.theirs] for one in deciding if one.verdict == NOT_SUPPORTED)
        against = f"at this budget it is the other way round beside {names}"
        return f"This contradicts the paper ({claim.where}): {against}.{_sizes(judged)}"
    if all(one.estimate is not None for one in deciding):
        return "There are seeds enough, and they do not tell: the interval has room for either."
    begun = [one for against in deciding for one in against.begun]
    if not begun:
        return _sentence(deciding[0].quantity.lacking or "no task has a run of both sides yet")
    counts = "; ".join(
        f"{len(one.ours.by_seed)} of {LABELS[one.ours.name]} and {len(one.theirs.by_seed)} of "
        f"{LABELS[one.theirs.name]} on {_short(one)}"
        for one in begun
        if not one.counts
    )
    return f"It takes {FEWEST_SEEDS} seeds of either side; there are {counts}."


def _sizes(judged: Judged) -> str:
    """By how much: a difference that is sure may be too small to matter."""
    if judged.claim.statistic != "improvement":
        return ""
    found = [
        (one, against.theirs, 100 * one.difference.value / one.theirs.iqm.value)
        for against in judged.against[judged.claim.quantities[0]]
        for one in against.counted
        if one.difference is not None and one.theirs.iqm is not None and one.theirs.iqm.value > 0
    ]
    if not found:
        return ""
    told = ", ".join(f"{per_cent(size)} beside {LABELS[theirs]} on {_short(one)}" for one, theirs, size in found)
    small = " None is as much as 1 %." if all(abs(size) < 1 for *_, size in found) else ""
    return f" Interquartile means differ by {told}.{small}"


def _by_task(judged: Judged) -> str:
    """Where a task by itself says something else than all together."""
    deciding = judged.against[judged.claim.quantities[0]]
    apart = [
        f"{one.verdict} on {_short(one)}" + (f" beside {LABELS[against.theirs]}" if len(deciding) > 1 else "")
        for against in deciding
        for one in against.counted
        if one.verdict not in (judged.verdict, OPEN)
    ]
    return f" Task by task: {', '.join(apart)}." if apart else ""


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _rows(judged: Judged, what: str, against: Against) -> list[list[str]]:
    statistic = judged.claim.statistic
    beside = f"{LABELS[against.theirs]}: " if len(judged.claim.theirs) > 1 else ""
    rows = []
    for one in against.begun:
        told = _statistic(statistic, one.estimate, one.counts)
        mark = one.verdict if one.counts else FEW
        samples = [_sample(one.ours, statistic), beside + _sample(one.theirs, statistic)]
        rows.append([one.task.title, what, *samples, _difference(one, statistic), told, mark])
    if len(against.counted) > 1:
        over = f"**{len(against.counted)} tasks together**"
        rows.append([over, what, "", beside, "", _statistic(statistic, against.estimate, True), against.verdict])
    return rows


def _sample(sample: Sample, statistic: Statistic) -> str:
    number = len(sample.by_seed)
    if statistic == "spread":
        return f"{spelled(sample.spread, 2)} %, n {number}" if sample.spread is not None else f"{MISSING}, n {number}"
    return f"{_estimate(sample.iqm, number)}, n {number}"


def _difference(one: OnTask, statistic: Statistic) -> str:
    """Of the interquartile means; also in per cent of theirs, where that is above zero."""
    if statistic == "spread" or one.difference is None or one.theirs.iqm is None:
        return MISSING
    told = _signed(one.difference.value)
    base = one.theirs.iqm.value
    return f"{told} ({per_cent(100 * one.difference.value / base)})" if base > 0 else told


def _signed(value: float) -> str:
    text = spelled(abs(value))
    return text if float(text) == 0 else f"{'−' if value < 0 else '+'}{text}"


def _statistic(statistic: Statistic, estimate: Estimate | None, with_interval: bool) -> str:
    if estimate is None:
        return MISSING
    value, low, high = (spelled(x, 2).replace("-", "−") for x in estimate)
    return f"{value} ({low} … {high})" if with_interval else value


def _estimate(estimate: Estimate | None, seeds: int) -> str:
    if estimate is None:
        return MISSING
    value = spelled(estimate.value)
    return value if seeds < TELLS else f"{value} ({spelled(estimate.low)} … {spelled(estimate.high)})"


def _seeds(number: int) -> str:
    return "1 seed" if number == 1 else f"{number} seeds"


# --- cost, curves, seeds ----------------------------------------------------------------------------------------------


def _cost(results: Results) -> list[str]:
    """Measured side by side, if it was; it has no seeds, so it decides nothing."""
    costs = results.measured.costs
    if costs is None:
        return []
    rows = [
        [method, spelled(seconds, 1), spelled(mebibytes, 0)]
        for (method, _), (seconds, mebibytes) in costs.by_method.items()
    ]
    told = f"Side by side on one machine, `carebn measure cost` on {safe(costs.env_id)}, {costs.steps} steps of each:"
    return [told, grid(["method", "seconds per 5000 steps", "memory (MiB)"], rows)]


def _task(result: TaskResult, pictures: str) -> list[str]:
    task = result.task
    rows = [
        [LABELS[samples[0].name], f"{len(samples[0].by_seed)} of {task.seeds}"]
        + [_estimate(sample.iqm, len(sample.by_seed)) for sample in samples]
        for samples in zip(*result.samples.values(), strict=True)
    ]
    heads = ["method", "seeds", *(f"{SCORE_NAMES[name]}, IQM (95 %)" for name in SEED_SCORES)]
    return [
        f"### {task.title}",
        f"![{task.title}]({pictures}/{task.file}.svg)",
        grid(heads, rows),
        _fold(f"Every seed: {task.title}", _seed_table(result.seeds)),
    ]


def _seed_table(rows: Sequence[SeedRow]) -> str:
    heads = ["method", "seed", *(SCORE_NAMES[name] for name in SEED_SCORES), "hours", "run"]
    lines = []
    for row in rows:
        run = row.run
        scores = [spelled(score) for score in row.scores]
        if not scores:
            newest = spelled(run.returns[-1] if run.returns else None)
            scores = [MISSING, f"{newest} after {run.step:,} of {run.total:,} steps", MISSING]
        hours = spelled(run.seconds / 3600, 2) if run.seconds else MISSING
        lines.append([row.label, f"{run.seed}", *scores, hours, row.place])
    return grid(heads, lines)


def _fold(title: str, text: str) -> str:
    return f"<details><summary>{safe(title)}</summary>\n\n{text}\n\n</details>"


# --- what is not there ------------------------------------------------------------------------------------------------


def _missing(results: Results) -> list[str]:
    found = results.inventory.found
    planned, lacking = sum(one.task.seeds for one in found), [one for one in found if one.missing]
    if not lacking:
        return [f"Nothing: all {planned} planned runs are there."]
    rows = []
    for task in dict.fromkeys(one.task for one in lacking):
        each = results.inventory.of(task)
        complete = sum(task.seeds - one.missing for one in each)
        begun = [f"{LABELS[one.name]} seed {run.seed} ({run.step / run.total:.0%})" for one in each
                 for run in one.unfinished]  # fmt: skip
        missing = ", ".join(f"{one.missing} of {LABELS[one.name]}" for one in each if one.missing)
        rows.append([task.title, f"{task.seeds * len(each)}", f"{complete}", missing, ", ".join(begun)])
    commands = "\n".join(one.task.command(one.name) for one in lacking)
    few = [task.title for task in dict.fromkeys(one.task for one in found) if task.seeds < FEWEST_SEEDS]
    undecided = f"Of {'; '.join(few)} fewer than {FEWEST_SEEDS} seeds are planned: by the rule they decide nothing."
    return [
        f"{planned - sum(one.missing for one in found)} of {planned} planned runs are complete. Missing are:",
        grid(["task", "planned", "complete", "missing", "of these begun"], rows),
        *([undecided] if few else []),
        _fold("Commands that make them (SEED counts from 0; add --run-dir to say where)", f"```sh\n{commands}\n```"),
    ]


def _others(results: Results) -> list[str]:
    """At other budgets or of other methods."""
    if not results.others:
        return []
    named = [replace(row, label=f"{row.label}, {row.run.env_id}, {row.run.total:,} steps") for row in results.others]
    number = len(results.others)
    told = f"{number} run{'s' * (number != 1)} besides the plan (another budget or method), which decide nothing"
    return [_fold(told, _seed_table(named))]


def _full(results: Results) -> list[str]:
    rows = [
        [
            budget.task.title.rpartition(", ")[0],
            f"{budget.runs}",
            MISSING if budget.hours is None else f"{budget.hours:,.0f}{' (guessed from other runs)' * budget.guessed}",
        ]
        for budget in results.budgets
    ]
    notes = []
    if any(budget.guessed for budget in results.budgets):
        notes.append(
            "Hours of tasks without runs are guessed: a method is taken to be as fast as it was with the same "
            "algorithm on other tasks, or else as other networks of its kind were. A larger robot may take longer."
        )
    if any(budget.hours is None for budget in results.budgets):
        notes.append(f"{MISSING}: there is no run yet to tell the speed.")
    return [
        f"Hours of one core for the methods above with five seeds and the paper's {STEPS:,} steps, at the median "
        "speed (`timing.jsonl`) of the runs here, which shared their machine with other work:",
        grid(["task", "runs", "hours"], rows),
        "\n\n".join(notes),
        "`carebn study run main --scale 1` makes all of the paper's Table 1, `carebn study run main --scale 1 --envs "
        "Hopper --seeds 5` one task of it; `--dry-run` says how long that takes on the machine at hand.",
    ]
