"""Every method of the comparison: named fully, trained, saved and loaded; and refused where it does not fit."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from carebn import cli
from carebn.network import IntralayerSpikingLayer, SpikingActor
from carebn.norm import NORMS
from carebn.paper import find_study
from carebn.paper.facts import MUJOCO
from carebn.training import InterruptedRun, Run, TrainConfig
from carebn.training.build import make_agent
from carebn.training.environment import Spaces
from carebn.training.methods import METHODS, all_methods
from carebn.training.policy import load

NAMES = (
    "ann", "ann-care", "vanilla", "pop-san", "mdc-san", "ilc-san", "ann-snn", "bn", "ca", "re", "care-bn", "tdbn",
    "bntt", "tebn", "tab", "proxy-target", "crpi", "pop-san-original", "mdc-san-original", "ilc-san-original",
)  # fmt: skip
GAMES = ("Pong", "Breakout", "SpaceInvaders", "Freeway", "Seaquest")
HOPPER = Spaces(11, np.float32, None, np.full(3, -1, np.float32), np.full(3, 1, np.float32))
BYTES = Spaces(128, np.uint8, 4, None, None)
# what a method leaves to the user would be 1,000 steps and more: too long here
SMALL: dict[str, Any] = {
    "total_timesteps": 60, "learning_starts": 40, "random_steps": 50, "hidden": (8, 8), "batch_size": 8,
    "eval_interval": 1000, "eval_episodes": 2, "checkpoint_interval": 30, "log_interval": 20,
    "recalibration_batches": 2, "quiet": True,
}  # fmt: skip


def small(directory: Path, **options: Any) -> TrainConfig:
    extra = {"update_interval": 5} if "original" in options.get("method", "") else {}
    return TrainConfig(**(SMALL | extra | {"run_dir": directory} | options))


def contents(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name != "timing.jsonl"
    }


def test_all_the_paper_compares_with_is_here() -> None:
    assert set(METHODS) == set(NAMES)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_trains_and_loads(tmp_path: Path, method: str) -> None:
    """A short run on Hopper; what is loaded from the directory acts as the agent that was trained."""
    run = Run(small(tmp_path, method=method, **({"proxy_hidden": (8, 8)} if method == "proxy-target" else {})))
    assert run.train()
    saved = json.loads((tmp_path / "config.json").read_bytes())
    assert saved["method"] == method
    assert "default" not in saved.values()  # named fully
    assert TrainConfig.from_json(saved).checked() == TrainConfig.from_json(saved)
    policy = load(tmp_path)
    obs = np.random.default_rng(0).normal(size=(6, 11)).astype(np.float32)
    np.testing.assert_array_equal(policy.predict(obs)[0], run.agent.act(obs, None))
    for row in obs:
        assert run.env.action_space.contains(policy.predict(row)[0])
    losses = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert any("losses/qf_loss" in row for row in losses)


@pytest.mark.parametrize("algo", ["td3", "ddpg", "sac"])
def test_options_of_the_originals_with_other_methods(tmp_path: Path, algo: Any) -> None:
    """z-scores reach the saved policy whatever learns, on the fast path too."""
    run = Run(small(tmp_path, algo=algo, method="care-bn", observation="zscore", encoder_range=3.0))
    run.train()
    policy = load(tmp_path)
    assert policy.network.encoder.zscore.count == 50
    obs = np.random.default_rng(0).normal(size=(6, 11)).astype(np.float32)
    np.testing.assert_array_equal(policy.predict(obs)[0], run.agent.act(obs, None))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["pop-san-original", "mdc-san-original", "ilc-san-original", "proxy-target"])
def test_an_interruption_changes_nothing(tmp_path: Path, method: str) -> None:
    """Stopped twice, once in the random steps and once while learning: all files as of an undisturbed run."""
    proxy = {"proxy_hidden": (8, 8)} if method == "proxy-target" else {}
    Run(small(tmp_path / "undisturbed", method=method, **proxy)).train()
    for stop in (33, 54):
        run = Run(small(tmp_path / "stopped", method=method, **proxy))
        step = run.env.step

        def counting(action: Any, run: Run = run, step: Any = step, stop: int = stop) -> Any:
            run.stop_asked = run.step == stop
            return step(action)

        run.env.step = counting  # type: ignore[method-assign]
        with pytest.raises(InterruptedRun):
            run.train()
    Run(small(tmp_path / "stopped", method=method, **proxy)).train()
    one, other = contents(tmp_path / "undisturbed"), contents(tmp_path / "stopped")
    assert one.keys() == other.keys()
    assert [name for name in one if one[name] != other[name]] == []


@pytest.mark.parametrize(("method", "neuron"), [("pop-san", "clif"), ("mdc-san", "dn")])
def test_vanilla_is_what_the_paper_calls_by_other_names(tmp_path: Path, method: str, neuron: Any) -> None:
    """Byte for byte, apart from the name."""
    Run(small(tmp_path / "named", method=method)).train()
    Run(small(tmp_path / "vanilla", method="vanilla", neuron=neuron)).train()
    named, vanilla = contents(tmp_path / "named"), contents(tmp_path / "vanilla")
    assert named.keys() == vanilla.keys()
    assert {name for name in named if named[name] != vanilla[name]} == {"config.json", "command.txt", "checksums.json"}
    a, b = (json.loads(files["config.json"]) for files in (named, vanilla))
    assert {key for key in a if a[key] != b[key]} == {"method"}
    returns = {m: {s.neuron: s.returns for s in METHODS[m].scores} for m in (method, "vanilla")}
    assert returns[method][""] == returns["vanilla"][neuron]  # and so in the paper


# --- discrete control -------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("raw", [False, True], ids=["scaled", "raw"])
@pytest.mark.parametrize("method", [m for m, x in METHODS.items() if not x.algorithms and x.conversion is None])
def test_every_normaliser_on_ram(tmp_path: Path, method: str, raw: bool) -> None:
    """Spiking Q-networks with each normaliser and without, ordinary ones too, on bytes scaled or raw."""
    run = Run(small(tmp_path, algo="dqn", env_id="ALE/Pong-v5", method=method, raw_bytes=raw, eval_episodes=1))
    run.open()
    while run.step < 50:  # by hand: the evaluation at the end would play whole games
        run.make_step()
    run.save()
    run.close()
    obs = np.random.default_rng(0).integers(0, 256, (6, 128), dtype=np.uint8)
    np.testing.assert_array_equal(load(tmp_path).predict(obs)[0], run.agent.act(obs, None))
    assert json.loads((tmp_path / "config.json").read_bytes())["raw_bytes"] is raw


def test_the_normalisers_of_discrete_control_are_all_of_them() -> None:
    """Those of the paper; one that is added is a method by itself."""
    assert {x.norm for x in all_methods().values() if not x.algorithms} == set(NORMS)


@pytest.mark.parametrize("game", GAMES)
def test_the_five_games(game: str) -> None:
    run = Run(TrainConfig(env_id=f"ALE/{game}-v5", algo="dqn", hidden=(8,), buffer_size=10, eval_episodes=1))
    assert run.spaces.obs_dim == 128
    assert run.spaces.obs_dtype == np.uint8
    for env in (run.env, *run.eval_envs):
        env.close()


# --- what the presets say ---------------------------------------------------------------------------------------------


def test_the_gains_follow_from_the_returns() -> None:
    """The paper's own formula, APG = mean of return/ANN − 1, over the numbers as typed here."""
    ann = METHODS["ann"].scores[0].returns
    checked = 0
    for method in METHODS.values():
        for score in method.scores:
            if score.returns:
                assert len(score.returns) == len(MUJOCO)
                gain = 100 * (np.mean([a / b for a, b in zip(score.returns, ann, strict=True)]) - 1)
                assert gain == pytest.approx(score.gain, abs=0.02)  # the paper rounds returns to whole numbers
                checked += 1
            assert (score.gain is None) != (not score.text)
    assert checked > 15


def test_originals_as_published() -> None:
    for name in ("pop-san-original", "mdc-san-original", "ilc-san-original"):
        config = TrainConfig(env_id="Ant-v4", method=name).checked()
        assert (config.actor_learning_rate, config.critic_learning_rate, config.batch_size) == (1e-4, 1e-3, 100)
        assert (config.observation, config.encoder_range, config.encoder_reset) == ("zscore", 3.0, "threshold")
        assert config.encoder_std == pytest.approx(0.15**0.5)
        assert (config.random_steps, config.learning_starts, config.update_interval) == (10_000, 1_000, 50)
        assert (config.time_steps, config.tau, config.exploration_noise) == (5, 0.005, 0.1)


@pytest.mark.parametrize(
    ("method", "env_id", "neuron", "coding", "readout", "intralayer"),
    [
        ("pop-san-original", "Ant-v4", "clif", "deterministic", "rate", "none"),
        ("pop-san-original", "Hopper-v4", "clif", "poisson", "rate", "none"),
        ("pop-san-original", "Walker2d-v4", "clif", "poisson", "rate", "none"),
        ("mdc-san-original", "Hopper-v4", "dn", "analogue", "rate", "none"),
        ("ilc-san-original", "Hopper-v4", "clif", "deterministic", "membrane", "intra"),
        ("ilc-san", "Hopper-v4", "clif", "deterministic", "membrane", "intra"),
        ("pop-san", "Hopper-v4", "clif", "deterministic", "membrane", "none"),
    ],
)
def test_coding_and_readout(method: str, env_id: str, neuron: str, coding: str, readout: str, intralayer: str) -> None:
    config = TrainConfig(env_id=env_id, method=method).checked()
    assert (config.neuron, config.coding, config.readout, config.intralayer) == (neuron, coding, readout, intralayer)


def test_the_options_reach_the_network() -> None:
    options: dict[str, Any] = {
        "coding": "analogue", "encoder_reset": "threshold", "encoder_range": 2.0, "encoder_std": 0.3,
        "readout": "rate", "intralayer": "no-self", "surrogate": "triangle", "norm_momentum": 0.2,
    }  # fmt: skip
    agent = make_agent(TrainConfig(hidden=(8,), **options).checked(), HOPPER)
    actor = agent.policy
    assert isinstance(actor, SpikingActor)
    assert actor.encoder.coding == "analogue"
    assert actor.encoder.subtract == 0.999
    assert actor.encoder.mean.min().item() == -2
    assert actor.encoder.std.max().item() == pytest.approx(0.3)
    assert actor.decoder.readout == "rate"
    last = actor.layers[-1]
    assert isinstance(last, IntralayerSpikingLayer)
    assert last.connections.mode == "no-self"
    for layer in actor.layers:
        assert type(layer.neuron.surrogate).__name__ == "Triangle"
        assert layer.norm.momentum == 0.2
    assert actor.layers[0].neuron is not actor.layers[1].neuron


def test_updates_come_in_bursts(tmp_path: Path) -> None:
    """Random until 20, learning from 10, four updates every fourth step: at 12, 16, ..., 32."""
    config = small(
        tmp_path, env_id="Pendulum-v1", total_timesteps=33, learning_starts=10, random_steps=20, update_interval=4
    )
    run = Run(config)
    run.train()
    assert int(run.agent.state_dict()["updates"]) == 4 * 6


def test_conversion_is_named() -> None:
    plain, residual = (TrainConfig(method=m).checked() for m in ("ann-snn", "crpi"))
    assert plain.conversion() == {"rule": "ltb", "time_steps": 100}
    assert residual.conversion() == {"rule": "max", "time_steps": 8, "residual": "crpi", "alpha": 0.3}
    changed = TrainConfig(method="crpi", conversion_steps=100, residual_alpha=0.5).checked().conversion()
    assert changed == {"rule": "max", "time_steps": 100, "residual": "crpi", "alpha": 0.5}
    assert TrainConfig(method="ann").checked().conversion() is None
    assert plain.as_json()["conversion_steps"] == 100


def test_every_cited_score_stands_where_it_is_cited() -> None:
    """Gain and returns in one row of the table that is named."""
    cited = [(name, score) for name, method in METHODS.items() for score in method.scores]
    checked = 0
    for name, score in cited:
        if score.where.startswith("Table "):
            rows = find_study(score.where).rows
            printed = [(row.summary, tuple(int(number.mean) for number in row.published)) for row in rows]
            assert (score.gain, score.returns) in printed, (name, score.where)
            checked += 1
    assert checked >= 18


def test_a_preset_has_the_steps_of_the_score_beside_it() -> None:
    (score,) = METHODS["crpi"].scores
    assert f"T = {METHODS['crpi'].conversion['time_steps']}" in score.text
    assert METHODS["crpi"].differences()["converted"] == "max T = 8 crpi 0.3"


# --- mistakes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"method": "pop-san", "algo": "dqn"}, "td3 and ddpg and sac, not for dqn"),
        ({"method": "ilc-san", "algo": "dqn"}, "--method vanilla is a Q-network"),
        ({"method": "proxy-target", "algo": "sac"}, "method proxy-target is defined for td3 and ddpg, not for sac"),
        ({"method": "pop-san-original", "algo": "ddpg"}, "defined for td3, not for ddpg"),
        ({"method": "proxy-target", "target": "polyak"}, "method proxy-target means --target proxy, got polyak"),
        ({"method": "ann", "target": "proxy"}, "--target proxy stands in for a spiking target"),
        ({"algo": "sac", "target": "proxy"}, "--target does not apply: sac has no target actor"),
        ({"proxy_updates": 2}, "--proxy-updates does not apply: there is no proxy without --target proxy"),
        ({"proxy_hidden": (4,)}, "--proxy-hidden does not apply"),
        ({"target": "proxy", "proxy_hidden": (0,)}, "--proxy-hidden needs one or more sizes above zero"),
        ({"target": "proxy", "proxy_updates": 0}, "--proxy-updates must be at least 1"),
        ({"raw_bytes": True}, "--raw-bytes does not apply: td3 has an actor"),
        ({"method": "ann", "coding": "poisson"}, "--coding does not apply: method ann has no spiking neurons"),
        ({"method": "ann", "time_steps": 8}, "--time-steps does not apply: method ann has no spiking neurons"),
        ({"method": "ann", "surrogate": "tanh"}, "--surrogate does not apply"),
        ({"method": "ann-care", "norm_init": "care"}, "--norm-init does not apply: the norms of an ordinary network"),
        ({"algo": "dqn", "observation": "zscore"}, "--observation does not apply: a Q-network has no population"),
        ({"algo": "dqn", "intralayer": "intra"}, "--intralayer does not apply"),
        ({"algo": "dqn", "readout": "rate"}, "--readout rate is not one of a Q-network: it has membrane, count"),
        ({"readout": "count"}, "--readout count is not one of an actor"),
        ({"readout": "rate", "readout_init": "torch"}, "--readout-init torch does not apply"),
        ({"method": "vanilla", "norm_init": "care"}, "--norm-init does not apply: method vanilla has no normaliser"),
        ({"method": "vanilla", "norm_momentum": 0.2}, "--norm-momentum does not apply"),
        ({"norm_momentum": 0.0}, r"--norm-momentum must lie in \(0, 1\]"),
        ({"encoder_std": 0.0}, "--encoder-std must be above zero"),
        ({"encoder_range": float("inf")}, "--encoder-range must be above zero and within float32"),
        ({"conversion_steps": 8}, "--conversion-steps does not apply: method care-bn is not converted"),
        ({"method": "ann-snn", "conversion_steps": 0}, "--conversion-steps must be at least 1"),
        ({"method": "ann-snn", "residual_alpha": 0.3}, "--residual-alpha does not apply: method ann-snn carries no"),
        ({"method": "crpi", "residual_alpha": 1.5}, r"--residual-alpha must lie in \[0, 1\]"),
        ({"update_interval": 0}, "--update-interval must be at least 1"),
        ({"random_steps": -1}, "--random-steps must be at least 0"),
    ],
)
def test_what_does_not_fit_is_one_sentence(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said) as error:
        TrainConfig(**options).checked()
    assert "\n" not in str(error.value)


def test_raw_bytes_need_bytes() -> None:
    floats = Spaces(4, np.float32, 2, None, None)
    config = TrainConfig(env_id="CartPole-v1", algo="dqn", raw_bytes=True, hidden=(8,)).checked()
    with pytest.raises(
        ValueError, match="--raw-bytes does not apply: CartPole-v1 does not give its observations as bytes"
    ):
        make_agent(config, floats)
    make_agent(config, BYTES)


def test_a_run_of_an_earlier_version_goes_on(tmp_path: Path) -> None:
    """Options that it did not know yet are at their defaults; another value for one of them is another run."""
    config = small(tmp_path, env_id="Pendulum-v1")
    Run(config).train()
    path = tmp_path / "config.json"
    saved = json.loads(path.read_bytes())
    for name in ("coding", "observation", "readout", "target", "norm_momentum", "update_interval"):
        del saved[name]
    path.write_text(json.dumps(saved))
    (tmp_path / "checksums.json").unlink()  # which it did not write either
    assert load(tmp_path).predict(np.zeros(3, np.float32))[0].shape == (1,)
    other = Run(small(tmp_path, env_id="Pendulum-v1", readout="rate"))
    with pytest.raises(ValueError, match="readout is 'membrane' there and 'rate' here"):
        other.train()
    assert Run(config).train() is False


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture
def carebn(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Any:
    for library in ("OMP", "MKL", "OPENBLAS", "NUMBA"):
        monkeypatch.setenv(f"{library}_NUM_THREADS", "1")  # so that what it sets is put back afterwards

    def call(*words: str) -> tuple[Any, str, str]:
        monkeypatch.setattr(sys, "argv", ["carebn", *words])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        return stop.value.code, *capfd.readouterr()

    return call


def test_the_list(carebn: Any) -> None:
    code, out, _ = carebn("methods")
    lines = out.splitlines()
    assert code == 0
    assert [line.split()[0] for line in lines[1 : 1 + len(METHODS)]] == list(METHODS)
    by_name = {line.split()[0]: line for line in lines[1:] if line}
    assert "+4.64 %" in by_name["ilc-san"]
    assert "intralayer intra" in by_name["ilc-san"]
    assert by_name["pop-san-original"].endswith(" options, see carebn methods pop-san-original")
    assert max(map(len, lines)) < 200
    assert "lif -7.08 %, clif -6.66 %, dn +0.37 %" in by_name["vanilla"]


def test_one_of_them(carebn: Any) -> None:
    code, out, _ = carebn("methods", "care-bn")
    assert code == 0
    assert "Table 1" in out
    assert "Hopper-v4 3586" in out
    code, out, err = carebn("methods", "carebn")
    assert (code, out) == (1, "")
    assert "did you mean 'care-bn'" in err
