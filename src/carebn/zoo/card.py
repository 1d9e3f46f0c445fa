"""The card of a policy, for people and for the Hugging Face Hub: Markdown, with what the Hub reads in YAML at its top.

A function of the run's files and of ``card.json``; every number in it was measured, and the text says in how many
episodes and on which machine.
"""

import json
from pathlib import Path
from shlex import quote
from typing import Any

from carebn.study.cells import Budget
from carebn.study.evidence.runs import RunRecord, read_run
from carebn.study.numbers import spelled
from carebn.training.checkpoint import unfinished
from carebn.training.config import TrainConfig
from carebn.training.kept import kept_step
from carebn.training.methods import find_method
from carebn.training.policy import read_config, read_conversion
from carebn.training.worlds import Trust, modules_of
from carebn.zoo.record import Record

NAME = "card.md"


def card(run_dir: Path, record: Record, name: str, repository: str = "", trust: Trust = False) -> str:
    """``name``: by which whoever reads it opens it, a path or a name of the zoo; ``repository``: of the Hub, if it is
    to be fetched from there."""
    config, run = read_config(run_dir, trust), read_run(run_dir)
    parts = [
        _front_matter(config, record),
        _introduction(run_dir, config, record, trust),
        _training(config, run),
        _seeds(config, record),
        _cost(record),
        _latency(record),
        _use(run_dir, config, name, repository),
    ]
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


# --- words ------------------------------------------------------------------------------------------------------------


def _word(text: object) -> str:
    """Of a file that anybody may have written: it stays one line, and no markup."""
    return " ".join(str(text).replace("`", "'").replace("|", "/").replace("<", "(").replace(">", ")").split())


def _yaml(text: object) -> str:
    """A text of JSON is one of YAML."""
    return json.dumps(_word(text), ensure_ascii=False)


def _score(value: float) -> str:
    """A digit more than tables have: intervals here may be narrow."""
    return spelled(value, 2)


def _nanojoule(value: float) -> str:
    return f"{value:,.2f}" if value >= 0.095 or value == 0 else f"{value:.2g}"  # something is never told as nothing


def _table(headings: list[str], rows: list[list[str]]) -> list[str]:
    rule = ["---", *["---:"] * (len(headings) - 1)]
    return [f"| {' | '.join(row)} |" for row in (headings, rule, *rows)]


# --- parts ------------------------------------------------------------------------------------------------------------


def _title(config: TrainConfig) -> str:
    neuron = "" if config.neuron in ("none", "default") else f", {_word(config.neuron)} neurons"
    return f"{config.algo.upper()}, {_word(config.method)}{neuron}, on {_word(config.env_id)}"


def _front_matter(config: TrainConfig, record: Record) -> list[str]:
    """The fields of the Hub, its agents' names for them included: ``mean_reward`` is what it compares them by."""
    measured = record["measured"]["return"]
    spiking = ["spiking-neural-network"] if find_method(config.method).spiking else []
    tags = [config.env_id, "reinforcement-learning", "deep-reinforcement-learning", *spiking, config.algo]
    return [
        "---",
        "library_name: carebn",
        "pipeline_tag: reinforcement-learning",
        "tags:",
        *(f"- {_yaml(tag)}" for tag in tags),
        "model-index:",
        f"- name: {_yaml(f'{config.algo} {config.method}')}",
        "  results:",
        "  - task:",
        "      type: reinforcement-learning",
        "      name: reinforcement-learning",
        "    dataset:",
        f"      name: {_yaml(config.env_id)}",
        f"      type: {_yaml(config.env_id)}",
        "    metrics:",
        "    - type: mean_reward",
        f"      value: {_score(measured['mean'])} +/- {_score(measured['std'])}",
        "      name: mean_reward",
        "      verified: false",
        "---",
    ]


def _introduction(run_dir: Path, config: TrainConfig, record: Record, trust: Trust) -> list[str]:
    measured = record["measured"]["return"]
    episodes, few = measured["episodes"], measured["mean_of"]
    lines = [
        f"# {_title(config)}",
        "",
        f"**Mean return {_score(measured['mean'])}** over {episodes} noise-free "
        f"{'episode' if episodes == 1 else 'episodes'} (seeds from {measured['first_seed']}; standard deviation "
        f"{_score(measured['std'])}, mean length {measured['mean_length']:.0f} steps).",
    ]
    if few > 1:
        lines += [
            f"{100 * measured['confidence']:g} % interval of the mean of {few} episodes: "
            f"**{_score(measured['low'])} to {_score(measured['high'])}**.",
        ]
    if measured["cut"]:
        lines.append(f"{measured['cut']} of the episodes were cut, because they had no end.")
    conversion = read_conversion(run_dir, trust)
    if conversion is not None:
        lines += ["", f"Converted from a trained ANN to {int(conversion['time_steps'])} time steps."]
    elif unfinished(run_dir, config) is not None:
        lines += ["", "**The training of this policy is not finished, or how far it came is not known.**"]
    return lines


def _training(config: TrainConfig, run: RunRecord) -> list[str]:
    scale = Budget.of(run.config).scale()
    part = "" if scale is None else f", {scale:g} times the budget of the paper"
    versions = ", ".join(f"{_word(name)} {_word(version)}" for name, version in run.versions.items())
    return [
        "## Training",
        "",
        "```",
        _word(run.command or config.command()),
        "```",
        "",
        f"{config.total_timesteps:,} steps{part}. This is the policy after the last step, not the best on the way.",
        *([f"Versions: {versions}."] if versions else []),
    ]


def _seeds(config: TrainConfig, record: Record) -> list[str]:
    seeds = record["seeds"]
    if not seeds:
        return ["## Seeds", "", f"Seed {config.seed}; no finished run is known of this configuration."]
    kept = [each for each in seeds if each["policy"]]
    best = max(kept, key=lambda each: float(each["final"]), default=None)
    if len(seeds) == 1:
        choice = f"One run is known, that of seed {config.seed}."
    elif best is not None and best["seed"] == config.seed and len(kept) > 1:
        choice = f"This policy is that of seed {config.seed}: of those that were kept, the best by its *final* return."
    elif len(kept) > 1:
        choice = f"This policy is that of seed {config.seed}, which is not the best by its final return."
    else:
        choice = f"This policy is that of seed {config.seed}, the only one that was kept: it was not chosen."
    rows = [
        [
            f"{each['seed']}{' (this policy)' if each['seed'] == config.seed else ''}",
            *(_score(each["final"]), _score(each["best"]), "yes" if each["policy"] else "no"),
        ]
        for each in seeds
    ]
    return [
        "## Seeds",
        "",
        f"{choice} Means of {config.eval_episodes} episodes during training; the best of many evaluations flatters.",
        "",
        *_table(["seed", "final return", "best return", "policy kept"], rows),
    ]


def _cost(record: Record) -> list[str]:
    cost = record["measured"]["cost"]
    spiking = any(each["spiking"] for each in cost["populations"])
    what = "firing rate (neurons and steps with a spike)" if spiking else "active (values other than zero)"
    lines = [
        "## Spikes and energy" if spiking else "## Activity and energy",
        "",
        f"Means of {cost['decisions']:,} decisions in {cost['episodes']} episodes, counted as `carebn energy` does.",
        "",
        *_table(
            ["population", what],
            [
                [
                    f"{_word(each['name'])}{'' if each['spiking'] or not spiking else ', analogue'}",
                    f"{each['rate']:.1%}",
                ]
                for each in cost["populations"]
            ],
        ),
        "",
    ]
    if "not_priced" in cost:
        return [*lines, f"Energy was not counted: {_word(cost['not_priced'])}."]
    columns = {"network_synapses": "synapses", "network_all": "all"}
    if spiking:
        columns |= {"ann_synapses": "ordinary network, synapses", "ann_all": "ordinary network, all"}
    if any("quantised_all" in each for each in cost["energy"]):
        columns |= {"quantised_all": "ordinary network quantised, all"}
    rows = [
        [
            f"{_word(each['prices'])}: {_word(each['source'])}",
            *(_nanojoule(each[column]) if column in each else "–" for column in columns),
        ]
        for each in cost["energy"]
    ]
    return [*lines, *_table(["nJ per decision, at these prices", *columns.values()], rows)]


def _latency(record: Record) -> list[str]:
    latency = record["measured"]["latency"]
    machine = latency["machine"]
    rows = [["`carebn.load(...).predict`", *_milliseconds(latency["policy"])]]
    if "deployed" in latency:
        rows.append(["exported, in `carebn.deploy`", *_milliseconds(latency["deployed"])])
    threads = "1 thread" if machine["threads"] == 1 else f"{machine['threads']} threads"
    lines = [
        "## Latency",
        "",
        f"One action, {latency['calls']:,} calls, {threads} of {_word(machine['processor'])} ({machine['cores']} "
        f"cores, {_word(machine['system'])}, Python {_word(machine['python'])}, torch {_word(machine['torch'])}); "
        f"other programs may have run beside it.",
        "",
        *_table(["", "median, ms", "fastest, ms"], rows),
    ]
    if "not_deployed" in latency:
        lines += ["", f"It cannot be exported: {_word(latency['not_deployed'])}."]
    return lines


def _milliseconds(spent: dict[str, Any]) -> list[str]:
    return [f"{spent['median']:.3f}", f"{spent['fastest']:.3f}"]


def _use(run_dir: Path, config: TrainConfig, name: str, repository: str) -> list[str]:
    modules = " ".join(map(_word, modules_of(config)))
    needs = f" --import {modules}" if modules else ""
    word = quote(name)
    fetch = [f"hf download {repository} --local-dir {word}"] if repository else []
    lines = [
        "## Use",
        "",
        "```",
        *fetch,
        f"carebn evaluate {word}{needs}",
        f"carebn watch {word} --out film.mp4{needs}",
        f"carebn export {word} --to c --out policy.c      # also onnx, nir, numpy",
        "```",
        "",
        "```python",
        f"action, _ = carebn.load({json.dumps(name, ensure_ascii=False)}).predict(observation)",
        "```",
        "",
    ]
    if kept_step(run_dir) is not None or read_conversion(run_dir) is not None:
        return [
            *lines,
            "It was kept without checkpoints and replay, so it cannot go on; the command above trains it again.",
        ]
    more = 2 * config.total_timesteps
    return [*lines, f"`carebn train --run-dir {word} --total-timesteps {more}{needs}` goes on with it."]
