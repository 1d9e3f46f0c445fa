"""Every policy of the zoo does what its card says, as it is and exported."""

from pathlib import Path

import numpy as np
import pytest

import carebn as package
from carebn.algorithm import find_algorithm
from carebn.checksums import Vouched
from carebn.deploy.c_export import compiler
from carebn.deploy.export import FORMATS
from carebn.training.evaluation import evaluate
from carebn.zoo.card import card
from carebn.zoo.entry import LARGEST, size_of
from carebn.zoo.record import read_record

ZOO = Path(__file__).parents[2] / "zoo"
NAMES = sorted(path.name for path in ZOO.iterdir() if path.is_dir())
FIRST, EPISODES = 1_000_000, 10  # as carebn evaluate plays


@pytest.mark.parametrize("name", NAMES)
def test_its_files_are_small_and_those_that_were_written(name: str) -> None:
    entry = ZOO / name
    assert size_of(entry) <= LARGEST
    vouched = Vouched(entry)
    assert vouched
    vouched.check("config.json", "command.txt", "versions.json")
    vouched.log("metrics.jsonl")
    record = read_record(entry)
    assert record is not None
    assert (entry / "card.md").read_text() == card(entry, record, name)
    seeds = {each["seed"]: each for each in record["seeds"]}
    own = seeds[package.load(entry).config.seed]
    assert own["final"] == max(each["final"] for each in seeds.values() if each["policy"])


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("form", ["as it is", "c", "onnx"])
def test_it_plays_as_its_card_says(carebn, name: str, form: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.delenv("CAREBN_ZOO", raising=False)
    record = read_record(ZOO / name)
    assert record is not None
    told = record["measured"]["return"]
    if form == "as it is":
        said = carebn("evaluate", name)
        assert said.code == 0, said.err
        mean = float(said.out.split("mean return ")[1].split()[0])
        assert round(told["low"], 1) <= mean <= round(told["high"], 1)
        return
    if form == "c" and compiler() is None:
        pytest.skip("there is no C compiler on this machine")
    if form == "onnx":
        pytest.importorskip("onnxruntime")
    file = tmp_path / f"policy.{form}"
    said = carebn("export", name, "--to", form, "--out", file)
    assert said.code == 0, said.err
    policy, exported = package.load(ZOO / name), FORMATS[form].open(file)
    discrete = find_algorithm(policy.config.algo).discrete

    def act(obs: np.ndarray) -> np.ndarray:
        values = exported.values(obs.astype(policy.obs_dtype))
        return values.argmax(-1) if discrete else values.astype(np.float32)

    envs = [policy.make_env() for _ in range(EPISODES)]
    result = evaluate(act, envs, range(FIRST, FIRST + EPISODES), policy.config.env_id, policy.config.eval_max_steps)
    for env in envs:
        env.close()
    assert told["low"] <= result.mean <= told["high"]
