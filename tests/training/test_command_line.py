"""The command line: mistakes are one sentence, never a stack trace, and what it prints is true."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import tyro
from said import Said, assert_one_sentence

from carebn.machine import cores
from carebn.training import Run, TrainConfig

TINY = [
    *(
        "--total-timesteps",
        "40",
        "--learning-starts",
        "20",
        "--hidden",
        "8",
        "--batch-size",
        "8",
        "--eval-episodes",
        "2",
    ),
    *("--recalibration-batches", "2", "--checkpoint-interval", "20", "--quiet"),
]


# --- mistakes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--env-id Hoper-v4", "did you mean 'Hopper-v4'"),
        ("--env-id ALE/Pnog-v5 --algo dqn", "did you mean 'ALE/Pong-v5'"),
        ("--env-id no_such_module:Thing-v0", "no_such_module"),
        ("--total-timesteps -5", "--total-timesteps must be at least 1, got -5"),
        ("--batch-size 1", "--batch-size must be at least 2, got 1"),
        ("--gamma 2", "--gamma must lie in [0, 1], got 2.0"),
        ("--tau 0", "--tau must lie in (0, 1], got 0.0"),
        ("--algo ppo", "unknown algorithm 'ppo'; known: ddpg, dqn, sac, td3"),
        ("--algo tdd3", "unknown algorithm 'tdd3': did you mean 'td3'? Known: ddpg, dqn, sac, td3"),
        ("--algo-options policy_nois=0.1", "did you mean 'policy_noise'? Known: noise_clip, policy_frequency"),
        ("--algo-options policy_frequency=0", "policy_frequency must be at least 1, got 0"),
        ("--algo-options policy_noise=loud", "--algo-options policy_noise must be of the kind float"),
        ("--algo-options gamma=0.9", "--algo-options gamma does not apply: it is an option by itself, --gamma"),
        ("--method carebn", "did you mean 'care-bn'"),
        ("--neuron lf", "did you mean 'lif'"),
        ("--method pop-san --neuron dn", "pop-san means clif neurons"),
        ("--algo dqn --env-id Pendulum-v1", "Pendulum-v1 has continuous actions, which dqn cannot choose"),
        (
            "--algo td3 --env-id CartPole-v1",
            "CartPole-v1 has discrete actions, which td3 cannot choose; use --algo dqn",
        ),
        ("--algo sac --env-id CartPole-v1", "use --algo dqn"),
        ("--algo ddpg --env-id CartPole-v1", "use --algo dqn"),
        ("--algo dqn --env-id CartPole-v1 --tau 0.1", "--tau does not apply to dqn"),
        ("--algo dqn --env-id CartPole-v1 --method ilc-san", "method ilc-san is defined for td3 and ddpg and sac"),
        ("--algo sac --method proxy-target", "method proxy-target is defined for td3 and ddpg, not for sac"),
        ("--raw-bytes", "--raw-bytes does not apply: td3 has an actor"),
        ("--method ann --coding poisson", "--coding does not apply: method ann has no spiking neurons"),
        ("--device nonsense", "unknown device 'nonsense'; use cpu or cuda"),
        ("--device meta", "device"),
        ("--device mps", "device"),
        ("--threads 0", "--threads must be at least 1, got 0"),
        ("--threads -2", "--threads must be at least 1, got -2"),
        ("--run-dir /proc/none/here", "cannot write to /proc/none/here (No such file or directory); choose another"),
        ("--import no_such_world", "cannot import module 'no_such_world'"),
        ("--env-kwargs colour=red", "unknown argument 'colour'; known: "),
        ("--actor-learning-rate -1", "learning rate"),
        ("--learning-starts 4e1", "would never learn: it ends after 40 steps (--total-timesteps), and learning starts"),
    ],
)
def test_a_mistake_is_one_sentence(carebn, words: str, told: str) -> None:
    said = carebn("train", "--env-id", "Pendulum-v1", *TINY, *words.split())
    assert_one_sentence(said)
    assert told in said.err
    assert not Path("runs").exists()  # nothing is left behind


def test_cuda_without_a_card(carebn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    said = carebn("train", "--env-id", "Pendulum-v1", "--device", "cuda")
    assert_one_sentence(said)
    assert "use --device cpu" in said.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--gama 0.9", "--gamma"),
        ("--lerning-starts 5", "--learning-starts"),
        ("--total-timesteps many", "--total-timesteps"),
        ("--total-timesteps 1.5", "--total-timesteps"),
        ("--gamma high", "--gamma"),
        ("--raw-bytes yes", "yes"),
        ("--norm-init mine", "--norm-init"),
        ("stray", "stray"),
    ],
)
def test_what_cannot_be_parsed_is_refused(carebn, words: str, told: str) -> None:
    said = carebn("train", *words.split())
    assert said.code == 2
    assert told in said.err + said.out
    assert "Traceback" not in said.err


def test_nothing_at_all_says_what_there_is(carebn) -> None:
    said = carebn()
    assert said.code in (0, 2)
    assert "train" in said.out + said.err
    assert "evaluate" in said.out + said.err
    assert "Traceback" not in said.err


def test_help(carebn) -> None:
    said = carebn("--help")
    assert said.code == 0
    assert "train" in said.out
    assert "evaluate" in said.out


def test_help_of_train_lists_every_option(carebn) -> None:
    said = carebn("train", "--help")
    assert said.code == 0
    for name in TrainConfig.__dataclass_fields__:
        option = {"import_modules": "--import", "wrappers": "--wrapper"}.get(name, f"--{name.replace('_', '-')}")
        assert option in said.out
    assert "--no-raw-bytes" in said.out
    assert "Train an agent" in said.out


def test_help_of_evaluate(carebn) -> None:
    said = carebn("evaluate", "--help")
    assert said.code == 0
    assert "--episodes" in said.out


# --- work -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A finished run."""
    config = TrainConfig(
        env_id="InvertedPendulum-v4", total_timesteps=24, learning_starts=20, hidden=(8,), batch_size=8,
        eval_episodes=1, checkpoint_interval=20, recalibration_batches=2, run_dir=tmp_path / "run", quiet=True,
    )  # fmt: skip
    Run(config).train()
    return tmp_path / "run"


def test_train_then_train_again(carebn) -> None:
    trained = carebn("train", "--env-id", "InvertedPendulum-v4", *TINY)
    assert trained.code == 0, trained.err
    (run,) = Path("runs").iterdir()
    assert run.name.startswith("InvertedPendulum-v4__td3__care-bn__clif__s0__")
    for name in ("policy.safetensors", "curve.png", "config.json", "command.txt", "metrics.jsonl", "versions.json"):
        assert (run / name).stat().st_size > 0
    assert f"carebn evaluate {run}" in trained.out
    *_, last = (row for row in map(json.loads, (run / "metrics.jsonl").open()) if "eval/mean_return" in row)
    is_the_last = json.loads((run / "best.json").read_text())["step"] == last["step"]
    assert ("; --which best takes its policy in place of the last\n" in trained.out) is not is_the_last
    again = carebn("train", "--env-id", "InvertedPendulum-v4", *TINY)
    assert again.code == 0
    assert "this run is complete" in again.out


def test_the_best_that_is_the_last_is_no_other_policy(carebn) -> None:
    trained = carebn("train", "--env-id", "InvertedPendulum-v4", *TINY, "--eval-interval", "1000000")
    assert re.search(r"^best mean return on the way: [0-9.]+$", trained.out, re.M), trained


def test_train_alone_begins_nothing(carebn) -> None:
    for words in ([], ["--quiet"]):
        said = carebn("train", *words)
        assert_one_sentence(said)
        assert said.err == "carebn: for a new run, say at least what to train, for example --env-id Hopper-v4\n"
    assert not Path("runs").exists()


def test_a_module_goes_without_its_ending(carebn) -> None:
    Path("my_robot.py").touch()
    said = carebn("train", "--import", "my_robot.py", "--env-id", "Robot-v0")
    assert_one_sentence(said)
    assert "a module goes without .py: --import my_robot" in said.err


def test_a_module_that_is_not_python_is_told_with_its_line(carebn) -> None:
    Path("crooked.py").write_text("x = 1\ny = (\n")
    said = carebn("train", "--import", "crooked", "--env-id", "Robot-v0")
    assert_one_sentence(said)
    assert "SyntaxError: '(' was never closed (crooked.py, line 2)\n" in said.err


def test_evaluate_prints_every_episode_and_the_mean(carebn, run: Path) -> None:
    said = carebn("evaluate", str(run), "--episodes", "3")
    assert said.code == 0, said.err
    lines = said.out.splitlines()
    assert [line.split(":")[0] for line in lines[:3]] == ["episode 1", "episode 2", "episode 3"]
    mean = sum(float(line.split()[3]) for line in lines[:3]) / 3
    assert float(lines[3].split()[2]) == pytest.approx(mean, abs=0.11)  # one digit is printed
    assert lines[3].endswith("over 3 episodes")
    assert carebn("evaluate", str(run), "--episodes", "3").out == said.out  # fixed seeds
    single = carebn("evaluate", str(run), "--episodes", "1").out.splitlines()
    assert single[1] == f"mean return {single[0].split()[3]} over 1 episode"  # which has no spread


@pytest.mark.parametrize("words", ["--episodes 0", "--episodes -1", "--seed -5"])
def test_bad_values_of_evaluate(carebn, run: Path, words: str) -> None:
    assert_one_sentence(carebn("evaluate", str(run), *words.split()))


def test_evaluating_a_run_without_a_policy(carebn, run: Path) -> None:
    (run / "policy.safetensors").unlink()
    said = carebn("evaluate", str(run))
    assert_one_sentence(said)
    assert "no policy yet" in said.err


def test_evaluating_with_tensors_of_something_else(carebn, run: Path) -> None:
    (run / "policy.safetensors").write_bytes((run / "checkpoint/000000024/agent.safetensors").read_bytes())
    assert_one_sentence(carebn("evaluate", str(run)))


def test_booleans_have_two_words(carebn) -> None:
    words = ("train", "--env-id", "CartPole-v1", "--algo", "dqn", *TINY, "--run-dir", "run")
    said = carebn(*words, "--no-raw-bytes")
    assert said.code == 0, said.err
    assert '"raw_bytes": false' in Path("run/config.json").read_text()
    assert "--raw-bytes does not apply: CartPole-v1" in carebn(*words, "--raw-bytes").err  # heard, and refused


def test_no_figures_but_what_is_there(carebn) -> None:
    """The last lines name files: each must exist."""
    said = carebn("train", "--env-id", "CartPole-v1", "--algo", "dqn", *TINY, "--run-dir", "run")
    assert "None" not in said.out
    for line in said.out.splitlines():
        if line.startswith(("policy: ", "learning curve: ")):
            assert Path(line.split(": ")[1]).is_file()


@pytest.mark.parametrize("made", ["missing", "empty", "other", "file", "list", "broken", "unknown", "types"])
def test_evaluating_what_is_not_a_run(carebn, made: str) -> None:
    path = Path("thing")
    if made == "file":
        path.write_text("x")
    elif made != "missing":
        path.mkdir()
        text = {
            "other": None,
            "empty": None,
            "list": "[]",
            "broken": "{",
            "unknown": '{"gama": 1}',
            "types": '{"env_id": "Pendulum-v1", "hidden": "wide"}',
        }[made]
        if made == "other":
            (path / "notes.txt").write_text("x")
        if text is not None:
            (path / "config.json").write_text(text)
    said = carebn("evaluate", "thing")
    assert_one_sentence(said)
    assert "Errno" not in said.err


@pytest.mark.parametrize("made", ["other", "file", "list", "broken"])
def test_a_directory_of_something_else_is_left_alone(carebn, made: str) -> None:
    path = Path("thing")
    if made == "file":
        path.write_text("precious")
    else:
        path.mkdir()
        name, text = {
            "other": ("notes.txt", "precious"),
            "list": ("config.json", "[]"),
            "broken": ("config.json", "{"),
        }[made]
        (path / name).write_text(text)
    before = sorted(str(p) for p in Path().rglob("*"))
    said = carebn("train", "--env-id", "Pendulum-v1", *TINY, "--run-dir", "thing")
    assert_one_sentence(said)
    assert "Errno" not in said.err
    assert sorted(str(p) for p in Path().rglob("*")) == before


@pytest.mark.slow
def test_an_own_environment_that_gives_nan(tmp_path: Path) -> None:
    """As a user meets it: a process of its own, the module in the current directory."""
    (tmp_path / "nan_world.py").write_text(
        "import gymnasium as gym, numpy as np\n"
        "from gymnasium.envs.classic_control import PendulumEnv\n"
        "class NanPendulum(PendulumEnv):\n"
        "    n = 0\n"
        "    def step(self, action):\n"
        "        self.n += 1\n"
        "        obs, reward, *rest = super().step(action)\n"
        "        return (obs * np.nan if self.n == 33 else obs), reward, *rest\n"
        "gym.register('NanPendulum-v0', NanPendulum, max_episode_steps=10)\n"
    )
    command = [
        sys.executable,
        "-P",  # as the installed command: without the current directory
        "-m",
        "carebn",
        "train",
        "--env-id",
        "NanPendulum-v0",
        "--import",
        "nan_world",
        *TINY,
    ]
    done = subprocess.run(
        [*command, "--run-dir", "run"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert_one_sentence(Said(done.returncode, done.stdout, done.stderr))
    assert "NanPendulum-v0 gave a" in done.stderr
    assert "at step 33; the last checkpoint is kept" in done.stderr
    assert (tmp_path / "run" / "checkpoint" / "000000020").is_dir()


@pytest.mark.slow
def test_tracking_copies_the_figures_and_changes_no_file(carebn, tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb", reason="the optional extra wandb is not installed")
    assert wandb
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    words = ("train", "--env-id", "InvertedPendulum-v4", *TINY)
    assert carebn(*words, "--run-dir", "plain").code == 0
    assert carebn(*words, "--run-dir", "tracked", "--track").code == 0
    assert list((tmp_path / "wandb").glob("offline-run-*/*.wandb"))
    for name in ("metrics.jsonl", "policy.safetensors", "config.json"):
        assert (tmp_path / "plain" / name).read_bytes() == (tmp_path / "tracked" / name).read_bytes()


def test_tracking_without_its_package(carebn, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    said = carebn("train", "--env-id", "InvertedPendulum-v4", *TINY, "--run-dir", "r", "--track")
    assert_one_sentence(said)
    assert "pip install wandb" in said.err
    assert not Path("r").exists()


@pytest.mark.slow
def test_doubts_are_one_line_each_and_the_run_goes_on(carebn) -> None:
    words = [word for word in TINY if word != "--quiet"]
    threads = cores() + 1
    said = carebn("train", "--env-id", "Pendulum-v1", *words, "--threads", threads)
    assert said.code == 0
    lines = said.err.splitlines()
    assert any(line.startswith(f"warning: --threads {threads} is more than the ") for line in lines)


def test_a_damaged_policy_is_one_sentence(carebn, run: Path) -> None:
    data = bytearray((run / "policy.safetensors").read_bytes())
    data[-100] ^= 255
    (run / "policy.safetensors").write_bytes(data)
    for words in (["evaluate"], ["export", "--to", "numpy", "--out", "p.npz"], ["energy"], ["watch"], ["spikes"]):
        said = carebn(words[0], str(run), *words[1:])
        assert_one_sentence(said)
        assert "policy.safetensors is damaged" in said.err


@pytest.mark.parametrize(("word", "steps"), [("1e3", 1000), ("2_000", 2000), ("2.5e1", 25), ("30", 30)])
def test_steps_can_be_written_as_people_do(word: str, steps: int) -> None:
    assert tyro.cli(TrainConfig, args=["--total-timesteps", word, "--buffer-size", word]).total_timesteps == steps


def test_what_comes_next_can_be_copied(carebn) -> None:
    """Also where the directory has a space in its name."""
    said = carebn("train", "--env-id", "InvertedPendulum-v4", *TINY, "--method", "ann", "--run-dir", "my run")
    assert said.code == 0, said.err
    last = said.out.splitlines()[-1]
    assert shlex.split(last.removeprefix("next: carebn ")) == ["evaluate", "my run"]
    assert carebn("evaluate", "my run", "--episodes", "1").code == 0
