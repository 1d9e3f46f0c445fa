"""``carebn export``: from a trained run to a checked file, and what it says when something is wrong."""

import hashlib
import json
import os
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from carebn import cli, deploy, load
from carebn.deploy import c_export, export, integer_c, onnx_export
from carebn.deploy.observations import observations
from carebn.training import Run, TrainConfig
from carebn.training.environment import make_env
from carebn.training.evaluation import Evaluation, evaluate

pytestmark = pytest.mark.slow

TRAINED = Path(__file__).parent / "trained_clif"


@pytest.fixture
def carebn(monkeypatch, capfd, tmp_path):
    """Runs the command in this process, in an empty directory; gives (exit code, output, errors)."""
    monkeypatch.chdir(tmp_path)
    for library in ("OMP", "MKL", "OPENBLAS", "NUMBA"):
        monkeypatch.setenv(f"{library}_NUM_THREADS", "1")

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["carebn", *map(str, words)])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        out, err = capfd.readouterr()
        first_use = "compiling kernels that were not needed before (up to a minute; then they are kept on disk)\n"
        return stop.value.code, out, err.removeprefix(first_use)

    return call


def assert_one_sentence(said, sentence):
    code, out, err = said
    assert code == 1
    assert out == ""
    assert err.splitlines()[-1].startswith("carebn: ")
    assert sentence in err
    assert "Traceback" not in err
    assert [p for p in os.listdir() if "policy" in p] == []


@pytest.mark.parametrize("to", export.FORMATS)
def test_every_format(carebn, to):
    code, out, _ = carebn("export", TRAINED, "--to", to, "--out", f"policy.{to}")
    assert code == 0
    assert re.search(
        r"checked on 1,000 observations of its own and random episodes: (1,000|99\d) of 1,000 .* agree to 1e-05", out
    )
    report = json.loads(Path(f"policy.{to}.json").read_bytes())
    assert report["checked"]
    assert report["parity"]["passed"]
    assert report["parity"]["observations"] == 1000
    assert report["parity"]["unexplained"] == 0
    assert report["sha256"] == hashlib.sha256(Path(f"policy.{to}").read_bytes()).hexdigest()
    header = ["policy.h"] if to == "c" else []
    assert sorted(os.listdir()) == sorted([f"policy.{to}", f"policy.{to}.json", *header])


def test_without_a_replay_it_is_held_to_where_the_policy_itself_leads():
    policy = load(TRAINED)
    found = observations(TRAINED, policy, 50)
    assert found.source == "50 observations of its own and random episodes"
    env, seen = policy.make_env(), []
    obs, _ = env.reset(seed=0)
    while len(seen) < 125:
        seen.append(obs)
        obs, _, terminated, truncated, _ = env.step(policy.act(obs)[0])
        assert not terminated, "a policy that balances"
        assert not truncated
    env.close()
    together = np.concatenate([found.compared, found.others]).tolist()
    assert len(together) == 250
    assert [row for row in np.float32(seen).tolist() if row not in together] == []


def test_the_deployed_policy_acts_as_the_run(carebn):
    carebn("export", TRAINED, "--to", "numpy", "--out", "policy.npz")
    trained, deployed = load(TRAINED), deploy.load("policy.npz")
    obs = observations(TRAINED, trained, 1000).compared
    different = np.abs(trained.predict(obs)[0] - deployed.predict(obs)[0]).max(1) > 1e-5
    assert different.mean() < 0.1
    assert (deployed.trace(obs).margins[different] < 1e-6).all()  # the run acts in float32, which cannot decide these


@pytest.mark.skipif(c_export.compiler() is None, reason="no C compiler")
def test_int8_keeps_the_return(carebn):
    """Forty episodes, played by the compiled program itself. This policy falls in one of twenty, so that among ten a
    single fall more would decide."""
    words = ("--to", "c", "--weights", "int8", "--out", "policy.c")
    code, out, _ = carebn("export", TRAINED, *words)
    assert code == 0
    report = json.loads(Path("policy.c.json").read_bytes())
    trained, int8 = report["returns"]
    spreads = [np.std(returns) for returns in report["episode_returns"]]
    assert [np.mean(returns) for returns in report["episode_returns"]] == pytest.approx([trained, int8])
    assert f"mean return {int8:.1f} ± {spreads[1]:.1f} with int8 weights, {trained:.1f} ± {spreads[0]:.1f} as" in out
    assert "as trained; both in the same 40 episodes (seeds 2000000 to 2000039)" in out
    assert "1,000 of 1,000 observations agree bit for bit" in out
    assert any("potential" in line for line in report["details"])
    quick = ("--episodes", "1", "--tolerance", "0")
    assert carebn("export", TRAINED, *words[:-1], "policy.npz", "--to", "numpy", *quick)[0] == 0
    units, program = deploy.load("policy.npz"), integer_c.IntegerProgram("policy.c")
    envs = [make_env("InvertedDoublePendulum-v4") for _ in range(40)]
    played = evaluate(
        lambda obs: program.decide(units.fixed(obs.astype(np.float32))) / 2.0**units.command.bits,
        envs,
        range(2_000_000, 2_000_040),
        "InvertedDoublePendulum-v4",
    )
    assert abs(played.mean - trained) <= 0.05 * abs(trained)
    assert played.mean == pytest.approx(int8)
    assert np.mean(report["episode_returns"][0][:10]) > 9000, "the kept policy should have learned its task"


@pytest.mark.parametrize("weights", ["int8", "int16"])
def test_integer_weights_for_numpy(carebn, weights):
    words = ("--episodes", "2", "--observations", "200")
    code, out, _ = carebn("export", TRAINED, "--to", "numpy", "--weights", weights, "--out", "policy.npz", *words)
    assert code == 0
    assert "200 of 200 observations agree" in out
    policy = deploy.load("policy.npz")
    assert all(stage.levels.dtype == weights for stage in policy.stages)
    assert policy.info["environment"] == "InvertedDoublePendulum-v4"
    assert policy.info["run"] == "trained_clif"


def test_int8_that_loses_the_return_is_refused(carebn, monkeypatch):
    """What was measured, what was asked for, and what to do."""
    asked = []

    def played(policy, acting, seeds, discrete):
        asked.append(len(seeds))
        rounded = isinstance(acting, deploy.IntegerPolicy)
        return Evaluation([90.0] * len(seeds) if rounded else [100.0] * len(seeds), [1] * len(seeds))

    monkeypatch.setattr(export, "_played", played)
    words = ("export", TRAINED, "--to", "c", "--weights", "int8", "--out", "policy.c")
    assert_one_sentence(
        carebn(*words),
        "with int8 weights the policy keeps 90.0% of its return, and --tolerance 0.95 asks for 95.0%, so nothing was "
        "written: mean return 90.0 ± 0.0 with int8 weights, 100.0 ± 0.0 as trained; both in the same 40 episodes "
        "(seeds 2000000 to 2000039); use --weights int16 or float32, or a smaller --tolerance, or fine-tune with "
        "--qat 500",
    )
    assert asked == [40, 40]
    code, out, _ = carebn(*words, "--tolerance", "0.9")
    assert code == 0
    assert "mean return 90.0 ± 0.0 with int8 weights, 100.0 ± 0.0 as trained; both in the same 40 episodes" in out


def test_int8_that_loses_the_return_is_refused_without_a_compiler_too(carebn, monkeypatch):
    monkeypatch.setattr(c_export, "compiler", lambda: None)
    returns = iter([-1.0, -1.06])
    monkeypatch.setattr(export, "_played", lambda *_: Evaluation([next(returns)], [1]))
    said = carebn("export", TRAINED, "--to", "c", "--weights", "int8", "--out", "policy.c", "--episodes", "1")
    assert_one_sentence(said, "mean return -1.1 with int8 weights, -1.0 as trained; both in the same episode")


def test_an_export_is_never_put_in_the_place_of_something_else(carebn):
    """Renamed over a device or a pipe, the file would replace it; so would a header that somebody else wrote."""
    os.mkfifo("pipe")
    for place, sentence in (
        ("pipe", "is a named pipe"),
        ("/dev/null", "is a device"),
        ("x.h", "is the name of the header"),
    ):
        assert_one_sentence(carebn("export", TRAINED, "--to", "c", "--out", place), sentence)
    Path("mine.h").write_text("/* by hand */")
    said = carebn("export", TRAINED, "--to", "c", "--out", "mine.c")
    assert_one_sentence(said, "mine.h exists, and the header of mine.c would take its place; choose another --out")
    assert sorted(os.listdir()) == ["mine.h", "pipe"]


def test_a_prefix_and_the_header(carebn):
    words = ("export", TRAINED, "--to", "c", "--out", "policy.c", "--observations", "50")
    assert carebn(*words)[0] == 0
    assert "int policy(const float observation[11], float action[1]);" in Path("policy.h").read_text()
    assert carebn(*words, "--prefix", "pendulum")[0] == 0  # its own header may be replaced
    for name in ("policy.c", "policy.h"):
        assert "int pendulum_policy(const float observation[11], float action[1]);" in Path(name).read_text()


def test_a_failed_check_leaves_nothing_behind(carebn, monkeypatch):
    """The exporter is given a network with one weight changed."""
    from dataclasses import replace

    right = onnx_export.to_onnx

    def wrong(network, dtype):
        weight = network.layers[0].weight.copy()
        weight[:, 0] += 0.5
        return right(replace(network, layers=(replace(network.layers[0], weight=weight), *network.layers[1:])), dtype)

    monkeypatch.setattr(onnx_export, "to_onnx", wrong)
    said = carebn("export", TRAINED, "--to", "onnx", "--out", "policy.onnx")
    assert_one_sentence(said, "the exported policy is not the trained one, so nothing was written")


def test_a_failed_check_does_not_touch_an_earlier_file(carebn, monkeypatch):
    Path("policy.onnx").write_bytes(b"earlier")
    monkeypatch.setattr(export, "compare", lambda *_, **__: (_ for _ in ()).throw(ValueError("differs")))
    code, _, err = carebn("export", TRAINED, "--to", "onnx", "--out", "policy.onnx")
    assert code == 1
    assert err.endswith("carebn: differs\n")
    assert os.listdir() == ["policy.onnx"]
    assert Path("policy.onnx").read_bytes() == b"earlier"


def test_without_a_compiler_it_says_so(carebn, monkeypatch):
    monkeypatch.setattr(c_export, "compiler", lambda: None)
    code, out, _ = carebn("export", TRAINED, "--to", "c", "--out", "policy.c")
    assert code == 0
    assert "NOT CHECKED: there is no C compiler on this machine" in out
    report = json.loads(Path("policy.c.json").read_bytes())
    assert report["checked"] is False
    assert report["parity"] is None


def test_a_missing_package_is_named(carebn, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    monkeypatch.delitem(sys.modules, "carebn.deploy.onnx_export")
    said = carebn("export", TRAINED, "--to", "onnx", "--out", "policy.onnx")
    assert_one_sentence(said, "this export needs onnx and onnxruntime: pip install onnx onnxruntime")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--to", "onxn"], "unknown export format 'onxn': did you mean 'onnx'?"),
        (
            ["--to", "onnx", "--weights", "int8"],
            "--weights int8 is not available for --to onnx; it has float32, float64",
        ),
        (["--to", "c", "--bias", "neuron"], "--bias neuron is not available for --to c; it has affine"),
        (["--to", "nir", "--bias", "none"], "--bias none is not available for --to nir; it has affine, neuron"),
        (["--to", "nir", "--weights", "int16"], "--weights int16 is not available for --to nir; it has float32"),
        (["--to", "numpy", "--weights", "float32"], "it has float64, int8, int16"),
        (["--to", "c", "--prefix", "1st"], "--prefix '1st' cannot begin a name in C"),
        (["--to", "onnx", "--prefix", "a"], "--prefix is for --to c"),
        (
            ["--to", "c", "--blob"],
            "--blob puts integer weights in a file of their own: give it with --to c and",
        ),
        (["--to", "c", "--qat", "10"], "--qat 10 fine-tunes integer weights: give it with --weights int8 or int16"),
        (["--to", "c", "--quantise", "int8"], "are limits of chips, for --to nir; --to c has --weights int8"),
        (["--to", "nir", "--quantise", "int4"], "--quantise int4 is not known; it can be int8 or int16"),
        (
            ["--to", "nir", "--max-neurons", "100"],
            "has 138 neurons (64 + 64 + 10), and --max-neurons allows 100",
        ),
        (["--to", "nir", "--max-fan-in", "64"], "a neuron of layer 1 has 110 inputs, and --max-fan-in allows 64"),
        (["--to", "nir", "--max-fan-in", "0"], "--max-fan-in must be at least 1, got 0"),
        (["--to", "c", "--tolerance", "95"], "--tolerance is a share of the return, between 0 and 1; got 95"),
        (["--to", "c", "--observations", "0"], "--observations must be at least 1, got 0"),
        (["--to", "c", "--out", "file/policy.c"], "cannot make the directory file: File exists; choose another --out"),
        (
            ["--to", "numpy", "--out", "policy.c"],
            "--out policy.c ends as files of --to c do, and this is --to numpy; choose policy.npz, or --to c",
        ),
        (["--to", "c", "--out", "policy.NPZ"], "choose policy.c, or --to numpy"),
        (["--to", "c", "--out", "."], "is a directory; give the name of a file"),
    ],
)
def test_mistakes(carebn, words, sentence):
    Path("file").touch()
    out = [] if "--out" in words else ["--out", "policy"]
    assert_one_sentence(carebn("export", TRAINED, *words, *out), sentence)


def test_a_directory_is_made_as_by_every_command(carebn):
    assert carebn("export", TRAINED, "--to", "numpy", "--out", "new/deep/policy.npz")[0] == 0
    assert sorted(os.listdir("new/deep")) == ["policy.npz", "policy.npz.json"]


def test_an_unwritable_directory(carebn, monkeypatch):
    os.mkdir("locked")
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write anywhere
    assert_one_sentence(carebn("export", TRAINED, "--to", "c", "--out", "locked/policy.c"), "no permission to write")


def test_a_full_disk(carebn, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    said = carebn("export", TRAINED, "--to", "numpy", "--out", "policy.npz")
    assert_one_sentence(said, "cannot write policy.npz: No space left on device")


def test_not_a_run(carebn):
    assert_one_sentence(carebn("export", ".", "--to", "c", "--out", "policy.c"), "is not a run directory")


def test_unfinished_and_untrained_runs_come_with_a_warning(carebn, tmp_path):
    """A run that was stopped after its first checkpoint; its replay gives the observations."""
    config = TrainConfig(
        env_id="InvertedPendulum-v4",
        total_timesteps=60,
        learning_starts=20,
        hidden=(8,),
        batch_size=8,
        eval_episodes=1,
        recalibration_batches=2,
        checkpoint_interval=30,
        run_dir=tmp_path / "run",
        quiet=True,
    )
    Run(config).train()
    words = ("export", "run", "--to", "numpy", "--out", "p.npz", "--observations", "50")
    code, out, err = carebn(*words)
    assert (code, err) == (0, "")
    assert "50 observations of the run's replay: 50 of 50 observations agree" in out
    info = deploy.load("p.npz").info
    last = json.loads([row for row in Path("run/metrics.jsonl").read_text().splitlines() if "eval/mean" in row][-1])
    assert (info["trained_steps"], info["mean_return"]) == (60, last["eval/mean_return"])
    shutil.rmtree("run/checkpoint/000000060")
    code, _, err = carebn(*words)
    assert (code, err) == (0, "warning: the training of run is unfinished: step 30 of 60\n")
    os.rename("run/checkpoint/000000030", "run/checkpoint/000000020")
    code, _, err = carebn(*words)
    assert (code, err) == (0, "warning: the policy of run is untrained: at step 20 its random warm-up was not over\n")
    next(Path("run/replay").iterdir()).write_bytes(b"damaged")
    assert carebn(*words)[2].splitlines()[-1].startswith("carebn: the run's replay cannot be read")
    segment = next(Path("run/replay").iterdir())
    segment.unlink()
    os.mkfifo(segment)
    assert "it is a named pipe, not a file" in carebn(*words)[2].splitlines()[-1]
