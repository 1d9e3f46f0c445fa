"""carebn energy, spikes and watch of a converted policy."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from carebn.measure.spikes import decide
from carebn.training.converted_run import convert_run, save_converted
from carebn.training.environment import make_env
from carebn.training.policy import load

pytestmark = pytest.mark.slow


@pytest.fixture(params=["none", "crpi"])
def converted(request: pytest.FixtureRequest, trained, tmp_path: Path) -> Path:
    from carebn.conversion import Conversion

    options = {"residual": "crpi", "alpha": 0.8} if request.param == "crpi" else {}
    save_converted(*convert_run(trained("ann"), Conversion(rule="max", time_steps=6, **options)), tmp_path / "out")
    return tmp_path / "out"


def test_energy(carebn, converted: Path) -> None:
    """The count is that of the policy's own episodes: played here by ``predict``, one by one, with its state."""
    said = carebn("energy", converted, "--episodes", 2, "--out", "here", "--quiet")
    assert said.code == 0, said.err
    data = json.loads(Path("here/energy.json").read_bytes())
    assert data["time_steps"] == 6
    assert "converted to 6 steps" in data["run"]
    policy, returns, decisions, spikes = load(converted), [], 0, 0.0
    for seed in (1_000_000, 1_000_001):
        env = make_env("Hopper-v4")
        (obs, _), state, over, score = env.reset(seed=seed), None, False, 0.0
        while not over:
            spikes += decide(policy, obs[None], state).populations[1].values.sum()
            action, state = policy.predict(obs[None], state)
            obs, reward, terminated, truncated, _ = env.step(action[0])
            score, over, decisions = score + float(reward), terminated or truncated, decisions + 1
        returns.append(score)
    assert data["decisions"] == decisions
    assert data["mean_return"] == pytest.approx(np.mean(returns))
    first = data["network"]["synapses"][1]
    assert first["sender_spikes"] == pytest.approx(spikes / decisions)
    assert first["synaptic"] == pytest.approx(12 * spikes / decisions)
    assert data["network"]["synapses"][0]["multiplications"] == 11 * 16
    assert data["ann_counterpart"]["synapses_total"]["multiplications"] == 11 * 16 + 16 * 12 + 12 * 3
    carried = [item["name"] for item in data["network"]["overhead"]][4:]
    assert carried == (["carried potentials"] if policy.stateful else [])


def test_spikes(carebn, converted: Path) -> None:
    said = carebn("spikes", converted, "--decision", 3)
    assert said.code == 0, said.err
    assert "layer 1: 16 neurons, 6 steps" in said.out
    policy, env = load(converted), make_env("Hopper-v4")
    (obs, _), state = env.reset(seed=1_000_000), None
    for _ in range(3):
        third = decide(policy, obs[None], state)
        action, state = policy.predict(obs[None], state)
        np.testing.assert_array_equal(action, third.action)
        obs = env.step(action[0])[0]
    assert f"{third.populations[1].rate:.1%} firing" in said.out
    assert third.populations[1].values.max() > 1
    with Image.open("raster.png") as picture:
        assert min(picture.size) > 500


@pytest.mark.usefixtures("mujoco_draws")
def test_watch(carebn, converted: Path) -> None:
    said = carebn("watch", converted, "--out", "film.gif", "--seconds", 0.3, "--quiet")
    assert said.code == 0, said.err
    with Image.open("film.gif") as film:
        film.seek(1)
        assert np.asarray(film.convert("RGB")).std() > 5
