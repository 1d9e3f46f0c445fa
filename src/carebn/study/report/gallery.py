"""The part of an algorithm's page that shows what our runs of it gave: a picture of each task, and what it shows."""

from carebn.paper.facts import STEPS
from carebn.study.views.results import Results, TaskResult


def render_gallery(results: Results, algo: str, pictures: str, page: str) -> str:
    """``pictures`` and ``page``: where the figures and docs/results.md lie, as the algorithm's page names them."""
    found = [one for one in results.tasks if one.task.algo == algo]
    if not found:
        return f"There are no committed runs of {algo.upper()} yet, so nothing is claimed here."
    blocks = [_picture(one, pictures) for one in found]
    blocks.append(f"Every method, seed and interval, and a verdict for each claim: [what the runs say]({page}).")
    return "\n\n".join(blocks)


def _picture(result: TaskResult, pictures: str) -> str:
    task = result.task
    seeds = {curve.label: len(curve.seeds) for curve in result.curves}
    numbers = sorted(set(seeds.values()))
    if len(numbers) > 1:
        told = ", ".join(f"{number} of {label}" for label, number in seeds.items())
        told = f"seeds: {told}"
    else:
        told = "no complete run yet" if not numbers else f"{numbers[0]} seeds" if numbers[0] > 1 else "one seed"
    share = f"{task.budget.total_timesteps / STEPS:.2g} of the paper's budget"
    return (
        f"![Learning curves: {task.title}]({pictures}/{task.file}.svg)\n\n"
        f"*Mean return of noise-free episodes against environment steps on {task.env_id}, at {share}; {told}.*"
    )
