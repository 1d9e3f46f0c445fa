"""Training, agents and exports from Python: the same loop, the same files, the same sentences as the command line."""

import signal
import subprocess
import sys
import threading
import time
import types
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

import carebn
from carebn.cli import main
from carebn.network import ANNActor

SMALL: dict[str, Any] = {
    "hidden": (8,), "batch_size": 8, "learning_starts": 20, "eval_episodes": 2, "eval_interval": 20,
    "checkpoint_interval": 20, "log_interval": 10, "recalibration_batches": 2, "quiet": True,
}  # fmt: skip


class Guess(gym.Env[Any, Any]):
    """Numbers in, one of three actions out, which are numbered from five; ten steps."""

    observation_space = gym.spaces.Dict(
        kind=gym.spaces.Discrete(3), place=gym.spaces.Box(-1, 1, (2, 2), np.float32), flags=gym.spaces.MultiBinary(2)
    )
    action_space = gym.spaces.Discrete(3, start=5)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.made = 0
        return self._look(), {}

    def _look(self) -> Any:
        self.kind = int(self.np_random.integers(3))
        place = self.np_random.uniform(-1, 1, (2, 2)).astype(np.float32)
        return {"kind": self.kind, "place": place, "flags": self.np_random.integers(0, 2, 2, np.int8)}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert action in (5, 6, 7)
        self.made += 1
        reward = float(action - 5 == self.kind)
        return self._look(), reward, False, self.made >= 10, {}


def files(run: Path) -> dict[str, bytes]:
    """All that a run promises to repeat."""
    return {
        str(path.relative_to(run)): path.read_bytes()
        for path in sorted(run.rglob("*"))
        if path.is_file() and path.name not in ("timing.jsonl", ".lock")
    }


def pendulum(run_dir: Path, **options: Any) -> carebn.RunResult:
    return carebn.train("Pendulum-v1", run_dir=run_dir, **{**SMALL, "total_timesteps": 60, **options})


# --- carebn.train -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> carebn.RunResult:
    return pendulum(tmp_path_factory.mktemp("whole"))


def test_it_is_the_run_of_the_command_line(
    tmp_path: Path, whole: carebn.RunResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["carebn", "train", "--env-id", "Pendulum-v1", "--total-timesteps", "60", "--run-dir", str(tmp_path)]
    for name, value in SMALL.items():
        words += [f"--{name.replace('_', '-')}", *([] if value is True else map(str, np.atleast_1d(value)))]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 0
    assert files(tmp_path) == files(whole.path)


def test_what_it_returns(whole: carebn.RunResult) -> None:
    assert whole.complete
    assert whole.steps.tolist() == [20, 40, 60]
    assert whole.returns.shape == whole.stds.shape == (3,)
    assert (whole.best_return, whole.last_return) == (whole.returns.max(), whole.returns[-1])
    again = whole.evaluate(episodes=2, seed=7)
    assert again == carebn.load(whole.path).evaluate(episodes=2, seed=7)
    action, _ = whole.policy().predict(np.zeros(3, np.float32))
    assert action.shape == (1,)
    assert whole.policy("best").predict(np.zeros(3, np.float32))[0].shape == (1,)


def test_the_same_call_finds_it_complete(whole: carebn.RunResult) -> None:
    before = files(whole.path)
    assert pendulum(whole.path).step == 60
    assert files(whole.path) == before


def test_numbers_of_numpy_and_floats_that_are_whole(tmp_path: Path, whole: carebn.RunResult) -> None:
    result = pendulum(tmp_path, total_timesteps=np.float64(6e1), seed=np.int64(0), gamma=np.float32(0.5).item())
    assert result.step == 60


def test_options_that_are_lists(tmp_path: Path) -> None:
    pendulum(tmp_path, total_timesteps=25, hidden=[8], measure=["wasserstein"])
    assert (tmp_path / "measure-wasserstein.jsonl").exists()


@pytest.mark.parametrize(
    ("options", "kind", "said"),
    [
        ({"gama": 0.9}, TypeError, "did you mean 'gamma'"),
        ({"hidden": "many"}, ValueError, "'hidden' has a value of the wrong"),
        ({"method": "care"}, ValueError, "unknown method"),
        ({"algo": "dqn"}, ValueError, "has continuous actions"),
        ({"total_timesteps": 0}, ValueError, "at least 1"),
        ({"env_kwargs": {"gravity": 1}}, ValueError, "cannot make environment"),
        ({"callback": 3}, ValueError, "on_before_evaluation, on_evaluation, on_checkpoint"),
    ],
)
def test_mistakes_are_exceptions_of_one_sentence(tmp_path: Path, options: Any, kind: Any, said: str) -> None:
    with pytest.raises(kind, match=said) as error:
        pendulum(tmp_path / "run", **options)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "run").exists()


def test_threads_and_signals_are_as_before(tmp_path: Path) -> None:
    before = torch.get_num_threads(), signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    pendulum(tmp_path, total_timesteps=25)
    assert (torch.get_num_threads(), signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_it_runs_in_a_thread_of_a_program(tmp_path: Path, whole: carebn.RunResult) -> None:
    """Python lets only the main thread listen to signals; a run elsewhere does without."""
    made: list[carebn.RunResult] = []
    thread = threading.Thread(target=lambda: made.append(pendulum(tmp_path)))
    thread.start()
    thread.join()
    assert files(made[0].path) == files(whole.path)


def test_a_notebook_gets_plain_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """There stderr looks like an error; a line for each evaluation, and nothing at all if quiet."""
    shell = types.SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    pendulum(tmp_path / "loud", quiet=False, total_timesteps=25)
    said = capsys.readouterr()
    assert [line.partition(":")[0] for line in said.out.splitlines()] == ["step 20", "step 25"]
    assert said.err == ""
    pendulum(tmp_path / "quiet", total_timesteps=25)
    assert capsys.readouterr() == ("", "")


# --- callbacks --------------------------------------------------------------------------------------------------------


def test_a_function_hears_everything_and_changes_nothing(tmp_path: Path, whole: carebn.RunResult) -> None:
    heard: list[Any] = []

    def listen(event: Any) -> None:
        heard.append(event)
        event.losses["ruin"] = np.random.normal()
        torch.rand(3)

    pendulum(tmp_path, callback=listen)
    assert files(tmp_path) == files(whole.path)
    assert [event.step for event in heard if event.kind == "step"] == list(range(1, 61))
    assert [event.step for event in heard if event.kind == "checkpoint"] == [20, 40, 60]
    evaluations = [event for event in heard if event.kind == "evaluation"]
    assert [event.mean_return for event in evaluations] == whole.returns.tolist()
    assert evaluations[-1].best_return == whole.best_return


@pytest.mark.slow
def test_returning_false_stops_and_the_same_call_goes_on(tmp_path: Path, whole: carebn.RunResult) -> None:
    class Patience:
        def on_evaluation(self, event: Any) -> bool:
            return event.step < 40

    early = pendulum(tmp_path, callback=Patience())
    assert (early.step, early.complete) == (40, False)
    assert pendulum(tmp_path, callback=lambda event: event.step < 47).step == 47
    assert pendulum(tmp_path).complete
    assert files(tmp_path) == files(whole.path)


# --- agents -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_learning_again_goes_on(tmp_path: Path, whole: carebn.RunResult) -> None:
    agent = carebn.TD3("Pendulum-v1", run_dir=tmp_path / "run", **SMALL)
    assert agent.learn(25).learn(35).result.step == 60
    assert files(tmp_path / "run") == files(whole.path)
    action, state = agent.predict(np.zeros(3))
    assert action == whole.policy().predict(np.zeros(3))[0]
    assert state is None
    # The same program again finds its work done, step by step.
    again = carebn.TD3("Pendulum-v1", run_dir=tmp_path / "run", **SMALL).learn(25)
    assert again.learn(35).result.complete
    assert files(tmp_path / "run") == files(whole.path)


@pytest.mark.slow
def test_saving_and_loading(tmp_path: Path, whole: carebn.RunResult) -> None:
    agent = carebn.TD3("Pendulum-v1", run_dir=tmp_path / "run", **SMALL)
    place = f"run_dir='{tmp_path}/run'"
    assert repr(agent) == f"<TD3('Pendulum-v1', 'care-bn', {place}): nothing learnt yet>"
    assert repr(agent.learn(25)) == f"<TD3('Pendulum-v1', 'care-bn', {place}): 25 steps learnt>"
    agent.save(tmp_path / "saved")
    agent.save(tmp_path / "saved")  # in place of the earlier one
    loaded = carebn.TD3.load(tmp_path / "saved", quiet=True)
    assert repr(loaded) == f"<TD3('Pendulum-v1', 'care-bn', run_dir='{tmp_path}/saved'): 25 steps learnt>"
    assert loaded.predict(np.zeros(3))[0] == agent.predict(np.zeros(3))[0]
    loaded.learn(35)
    assert files(tmp_path / "saved") == files(whole.path)
    assert agent.result.step == 25
    with pytest.raises(ValueError, match="was trained by td3, not by sac"):
        carebn.SAC.load(tmp_path / "saved")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    with pytest.raises(ValueError, match="not empty and not a run"):
        agent.save(tmp_path / "mine")


@pytest.mark.parametrize(("kind", "env"), [(carebn.DDPG, "Pendulum-v1"), (carebn.SAC, "Pendulum-v1")])
def test_every_algorithm(tmp_path: Path, kind: Any, env: str) -> None:
    agent = kind(env, method="ann", run_dir=tmp_path, **SMALL).learn(25)
    assert agent.evaluate(1).lengths == [200]


def test_what_agents_refuse(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"learn\(total_timesteps\) says it"):
        carebn.TD3("Pendulum-v1", total_timesteps=9)
    with pytest.raises(ValueError, match="call learn"):
        carebn.TD3("Pendulum-v1", run_dir=tmp_path).predict(np.zeros(3))
    with pytest.raises(ValueError, match="unknown method"):
        carebn.TD3("Pendulum-v1", method="nothing")
    with pytest.raises(ValueError, match="at least 1"):
        carebn.TD3("Pendulum-v1", run_dir=tmp_path).learn(0)


# --- environments that are objects ------------------------------------------------------------------------------------


def test_what_gymnasium_made_is_its_id(tmp_path: Path, whole: carebn.RunResult) -> None:
    result = carebn.train(gym.make("Pendulum-v1"), run_dir=tmp_path / "a", total_timesteps=60, **SMALL)
    assert files(result.path) == files(whole.path)
    other = carebn.train(gym.make("Pendulum-v1", g=3.0), run_dir=tmp_path / "b", total_timesteps=25, **SMALL)
    assert (other.config.env_id, other.config.env_kwargs) == ("Pendulum-v1", {"g": 3.0})


@pytest.mark.slow
def test_an_instance_and_a_function_give_the_same_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [
        carebn.train(env, "dqn", run_dir=tmp_path / name, total_timesteps=40, **SMALL)
        for name, env in (("instance", Guess()), ("function", Guess), ("lambda", lambda: Guess()))
    ]
    assert runs[0].config.env_id == "python:Guess"
    assert files(runs[0].path) == files(runs[1].path) == files(runs[2].path)
    stopped = carebn.train(
        Guess(), "dqn", run_dir=tmp_path / "s", total_timesteps=40, callback=lambda event: event.step < 33, **SMALL
    )
    assert stopped.step == 33
    carebn.train(Guess, "dqn", run_dir=tmp_path / "s", total_timesteps=40, **SMALL)
    assert files(tmp_path / "s") == files(runs[0].path)

    score = runs[0].evaluate(3)
    policy = carebn.load(runs[0].path)
    observation, _ = Guess().reset(seed=1)
    assert policy.predict(observation)[0] in (5, 6, 7)  # as the environment numbers them, from what it gives
    assert policy.evaluate(3, env=Guess) == policy.evaluate(3, env=Guess()) == score
    with pytest.raises(ValueError, match="has to be given again"):
        policy.evaluate()
    agent = carebn.DQN.load(runs[0].path, env=Guess, quiet=True)
    assert agent.learn(10).result.step == 50


def test_the_command_line_says_what_such_a_run_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    carebn.train(Guess, "dqn", run_dir=tmp_path / "run", total_timesteps=25, **SMALL)
    for words in (["evaluate"], ["train", "--run-dir"]):
        monkeypatch.setattr(sys, "argv", ["carebn", *words, str(tmp_path / "run")])
        with pytest.raises(SystemExit) as end:
            main()
        assert end.value.code == 1
        said = capsys.readouterr().err
        assert "Guess, was given to carebn as a Python object" in said
        assert said.count("\n") == 1


def test_what_cannot_be_copied_is_told(tmp_path: Path) -> None:
    env = Guess()
    env.window = threading.Lock()  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match=r"cannot be copied .*give a function that makes one"):
        carebn.train(env, "dqn", run_dir=tmp_path, **SMALL)
    with pytest.raises(ValueError, match="a function that makes one, got a int"):
        carebn.train(3, "dqn", run_dir=tmp_path, **SMALL)  # type: ignore[arg-type]


# --- killed -----------------------------------------------------------------------------------------------------------

SCRIPT = """
import sys, carebn
options = dict(method="ann", hidden=(8,), batch_size=8, learning_starts=20, eval_episodes=1, eval_interval=100,
               log_interval=10, checkpoint_interval=50, recalibration_batches=2, quiet=True)
def slowly(event):
    import time
    print(event.step, flush=True)
    time.sleep(float(sys.argv[2]))
carebn.TD3("Pendulum-v1", run_dir=sys.argv[1], **options).learn(150, slowly).learn(150, slowly)
"""


def script(run: Path, pause: float) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", SCRIPT, str(run), str(pause)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for(process: subprocess.Popen[str], step: int) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if int(line) >= step:
            return
    raise AssertionError(process.stderr.read() if process.stderr else "")


@pytest.mark.slow
def test_a_killed_program_ends_as_an_undisturbed_one(tmp_path: Path) -> None:
    undisturbed = script(tmp_path / "a", 0)
    told = undisturbed.communicate()[1]  # it learns, and then more
    assert told.startswith("warning: the evaluation at step 150 was made only because the run ended there")
    assert told.count("\n") == 1
    for step, number in ((70, signal.SIGKILL), (230, signal.SIGINT)):
        process = script(tmp_path / "b", 0.01)
        wait_for(process, step)
        time.sleep(0.03)
        process.send_signal(number)
        told = process.communicate()[1]
        assert process.returncode != 0
        if number == signal.SIGINT:
            assert "KeyboardInterrupt: stopped at step" in told
    said = script(tmp_path / "b", 0).communicate()[1].splitlines()
    assert all(line.startswith("warning: the evaluation at step 150 was made only") for line in said)
    assert files(tmp_path / "a") == files(tmp_path / "b")


# --- carebn.export ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("to", ["numpy", "nir", "onnx", "c"])
@pytest.mark.parametrize("kind", ["actor", "q-network", "ann"])
def test_a_network_without_a_run_is_exported(tmp_path: Path, to: Any, kind: str) -> None:
    if to == "onnx":
        pytest.importorskip("onnxruntime")
    torch.manual_seed(0)
    network: Any = {
        "actor": lambda: carebn.SpikingActor(4, 2, hidden=(16,)),
        "q-network": lambda: carebn.SpikingQNetwork(4, 3, hidden=(16,)),
        "ann": lambda: ANNActor(4, 2, hidden=(16,)),
    }[kind]()
    path = tmp_path / f"network.{to}"
    if (to, kind) == ("nir", "ann"):
        with pytest.raises(ValueError, match="NIR"):
            carebn.export(network, to, path)
        return
    obs = np.random.default_rng(1).normal(size=(60, 4))
    report = carebn.export(network, to, path, observations=obs)
    assert report.parity is None or report.parity.passed
    assert "12 observations that were given" in report.source
    assert path.exists()
    assert Path(f"{path}.json").exists()
    if to == "numpy":
        from carebn.deploy import load

        action, _ = load(path).predict(obs[0].astype(np.float32))
        expected = network.eval()(torch.from_numpy(obs[:1]).float())[0]
        expected = expected.argmax() if kind == "q-network" else expected
        np.testing.assert_allclose(action, expected.detach().numpy(), atol=1e-5)


def test_what_cannot_be_exported(tmp_path: Path) -> None:
    actor = carebn.SpikingActor(4, 2, hidden=(8,))
    with pytest.raises(ValueError, match=r"shape \[n, 4\], got \[3, 5\]"):
        carebn.export(actor, "numpy", tmp_path / "a.npz", observations=np.zeros((3, 5)))
    with pytest.raises(ValueError, match="int8 weights are judged by the return"):
        carebn.export(actor, "c", tmp_path / "a.c", weights="int8")
    with pytest.raises(ValueError, match="unknown export format"):
        carebn.export(actor, "pdf", tmp_path / "a.pdf")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="do not know how to fold a Linear"):
        carebn.export(torch.nn.Linear(3, 2), "numpy", tmp_path / "a.npz")
    assert not list(tmp_path.iterdir())
