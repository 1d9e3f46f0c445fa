"""Converted runs: what they keep of the ANN, directories that open like any other policy, and mistakes."""

import json
import shutil
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import safetensors.numpy
import torch
from said import assert_one_sentence

import carebn as package
from carebn.checksums import sealed, without_seal
from carebn.conversion import Conversion, ConvertedActor, ConvertedQNetwork
from carebn.training import Run, TrainConfig
from carebn.training.converted_run import convert_run, replay_observations, save_converted
from carebn.training.environment import make_env
from carebn.training.evaluation import Evaluation, play
from carebn.training.policy import load, read_config, read_conversion

TINY: dict[str, Any] = {
    "env_id": "Pendulum-v1",
    "method": "ann",
    "total_timesteps": 60,
    "learning_starts": 35,
    "hidden": (8, 8),
    "batch_size": 8,
    "eval_interval": 1000,
    "eval_episodes": 1,
    "checkpoint_interval": 20,
    "recalibration_batches": 2,
    "quiet": True,
}
QUICK: dict[str, Any] = {
    "env_id": "PointMass-v0",
    "import_modules": ("quick_tasks",),
    "method": "ann",
    "total_timesteps": 2500,
    "learning_starts": 500,
    "hidden": (64, 64),
    "batch_size": 64,
    "eval_interval": 2500,
    "eval_episodes": 1,
    "checkpoint_interval": 2500,
    "actor_learning_rate": 1e-3,
    "critic_learning_rate": 1e-3,
    "tau": 0.005,
    "quiet": True,
}

QUICK_TASKS = str(Path(__file__).parents[1] / "training")  # where they lie
UNTRAINED = -90.0  # about what an actor scores there that has learned nothing; a good one scores −1


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("runs") / "original"
    Run(TrainConfig(run_dir=directory, **TINY)).train()
    return directory


@pytest.fixture
def finished(tmp_path: Path, original: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "run"))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An ANN that brings a point mass to rest; how well one run learns hangs on rounding, so there is a second try."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(QUICK_TASKS)
        for seed in range(3):
            directory = tmp_path_factory.mktemp("runs") / "trained"
            Run(TrainConfig(run_dir=directory, seed=seed, **QUICK)).train()
            if score(directory).mean > 0.1 * UNTRAINED:
                return directory
    raise AssertionError("it does not learn")


def converted(run: Path, out: Path, **options: Any) -> Path:
    options = {"iterations": 20} | options if options.get("rule") != "max" else options
    save_converted(*convert_run(run, Conversion(**options)), out)
    return out


def score(directory: Path) -> Evaluation:
    policy = load(directory)
    envs = [make_env(policy.config.env_id, policy.config.import_modules) for _ in range(10)]
    return play(policy.predict, envs, range(10), policy.config.env_id)


# --- what is kept -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [{"rule": "ltb", "iterations": 1000}, {"rule": "max"}, {"rule": "max", "residual": "crpi", "alpha": 0.3}]
)
def test_a_trained_policy_keeps_its_return(
    trained: Path, tmp_path: Path, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No more than 2 % may be lost of what was learned: of the return above an untrained actor's."""
    monkeypatch.syspath_prepend(QUICK_TASKS)
    ann = score(trained).mean
    at_100 = score(converted(trained, tmp_path / "t100", time_steps=100, **options)).mean
    assert ann - at_100 < 0.02 * (ann - UNTRAINED)
    at_1 = score(converted(trained, tmp_path / "t1", time_steps=1, **options)).mean
    assert at_1 < at_100  # one step cannot do: the test would notice if T were ignored


@pytest.mark.slow
def test_the_return_against_time_steps(trained: Path, tmp_path: Path, carebn: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(QUICK_TASKS)
        said = carebn("convert", str(trained), "--out", "out", "--sweep", "20", "1", "5", "--episodes", "3", "--trust")
    assert (said.code, said.err) == (0, "")
    table = [line.split() for line in said.out.splitlines() if line.strip()[:3].strip() in ("1", "5", "20", "ANN")]
    assert [row[0] for row in table] == ["1", "5", "20", "ANN"]
    assert "steps left out" in said.out
    numbers = json.loads((tmp_path / "out" / "time_steps.json").read_bytes())
    assert [row["time_steps"] for row in numbers["converted"]] == [1, 5, 20]
    assert [len(row["returns"]) for row in numbers["converted"]] == [3, 3, 3]
    for row, shown in zip((*numbers["converted"], numbers["ann"]), table, strict=True):
        assert f"{row['mean_return']:.1f}" in shown
        assert row["mean_return"] == pytest.approx(np.mean(row["returns"]))
    assert (tmp_path / "out" / "time_steps.png").read_bytes().startswith(b"\x89PNG")
    assert read_conversion(tmp_path / "out")["time_steps"] == 100  # the sweep does not change what is written


def test_a_run_without_its_spaces_asks_its_environment(tmp_path: Path, carebn: Any) -> None:
    """As runs of earlier versions: the ANN beside the converted policy may import what the user allowed, too."""
    run = tmp_path / "run"
    Run(TrainConfig(run_dir=run, **TINY | {"env_id": "PointMass-v0", "import_modules": ("quick_tasks",)})).train()
    (run / "spaces.json").unlink()
    said = carebn("convert", "run", "--iterations", "5", "--sweep", "2", "--episodes", "1", "--trust")
    assert (said.code, said.err) == (0, "")
    assert "time_steps.png" in said.out


# --- a policy like any other ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("algo", "env_id", "method"),
    [
        ("td3", "Pendulum-v1", "ann-care"),
        ("sac", "Pendulum-v1", "ann"),
        ("dqn", "CartPole-v1", "ann"),
        ("dqn", "CartPole-v1", "ann-care"),
    ],
)
def test_every_ann_converts_and_opens_again(tmp_path: Path, algo: str, env_id: str, method: str) -> None:
    Run(TrainConfig(run_dir=tmp_path / "run", **TINY | {"algo": algo, "env_id": env_id, "method": method})).train()
    policy, record = convert_run(tmp_path / "run", Conversion(time_steps=200, iterations=200))
    save_converted(policy, record, tmp_path / "out")
    again, ann = package.load(tmp_path / "out"), load(tmp_path / "run")
    assert isinstance(again.network, ConvertedQNetwork if algo == "dqn" else ConvertedActor)
    assert again.network.simulation == policy.network.simulation
    obs = replay_observations(tmp_path / "run")
    assert len(obs) == record["observations"] == 60
    np.testing.assert_array_equal(again.predict(obs)[0], policy.predict(obs)[0])
    tensor = torch.from_numpy(obs)
    assert (again.network(tensor) - ann.network(tensor)).abs().mean() < 0.03 * ann.network(tensor).abs().mean() + 0.01
    single, state = again.predict(obs[0])
    assert state is None
    np.testing.assert_allclose(single, again.predict(obs)[0][0], rtol=1e-6)


def test_the_command_writes_what_evaluate_reads(finished: Path, carebn: Any) -> None:
    said = carebn("convert", str(finished), "--time-steps", "20", "--residual", "crpi", "--alpha", "0.5")
    assert (said.code, said.err) == (0, "")
    out = finished / "converted-ltb-T20-crpi0.5"
    assert f"next: carebn evaluate {out}" in said.out
    said = carebn("evaluate", str(out), "--episodes", "2")
    assert (said.code, said.err) == (0, "")
    assert "mean return" in said.out
    files = {p.name: p.read_bytes() for p in out.iterdir()}
    assert sorted(files) == ["checksums.json", "config.json", "policy.safetensors", "spaces.json"]
    record = read_conversion(out)
    assert (record["rule"], record["residual"], record["alpha"], record["read_out_from"]) == ("ltb", "crpi", 0.5, 0)
    assert read_config(out) == read_config(finished)
    said = carebn("convert", str(finished), "--time-steps", "20", "--residual", "crpi", "--alpha", "0.5")
    assert said.code == 0  # the same again
    assert files == {p.name: p.read_bytes() for p in out.iterdir()}


def test_a_run_does_not_train_into_a_converted_policy(finished: Path, tmp_path: Path) -> None:
    out = converted(finished, tmp_path / "out")
    with pytest.raises(ValueError, match="holds a converted policy, not a run"):
        Run(TrainConfig(run_dir=out, **TINY)).train()


def test_converting_leaves_the_run_complete(finished: Path) -> None:
    converted(finished, finished / "converted")
    assert not Run(TrainConfig(run_dir=finished, **TINY)).train()
    assert load(finished / "converted").predict(np.zeros(3, np.float32))[0].shape == (1,)


# --- residual potentials between decisions ----------------------------------------------------------------------------


def test_state_goes_from_decision_to_decision_and_starts_anew(finished: Path, tmp_path: Path) -> None:
    policy = load(converted(finished, tmp_path / "out", residual="crpi", alpha=1.0, time_steps=5))
    assert policy.stateful
    obs = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    fresh, state = policy.predict(obs)
    assert state is not None
    assert state.shape == (4, 16)
    later, after = policy.predict(obs, state)
    assert not np.array_equal(later, fresh)
    np.testing.assert_array_equal(policy.predict(obs)[0], fresh)  # nothing is remembered inside
    starts = np.array([False, True, False, True])
    mixed, kept = policy.predict(obs, state, episode_start=starts)
    np.testing.assert_array_equal(mixed, np.where(starts[:, None], fresh, later))
    np.testing.assert_array_equal(kept, np.where(starts[:, None], state, after))
    np.testing.assert_array_equal(policy.predict(obs, state, episode_start=True)[0], fresh)
    one, row = policy.predict(obs[2], state[2:3])
    np.testing.assert_allclose(one, later[2], rtol=1e-6)
    np.testing.assert_array_equal(row, after[2:3])
    with pytest.raises(ValueError, match="carried potentials"):
        policy.predict(obs, state[:3])


def test_a_policy_without_residuals_has_no_state(finished: Path, tmp_path: Path) -> None:
    for directory in (finished, converted(finished, tmp_path / "out")):
        policy = load(directory)
        assert not policy.stateful
        assert policy.predict(np.zeros((2, 3), np.float32), episode_start=np.ones(2, bool))[1] is None


@pytest.mark.slow
def test_parallel_episodes_do_not_share_potentials(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Episodes of different lengths, played together and one by one: the same, but for one that may meet a potential
    within rounding of its threshold, which a product of another size rounds to the other side."""
    monkeypatch.syspath_prepend(QUICK_TASKS)
    policy = load(converted(trained, tmp_path / "out", rule="max", residual="crpi", alpha=1.0, time_steps=3))
    lengths = [9, 4, 12, 6, 6]
    envs = [gym.wrappers.TimeLimit(make_env("PointMass-v0"), length) for length in lengths]
    together = play(policy.predict, envs, range(5), "PointMass-v0")
    assert together.lengths == lengths
    alone = [play(policy.predict, [env], [seed], "PointMass-v0").returns[0] for seed, env in enumerate(envs)]
    assert np.isclose(together.returns, alone, rtol=1e-4).sum() >= 4
    forgetful = play(lambda obs, _: policy.predict(obs), envs, range(5), "PointMass-v0")
    assert np.isclose(forgetful.returns, alone, rtol=1e-3).sum() < 4  # so what is carried does matter here


def test_rows_of_state_follow_their_episodes() -> None:
    from test_evaluation import SeededLength

    seeds = [4, 1, 7, 2]
    seen = []

    def decide(obs: Any, state: Any) -> Any:
        ids = obs[:, 0]
        if state is not None:
            np.testing.assert_array_equal(state[:, 0], ids)  # the row belongs to this episode
            np.testing.assert_array_equal(state[:, 1], obs[:, 1])
        seen.append(len(obs))
        return obs[:, :1], np.stack([ids, obs[:, 1] + 1], 1)

    play(decide, [SeededLength() for _ in seeds], seeds, "SeededLength")
    assert seen == [4, 3, 2, 2, 1, 1, 1]


def test_stable_baselines_carries_the_state(finished: Path, tmp_path: Path) -> None:
    evaluation = pytest.importorskip("stable_baselines3.common.evaluation")
    env_util = pytest.importorskip("stable_baselines3.common.env_util")
    policy = load(converted(finished, tmp_path / "out", residual="crpi", alpha=1.0, time_steps=5))
    seen: list[bool] = []
    predict = policy.predict

    def watched(obs: Any, state: Any = None, **rest: Any) -> Any:
        seen.append(state is not None)
        return predict(obs, state=state, **rest)

    policy.predict = watched  # type: ignore[method-assign]
    env = env_util.make_vec_env("Pendulum-v1", n_envs=2, seed=0)
    evaluation.evaluate_policy(policy, env, n_eval_episodes=2)
    assert not seen[0]
    assert all(seen[1:])


# --- mistakes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--time-steps", "0"], "at least one time step, got 0"),
        (["--sweep", "5", "0"], "at least one time step, got 0"),
        (["--residual", "crpi", "--alpha", "1.5"], "alpha must lie in [0, 1], got 1.5"),
        (["--alpha", "0.5"], "residual is none"),
        (["--time-steps", "10", "--read-out-from", "10"], "from 0 to 9"),
        (["--rule", "max", "--iterations", "5"], "iterations do not apply"),
        (["--episodes", "0"], "--episodes must be at least 1"),
    ],
)
def test_options_that_make_no_sense(finished: Path, carebn: Any, words: list[str], said: str) -> None:
    before = sorted(finished.rglob("*"))
    result = carebn("convert", str(finished), *words)
    assert_one_sentence(result)
    assert said in result.err
    assert sorted(finished.rglob("*")) == before  # nothing was written


def test_a_spiking_run(finished: Path, carebn: Any) -> None:
    config = TrainConfig(**TINY | {"method": "care-bn"}).checked().as_json()
    (finished / "config.json").write_text(json.dumps(config))
    (finished / "checksums.json").unlink()
    result = carebn("convert", str(finished))
    assert_one_sentence(result)
    assert "--method care-bn, which is spiking already" in result.err


def test_a_converted_policy(finished: Path, tmp_path: Path, carebn: Any) -> None:
    converted(finished, tmp_path / "out")
    result = carebn("convert", "out")
    assert_one_sentence(result)
    assert "holds a converted policy already" in result.err


def test_an_unfinished_run(tmp_path: Path, carebn: Any) -> None:
    run = Run(TrainConfig(run_dir=tmp_path / "run", **TINY))
    run.stop_asked = True
    with pytest.raises(Exception, match="stopped at step 1"):
        run.train()
    result = carebn("convert", "run")
    assert_one_sentence(result)
    assert "unfinished, at step 1 of 60" in result.err


def empty_replay(run: Path) -> None:
    """Segments without a row in them, and a checkpoint that says so."""
    from carebn.training.files import sha256

    newest = sorted((run / "checkpoint").iterdir())[-1]
    manifest = json.loads((newest / "manifest.json").read_bytes())
    for name in manifest["replay"]:
        rows = safetensors.numpy.load_file(run / "replay" / name)
        data = safetensors.numpy.save({key: array[:0] for key, array in rows.items()})
        (run / "replay" / name).write_bytes(data)
        manifest["replay"][name] = sha256(data)
    (newest / "manifest.json").write_bytes(sealed(without_seal(manifest)))


def drop_replay_from_manifest(run: Path) -> None:
    newest = sorted((run / "checkpoint").iterdir())[-1]
    manifest = json.loads((newest / "manifest.json").read_bytes())
    (newest / "manifest.json").write_bytes(sealed(without_seal(manifest) | {"replay": {}}))


def damage_newest_segment(run: Path) -> None:
    path = sorted((run / "replay").iterdir())[-1]
    path.write_bytes(path.read_bytes()[:-1] + b"x")


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (empty_replay, "its replay is empty"),
        (drop_replay_from_manifest, "its replay is empty"),
        (damage_newest_segment, "does not match its checksum"),
        (lambda run: shutil.rmtree(run / "replay"), "is missing"),
        (lambda run: shutil.rmtree(run / "checkpoint"), "has no checkpoint"),
        (lambda run: (run / "policy.safetensors").unlink(), "has no policy yet"),
        (lambda run: (run / "policy.safetensors").write_bytes(b"x"), "does not hold this run's policy"),
        (lambda run: (run / "config.json").write_bytes(b"{"), "cannot be read"),
        (lambda run: (run / "config.json").unlink(), "is not a run directory"),
        (lambda run: shutil.rmtree(run), "is not a run directory"),
    ],
)
def test_a_damaged_run(finished: Path, carebn: Any, damage: Any, said: str) -> None:
    damage(finished)
    result = carebn("convert", str(finished))
    assert_one_sentence(result)
    assert said in result.err


def test_where_the_policy_cannot_go(finished: Path, tmp_path: Path, carebn: Any) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("")
    converted(finished, tmp_path / "other", time_steps=3)
    for out, said in (
        ("file", "cannot write to file (File exists); choose another --out"),
        ("file/below", "cannot write to file/below (Not a directory); choose another --out"),
        ("/proc/converted", "cannot write to /proc/converted"),
        ("full", "full is not empty and holds no converted policy; choose another --out"),
        ("other", "other holds something else already; choose another --out"),
        (str(finished), "holds something else already; choose another --out"),
    ):
        result = carebn("convert", str(finished), "--iterations", "5", "--out", out)
        assert_one_sentence(result)
        assert said in result.err


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"time_steps": 0}, "at least one time step"),
        ({"time_steps": "5"}, "of the right type"),
        ({"alpha": None}, "of the right type"),
        ({"read_out_from": 100}, "from 0 to 99"),
        ({"residual": "x"}, "unknown residual"),
        (7, "of the right type"),
        (None, "does not hold this run's policy"),
    ],
)
def test_a_record_that_was_changed_is_refused(finished: Path, tmp_path: Path, change: Any, said: str) -> None:
    path = converted(finished, tmp_path / "out") / "config.json"
    data = json.loads(path.read_bytes())
    data["conversion"] = data["conversion"] | change if isinstance(change, dict) else change
    path.write_text(json.dumps(data))
    with pytest.raises(ValueError, match=r"config\.json does not match its checksum"):
        load(tmp_path / "out")
    (tmp_path / "out" / "checksums.json").unlink()
    with pytest.raises(ValueError, match=said) as error:
        load(tmp_path / "out")
    assert "\n" not in str(error.value)
