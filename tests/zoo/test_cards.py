"""A card says what was measured, is what the Hub expects, and changes only if something was measured anew."""

import ast
import json
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
from said import assert_one_sentence

import carebn as package
from carebn.checksums import read_sealed
from carebn.study.evidence.runs import read_run
from carebn.zoo.measuring import interval

EPISODES = 6


@pytest.fixture
def run(runs, carebn) -> Path:
    """One with a card."""
    said = carebn("card", runs / "seed0", "--episodes", EPISODES)
    assert said.code == 0, said.err
    return runs / "seed0"


def front_matter(text: str) -> dict:
    yaml = pytest.importorskip("yaml")
    _, front, _ = text.split("---\n", 2)
    return yaml.safe_load(front)


def test_its_return_is_that_of_evaluate(carebn, run) -> None:
    said = carebn("evaluate", run, "--episodes", EPISODES)
    found = re.search(r"mean return (\S+) ± (\S+) over 6", said.out)
    measured = read_sealed(run / "card.json")["measured"]["return"]
    assert f"{measured['mean']:.1f}" == found[1]
    assert f"{measured['std']:.1f}" == found[2]
    assert f"**Mean return {measured['mean']:.2f}** over 6 noise-free episodes" in (run / "card.md").read_text()


def test_its_energy_is_that_of_carebn_energy(carebn, run) -> None:
    assert carebn("energy", run, "--quiet").code == 0
    energy, cost = json.loads((run / "energy.json").read_text()), read_sealed(run / "card.json")["measured"]["cost"]
    assert cost["decisions"] == energy["decisions"]
    assert {each["prices"] for each in cost["energy"]} == energy["prices_pJ"].keys()
    for each in cost["energy"]:
        for mine, theirs in (("network", "network"), ("ann", "ann_counterpart")):
            assert each[f"{mine}_synapses"] == energy[theirs]["synapses_total"]["nanojoule"][each["prices"]]
            assert each[f"{mine}_all"] == energy[theirs]["total"]["nanojoule"][each["prices"]]
    rates = {each["name"]: each["rate"] for each in cost["populations"]}
    assert list(rates) == ["encoder", "layer 1", "layer 2", "output population"]
    assert rates["layer 1"] == energy["network"]["synapses"][1]["sender_rate"]


def test_it_says_all_that_is_asked_of_a_card(run) -> None:
    text = (run / "card.md").read_text()
    assert (run / "command.txt").read_text() in text
    assert "60 steps" in text
    for heading in ("## Training", "## Seeds", "## Spikes and energy", "## Latency", "## Use"):
        assert text.count(f"\n{heading}\n") == 1
    for seed in (0, 1):
        final = read_run(run.parent / f"seed{seed}").returns[-1]
        assert re.search(rf"^\| {seed}( \(this policy\))? \| {final:.2f} \|.*\| yes \|$", text, re.MULTILINE)
    assert "\n| paper: 12.5 pJ per FLOP" in text
    assert "\n| 45nm: 4.6 pJ per MAC" in text
    assert "median, ms" in text
    assert "1 thread of " in text
    assert f"carebn evaluate {run}\n" in text
    assert f"carebn export {run} --to c" in text
    assert f"`carebn train --run-dir {run} --total-timesteps 120` goes on with it." in text


@pytest.mark.parametrize("place", ["runs/seed0", "my runs/seed0", "runs/../runs/seed0", "seed0"])
def test_its_commands_can_be_copied(carebn, runs, tmp_path, monkeypatch, place) -> None:
    """From where the card was made, by a shell and by Python."""
    monkeypatch.chdir(tmp_path)
    if not Path(place).exists():
        Path(place).parent.mkdir(exist_ok=True)
        shutil.copytree(runs / "seed0", place)
    assert carebn("card", place, "--episodes", 1).code == 0
    text = (Path(place) / "card.md").read_text()
    for line in re.findall(r"^carebn (?:evaluate|watch|export) .*$", text, re.MULTILINE):
        assert shlex.split(line)[2] == place
    program, command, _, directory, *_ = shlex.split(re.search(r"`(carebn train --run-dir .*)` goes on", text)[1])
    assert (program, command, directory) == ("carebn", "train", place)
    [call] = re.findall(r"= carebn\.load\((.*)\)\.predict", text)
    assert package.load(ast.literal_eval(call)).config.total_timesteps == 60
    [evaluate] = re.findall(r"^carebn (evaluate .*)$", text, re.MULTILINE)
    assert carebn(*shlex.split(evaluate), "--episodes", 1).code == 0


def test_an_entry_of_the_zoo_keeps_its_name(carebn, zoo) -> None:
    before = (zoo / "pendulum-care" / "card.md").read_text()
    assert "carebn evaluate pendulum-care\n" in before
    assert carebn("card", zoo / "pendulum-care").code == 0
    assert (zoo / "pendulum-care" / "card.md").read_text() == before


def test_what_the_hub_reads(run) -> None:
    about = front_matter((run / "card.md").read_text())
    measured = read_sealed(run / "card.json")["measured"]["return"]
    assert about["library_name"] == "carebn"
    assert {"InvertedPendulum-v4", "reinforcement-learning", "spiking-neural-network"} <= set(about["tags"])
    [model] = about["model-index"]
    [result] = model["results"]
    assert result["task"]["type"] == "reinforcement-learning"
    assert result["dataset"]["name"] == "InvertedPendulum-v4"
    [metric] = result["metrics"]
    assert metric == {
        "type": "mean_reward", "name": "mean_reward", "verified": False,
        "value": f"{measured['mean']:.2f} +/- {measured['std']:.2f}",
    }  # fmt: skip


def test_the_hub_reads_it(run) -> None:
    hub = pytest.importorskip("huggingface_hub")
    data = hub.ModelCard((run / "card.md").read_text()).data
    assert data.library_name == "carebn"
    [result] = data.eval_results
    assert result.metric_type == "mean_reward"


def test_nothing_changes_unless_it_is_measured_again(carebn, run, contents) -> None:
    before = contents(run)
    assert "as measured before" in carebn("card", run).out
    assert contents(run) == before
    (run / "card.md").unlink()
    carebn("card", run, "--episodes", EPISODES)
    assert contents(run) == before
    assert "as measured before" not in carebn("card", run, "--again").out
    first, second = (json.loads(data) for data in (before["card.json"], contents(run)["card.json"]))
    assert first["measured"]["return"] == second["measured"]["return"]  # of the same episodes
    assert first["measured"]["latency"] != second["measured"]["latency"]
    assert "over 3 episodes\n" in carebn("card", run, "--episodes", 3).out


def test_another_policy_is_measured_anew(carebn, run) -> None:
    before = read_sealed(run / "card.json")
    from conftest import config

    from carebn.training import Run

    Run(config(run, 0, total_timesteps=90)).train()
    assert "as measured before" not in carebn("card", run).out
    after = read_sealed(run / "card.json")
    assert after["policy"] != before["policy"]
    assert "90 steps" in (run / "card.md").read_text()


def test_seeds_of_other_places(carebn, run, tmp_path) -> None:
    (run.parent / "seed1").rename(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "policy.safetensors").unlink()
    for name in ("checkpoint", "replay"):
        shutil.rmtree(tmp_path / "elsewhere" / name)
    carebn("card", run)
    assert "One run is known, that of seed 0." in (run / "card.md").read_text()
    assert "as measured before" in carebn("card", run, "--seeds-from", tmp_path / "elsewhere").out
    text = (run / "card.md").read_text()
    assert "the only one that was kept: it was not chosen" in text
    assert re.search(r"^\| 1 \| .* \| no \|$", text, re.MULTILINE)


def test_an_ordinary_network_and_an_unfinished_run(carebn, runs) -> None:
    assert carebn("card", runs / "ann", "--episodes", 2).code == 0
    text = (runs / "ann" / "card.md").read_text()
    assert "## Activity and energy" in text
    assert "spiking-neural-network" not in text
    assert "ordinary network" not in text


def test_words_of_a_file_are_no_markup(carebn, run) -> None:
    """Whoever made a run has chosen its words."""
    nasty = 'x\n- evil: "yes"\n```\n<script>alert(1)</script> | # `a`'
    (run / "command.txt").write_text(nasty)
    (run / "versions.json").write_text(json.dumps({nasty: nasty}))
    (run / "checksums.json").unlink()
    assert carebn("card", run).code == 0
    text = (run / "card.md").read_text()
    assert "<script" not in text
    assert "\n- evil" not in text
    assert text.count("```") == 6
    front_matter(text)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("nowhere",), "nowhere is not a run directory"),
        (("RUN", "--episodes", 0), "--episodes must be at least 1"),
        (("RUN", "--max-steps", 0), "--max-steps must be at least 1"),
        (("RUN", "--seeds-from", "nowhere"), "nowhere is not a directory"),
    ],
)
def test_mistakes_are_told_in_one_sentence(carebn, runs, words, told) -> None:
    said = carebn("card", *(runs / "seed0" if word == "RUN" else word for word in words))
    assert_one_sentence(said)
    assert told in said.err
    assert not (runs / "seed0" / "card.md").exists()


def test_the_interval_is_that_of_the_mean_of_ten_episodes() -> None:
    rng = np.random.default_rng(1)
    returns = rng.normal(100, 10, 400)
    low, high = interval(list(returns))
    half = 3.891 * returns.std() / np.sqrt(10)
    assert low == pytest.approx(returns.mean() - half, abs=1)
    assert high == pytest.approx(returns.mean() + half, abs=1)
    assert interval([5.0]) == (5.0, 5.0)
    falls = [1000.0] * 99 + [0.0]  # one episode in a hundred
    low, high = interval(falls)
    assert low <= 900
    assert high == 1000


def test_a_card_is_of_the_last_policy(run) -> None:
    assert package.load(run).config.total_timesteps == 60
    assert "This is the policy after the last step" in (run / "card.md").read_text()
