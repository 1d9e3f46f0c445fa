"""``carebn zoo`` lists what there is, and adds the best of several seeds by its final return."""

import json
import re
import shutil

import pytest
from said import assert_one_sentence

from carebn.study.evidence.runs import read_run
from carebn.training import Run

NAME = "pendulum-care"


def test_it_lists_them(carebn, zoo) -> None:
    said = carebn("zoo")
    assert said.code == 0
    heading, *rows = [line for line in said.out.splitlines() if line][:3]
    assert heading.split() == ["name", "environment", "method", "steps", "return", "ten", "episodes", "kB"]
    assert [row.split()[0] for row in rows] == ["pendulum-ann", NAME]
    measured = json.loads((zoo / NAME / "card.json").read_text())["measured"]["return"]
    span = f"{measured['low']:.1f} to {measured['high']:.1f}"
    assert re.search(rf"^{NAME} +InvertedPendulum-v4 +td3 care-bn +60 +{measured['mean']:.1f} +{span} +\d+$", rows[1])


def test_the_best_by_final_return_is_taken(carebn, zoo, runs) -> None:
    finals = {seed: read_run(runs / f"seed{seed}").returns[-1] for seed in (0, 1)}
    assert len(set(finals.values())) == 2
    best = max(finals, key=finals.__getitem__)
    for order in ((0, 1), (1, 0)):
        said = carebn(
            "zoo", "add", *(runs / f"seed{seed}" for seed in order), "--name", "new", "--episodes", 2, "--replace"
        )
        assert said.code == 0, said.err
        assert f"seed{best}, seed {best}, final return {finals[best]:.1f}, of 2 given" in said.out
    text = (zoo / "new" / "card.md").read_text()
    assert f"seed {best}: of those that were kept, the best by its *final* return" in text
    assert "It was kept without checkpoints and replay, so it cannot go on" in text
    for seed in finals:
        assert re.search(rf"^\| {seed}.* \| {finals[seed]:.2f} \|.*\| yes \|$", text, re.MULTILINE)


def test_the_same_again_changes_nothing(carebn, zoo, runs, contents) -> None:
    before = contents(zoo)
    words = ("zoo", "add", runs / "seed0", runs / "seed1", "--name", NAME, "--episodes", 12)
    said = carebn(*words)
    assert_one_sentence(said)
    assert f"{NAME} is in the zoo already" in said.err
    assert carebn(*words, "--replace").code == 0
    assert contents(zoo) == before
    assert carebn("card", NAME).code == 0
    assert contents(zoo) == before


def test_seeds_whose_policies_are_gone_are_told(carebn, zoo, runs, tmp_path) -> None:
    shutil.copytree(runs / "seed1", tmp_path / "results" / "seed1")
    shutil.rmtree(runs / "seed1")
    for name in ("checkpoint", "replay"):
        shutil.rmtree(tmp_path / "results" / "seed1" / name)
    (tmp_path / "results" / "seed1" / "policy.safetensors").unlink()
    said = carebn(
        *("zoo", "add", runs / "seed0", "--name", "new", "--episodes", 2, "--seeds-from", tmp_path / "results")
    )
    assert said.code == 0, said.err
    text = (zoo / "new" / "card.md").read_text()
    assert "seed 0, the only one that was kept: it was not chosen" in text
    assert re.search(r"^\| 1 \| .* \| no \|$", text, re.MULTILINE)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("add",), "needs finished runs and a name"),
        (("add", "seed0"), "needs finished runs and a name"),
        (("add", "seed0", "--name", "../x"), "'../x' is no name for the zoo"),
        (("add", "seed0", "--name", "New"), "'New' is no name for the zoo"),
        (("add", "seed0", "--name", "a" * 65), "is no name for the zoo"),
        (("add", "seed0", "ann", "--name", "new"), "differ in more than their seed"),
        (("add", "nowhere", "--name", "new"), "is not a run directory"),
        (("add", "half", "--name", "new"), "is unfinished: step 40 of 60; only finished runs are kept"),
        (("add", "seed0", "--name", "new", "--episodes", 0), "--episodes must be at least 1"),
        (("list", "seed0"), "takes no runs"),
    ],
)
def test_mistakes_are_told_in_one_sentence(carebn, zoo, runs, words, told, contents) -> None:
    if "half" in words:
        from conftest import config

        run = Run(config(runs / "half"))
        run.open()
        while run.step < 40:
            run.make_step()
        run.save()
        run.close()
    before = contents(zoo)
    known = ("seed0", "ann", "nowhere", "half")
    said = carebn("zoo", *(runs / str(word) if word in known else word for word in words))
    assert_one_sentence(said)
    assert told in said.err
    assert contents(zoo) == before


def test_without_a_zoo_it_is_said_where_one_is(carebn, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("CAREBN_ZOO", str(tmp_path / "none"))
    said = carebn("zoo")
    assert_one_sentence(said)
    assert f"there is no zoo here: CAREBN_ZOO names {tmp_path / 'none'}, which is not a directory" in said.err
    assert "of a clone" not in said.err


def test_one_that_cannot_be_read_costs_a_sentence(carebn, zoo) -> None:
    (zoo / NAME / "card.json").write_text("{")
    said = carebn("zoo")
    assert said.code == 0
    assert "pendulum-ann" in said.out
    assert f"{NAME} is left out" in said.err


def test_it_is_refused_if_it_is_too_large(carebn, zoo, runs, monkeypatch) -> None:
    monkeypatch.setattr("carebn.zoo.entry.LARGEST", 1000)
    said = carebn("zoo", "add", runs / "seed0", "--name", "new", "--episodes", 1)
    assert_one_sentence(said)
    assert "one of the zoo has at most 1,000" in said.err
    assert not (zoo / "new").exists()
    assert not list(zoo.glob(".*"))
