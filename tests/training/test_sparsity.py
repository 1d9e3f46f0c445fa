"""--spike-penalty and --target-rate: refused in a sentence, part of the run where given, and else not there at all."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_resume import contents

from carebn.training import Run, TrainConfig
from carebn.training.progress import ProgressDisplay
from carebn.training.sparsity import firing

SMALL: dict[str, Any] = {
    "hidden": (8, 7), "batch_size": 8, "learning_starts": 20, "log_interval": 10, "eval_interval": 30,
    "eval_episodes": 1, "recalibration_batches": 2, "checkpoint_interval": 25, "quiet": True,
}  # fmt: skip
WORLDS = {"td3": "Pendulum-v1", "ddpg": "Pendulum-v1", "sac": "Pendulum-v1", "dqn": "CartPole-v1"}


def config(algo: str = "td3", **options: Any) -> TrainConfig:
    return TrainConfig(env_id=WORLDS[algo], algo=algo, **SMALL | options)


def logged(directory: Path) -> dict[str, float]:
    rows = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    return [row for row in rows if any(name.startswith("losses/") for name in row)][-1]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"spike_penalty": (-1.0,)}, "--spike-penalty must be finite and not negative, got -1.0"),
        ({"spike_penalty": (float("nan"),)}, "--spike-penalty must be finite"),
        ({"spike_penalty": (float("inf"),)}, "--spike-penalty must be finite"),
        ({"target_rate": (0.0,)}, "--target-rate must lie above 0"),
        ({"target_rate": (1.5,)}, "--target-rate must lie above 0"),
        ({"target_rate": (0.1,), "spike_penalty": (1.0,)}, "exclude each other"),
        ({"target_rate": (0.1, 0.1)}, "one for each of encoder, layer_1, layer_2, output_population, got 2 of them"),
        ({"spike_penalty": (1.0,) * 4, "coding": "analogue"}, "one for each of layer_1, layer_2, output_population,"),
        ({"spike_penalty": (1.0,), "method": "ann"}, "--spike-penalty does not apply: method ann has no spiking"),
        ({"target_rate": (0.1,), "method": "ann"}, "--target-rate does not apply: method ann has no spiking"),
        ({"target_rate": (0.1,) * 4, "algo": "dqn"}, "one for each of layer_1, layer_2, got 4 of them"),
    ],
)  # fmt: skip
def test_mistakes(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said.replace("(", r"\(")):
        config(**options).checked()


def test_an_algorithm_that_does_not_know_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from carebn.algorithm import ALGORITHMS

    monkeypatch.setitem(ALGORITHMS, "mine", replace(ALGORITHMS["td3"], spike_penalty=False))
    with pytest.raises(ValueError, match="--target-rate does not apply: mine does not say that its update adds"):
        TrainConfig(algo="mine", target_rate=(0.1,)).checked()


def test_where_it_is_not_given_it_is_nowhere() -> None:
    plain, asked = config().checked(), config(target_rate=(0.1,)).checked()
    assert not {"spike_penalty", "target_rate"} & plain.as_json().keys()
    assert asked.as_json()["target_rate"] == [0.1]
    assert TrainConfig.from_json(json.loads(json.dumps(asked.as_json()))).checked().as_json() == asked.as_json()
    assert plain.name() != asked.name()
    assert "--target-rate 0.1" in asked.command()
    assert "--spike-penalty 1.0 0.0 2.0 3.0" in config(spike_penalty=(1.0, 0.0, 2.0, 3.0)).checked().command()


@pytest.mark.parametrize("algo", WORLDS)
def test_rates_are_logged_where_asked_for_and_only_there(algo: str, tmp_path: Path) -> None:
    rates = {f"spikes/{name}" for name in ("encoder", "layer_1", "layer_2", "output_population")}
    if algo == "dqn":
        rates = {"spikes/layer_1", "spikes/layer_2"}
    seen = {}
    for name, options in (("plain", {}), ("zero", {"spike_penalty": (0.0,)}), ("target", {"target_rate": (0.1,)})):
        Run(config(algo, total_timesteps=40, run_dir=tmp_path / name, **options)).train()
        seen[name] = {key: value for key, value in logged(tmp_path / name).items() if key.startswith("spike")}
    assert not seen["plain"]
    assert seen["zero"].keys() == rates
    assert seen["target"].keys() == rates | {"spike_penalty/layer_1", "spike_penalty/layer_2"}
    assert all(0 < value < 1 for name, value in seen["zero"].items())
    policies = [(tmp_path / name / "policy.safetensors").read_bytes() for name in ("plain", "zero", "target")]
    assert policies[0] == policies[1] != policies[2]


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [{"algo": "td3"}, {"algo": "dqn"}, {"algo": "sac", "neuron": "dn"}, {"algo": "ddpg", "target": "proxy"},
     {"method": "pop-san-original", "coding": "poisson", "update_interval": 5}],
    ids=str,
)  # fmt: skip
def test_a_run_that_goes_on_ends_byte_identical(options: dict[str, Any], tmp_path: Path) -> None:
    """The price is part of the checkpoint."""
    options = {"algo": "td3", **options, "target_rate": (0.1,)}
    for steps in (40, 65):
        Run(config(**options, total_timesteps=steps, run_dir=tmp_path / "grown")).train()
    Run(config(**options, total_timesteps=65, run_dir=tmp_path / "whole")).train()
    grown, whole = contents(tmp_path / "grown"), contents(tmp_path / "whole")
    assert grown.keys() == whole.keys()
    assert [name for name in whole if whole[name] != grown[name]] == []


def test_people_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    told = firing({"losses/actor_loss": 1.0, "spikes/encoder": 0.181, "spikes/layer_1": 0.05})
    assert told == "encoder 18.1%, layer 1 5.0%"
    display = ProgressDisplay(100, 0, quiet=False)
    display.evaluated(10, 5.0, 1.0, told)
    display.evaluated(20, 6.0, 1.0)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "step 10: return 5.0 ± 1.0, best 5.0; firing: encoder 18.1%, layer 1 5.0%",
        "step 20: return 6.0 ± 1.0, best 6.0",
    ]
