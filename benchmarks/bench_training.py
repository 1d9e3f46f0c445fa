"""Environment steps per second of the whole training loop, beside others' and the bare matrix products.

    python benchmarks/bench_training.py [--quick] [--out results/bench_training.json]

For Ant-v4 and Hopper-v4, on one and on two threads: one step is act, env.step, store, update, in the state of a run
past its warm-up. Stable-Baselines3's TD3 comes twice: as it is shipped (400-300), and with our 256-256. RLtools (C++,
compiled for the task when it is first measured) and SBX (JAX) have 256-256 too, where they are installed: pip install
'.[fastest]', and for RLtools a C++ compiler and Python's headers. All learn from batches of 256, once a step, in the
same Gymnasium environment. Contestants take turns in short slices, those two in processes of their own, and the best
slice of each counts, because the machine may be shared. The floor is the matrix products that one TD3 step cannot do
without, with preallocated outputs.

Also: two one-thread runs at once, the latency of one ``predict``, what share of a run goes to evaluation,
re-calibration and checkpoints at the paper's settings, and the memory of a million Ant transitions.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise
from pathlib import Path
from typing import Any

ENVS = ("Ant-v4", "Hopper-v4")
SLICE = 20  # steps a contestant runs before the next one has its turn
BATCH, TIME_STEPS, HIDDEN = 256, 5, 256


def floor_step(obs_dim: int, action_dim: int, spiking: bool) -> Callable[[], None]:
    """The products of one TD3 update and one action, averaged over the delayed actor update."""
    import torch

    rows = TIME_STEPS * BATCH if spiking else BATCH
    sizes = (obs_dim * 10, HIDDEN, HIDDEN, action_dim * 10) if spiking else (obs_dim, HIDDEN, HIDDEN, action_dim)
    steps = TIME_STEPS if spiking else 1

    def product(n: int, k: int, m: int, batch: int = 0) -> tuple[Any, Any, Any]:
        shape = (batch,) if batch else ()
        return torch.randn(*shape, n, k), torch.randn(*shape, k, m), torch.empty(*shape, n, m)

    pairs = list(pairwise(sizes))
    act = [product(steps, a, b) for a, b in pairs]
    actor_forward = [product(rows, a, b) for a, b in pairs]
    actor_backward = [product(b, rows, a) for a, b in pairs] + [product(rows, b, a) for a, b in pairs[1:]]
    if spiking:  # the gradient to the encoder, summed over time first; an ordinary actor's input needs none
        actor_backward.append(product(BATCH, HIDDEN, sizes[0]))
    inputs = obs_dim + action_dim
    twin_forward = [product(BATCH, inputs, 2 * HIDDEN), product(BATCH, HIDDEN, HIDDEN, 2), product(BATCH, HIDDEN, 1, 2)]
    twin_backward = [
        product(2 * HIDDEN, BATCH, inputs),
        *(product(HIDDEN, BATCH, HIDDEN, 2), product(BATCH, HIDDEN, HIDDEN, 2)),
        *(product(1, BATCH, HIDDEN, 2), product(BATCH, 1, HIDDEN, 2)),
    ]
    single = [(inputs, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, 1)]
    critic_for_actor = [product(BATCH, a, b) for a, b in single] + [product(BATCH, b, a) for a, b in single]
    every = [*act, *actor_forward, *twin_forward, *twin_forward, *twin_backward]  # target actor and critic, critic
    second = [*actor_forward, *actor_backward, *critic_for_actor]
    turn = 0

    def step() -> None:
        nonlocal turn
        turn += 1
        for a, b, out in every if turn % 2 else [*every, *second]:
            torch.matmul(a, b, out=out)

    return step


def our_run(env_id: str, method: str, threads: int, directory: Path) -> Any:
    from carebn.training import Run, TrainConfig

    config = TrainConfig(
        env_id=env_id,
        method=method,
        threads=threads,
        learning_starts=1000,
        total_timesteps=10**6,
        eval_episodes=1,
        run_dir=directory / f"{env_id}-{method}",
        quiet=True,
    )
    run = Run(config)
    run.open()
    for _ in range(1010):
        run.make_step()
    return run


SB3, SB3_SAME = "stable-baselines3 ann", "stable-baselines3 ann, 256-256"
MISSING = "not installed"
RLTOOLS, SBX = "rltools ann, 256-256", "sbx ann, 256-256"


Steps = Callable[[int], None]  # makes so many


def sb3_steps(env_id: str, **options: Any) -> Steps:
    """Its TD3 as it comes (networks of 400-300, batch 256), with one update per step as ours."""
    from stable_baselines3 import TD3

    return learning(TD3, env_id, **options)


def sbx_steps(env_id: str) -> Steps:
    """Stable-Baselines3 in JAX."""
    from sbx import TD3

    return learning(TD3, env_id, policy_kwargs={"net_arch": [HIDDEN, HIDDEN]})


def rltools_steps(env_id: str) -> Steps:
    """Compiled for this environment's sizes; it calls Python for the environment alone."""
    import gymnasium as gym
    from rltools import TD3

    def make() -> Any:
        env = gym.wrappers.RescaleAction(gym.make(env_id), -1, 1)
        env.reset(seed=0)
        return env

    # What it compiled is kept under this name: that without MKL is many times slower.
    name = f"carebn_{env_id.split('-')[0].lower()}_{'plain' if version_of('mkl') == MISSING else 'mkl'}"
    made = TD3(
        make, interface_name=name, enable_evaluation=False, STEP_LIMIT=10**6,
        REPLAY_BUFFER_CAP=100_000, N_WARMUP_STEPS=300, ACTOR_BATCH_SIZE=BATCH, CRITIC_BATCH_SIZE=BATCH,
        ACTOR_HIDDEN_DIM=HIDDEN, CRITIC_HIDDEN_DIM=HIDDEN, ACTOR_NUM_LAYERS=3, CRITIC_NUM_LAYERS=3,
    )  # fmt: skip
    state = made.State(0)

    def steps(number: int) -> None:
        for _ in range(number):
            state.step()

    steps(310)
    return steps


APART = {RLTOOLS: rltools_steps, SBX: sbx_steps}


def apart(name: str, env_id: str, threads: int) -> None:
    """One that has a process of its own: with torch in it RLtools cannot be loaded, and JAX takes every core that it
    sees. It makes a slice whenever it is asked, and answers in seconds per step."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # both print now and then, RLtools from C++: that is no answer

    def say(text: object) -> None:
        print(text, file=answers, flush=True)

    try:
        steps = APART[name](env_id)
    except Exception as error:  # not installed, or no compiler, or of another version
        say("left out: " + f"{type(error).__name__}: {error}".splitlines()[0])
        return
    say("ready")
    for line in sys.stdin:
        if line.strip() == "stop":
            return
        began = time.perf_counter()
        steps(SLICE)
        say((time.perf_counter() - began) / SLICE)


def learning(algorithm: Any, env_id: str, **options: Any) -> Steps:
    """TD3 with Stable-Baselines3's arguments, past its warm-up and what it compiles."""
    import gymnasium as gym
    import numpy as np
    from stable_baselines3.common.noise import NormalActionNoise

    env = gym.make(env_id)
    shape = env.action_space.shape
    assert shape is not None
    model = algorithm(
        "MlpPolicy",
        env,
        learning_starts=100,
        batch_size=BATCH,
        buffer_size=100_000,
        train_freq=1,
        gradient_steps=1,
        action_noise=NormalActionNoise(np.zeros(shape), 0.1 * np.ones(shape)),
        device="cpu",
        seed=0,
        **options,
    )
    model.learn(300)

    def steps(number: int) -> None:
        model.learn(number, reset_num_timesteps=False)

    return steps


def measure(threads: int, rounds: int) -> dict[str, Any]:
    """Seconds per step of every contestant, in this process."""
    import torch

    torch.set_num_threads(threads)
    left_out: dict[str, str] = {}
    results: dict[str, Any] = {"left out": left_out}
    with tempfile.TemporaryDirectory() as scratch:
        for env_id in ENVS:
            spiking = our_run(env_id, "care-bn", threads, Path(scratch))
            ann = our_run(env_id, "ann", threads, Path(scratch))
            contestants: dict[str, Callable[[], None]] = {
                "floor spiking": floor_step(spiking.spaces.obs_dim, len(spiking.spaces.low), True),
                "floor ann": floor_step(spiking.spaces.obs_dim, len(spiking.spaces.low), False),
                "carebn spiking": spiking.make_step,
                "carebn ann": ann.make_step,
            }
            theirs: dict[str, Steps] = {}
            try:
                theirs[SB3] = sb3_steps(env_id)
                theirs[SB3_SAME] = sb3_steps(env_id, policy_kwargs={"net_arch": [HIDDEN, HIDDEN]})
            except ImportError as error:
                left_out[SB3] = str(error)
            processes = {}
            for name in APART:
                words = ("--task", "apart", "--name", name, "--env-id", env_id, "--threads", str(threads))
                process = child(*words, threads=threads)
                said = answer(process)
                if said == "ready":
                    processes[name] = process
                else:
                    left_out[name] = said.removeprefix("left out: ") or "it ended at once"
            best = dict.fromkeys([*contestants, *theirs, *processes], float("inf"))
            for _ in range(rounds):
                for name, step in contestants.items():
                    began = time.perf_counter()
                    for _ in range(SLICE):
                        step()
                    best[name] = min(best[name], (time.perf_counter() - began) / SLICE)
                for name, steps in theirs.items():
                    began = time.perf_counter()
                    steps(SLICE)
                    best[name] = min(best[name], (time.perf_counter() - began) / SLICE)
                for name, process in processes.items():
                    ask(process, "go")
                    best[name] = min(best[name], float(answer(process)))
            for process in processes.values():
                ask(process, "stop")
                process.wait()
            results[env_id] = best
            if threads == 1:
                results[f"{env_id} predict"] = predict_latency(spiking)
            for run in (spiking, ann):
                run.close()
    return results


def predict_latency(run: Any) -> float:
    import numpy as np

    from carebn.training.policy import Policy

    policy = Policy(run.agent.policy, run.config, run.spaces.obs_dim, run.spaces.obs_dtype)
    obs = np.zeros(run.spaces.obs_dim, np.float32)
    best = float("inf")
    for _ in range(2000):
        began = time.perf_counter()
        policy.predict(obs)
        best = min(best, time.perf_counter() - began)
    run.agent.policy.train().requires_grad_(True)
    return best


def together(seconds: float) -> dict[str, float]:
    """One one-thread run's speed, alone or beside another: the parent decides."""
    import torch

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        run = our_run("Ant-v4", "care-bn", 1, Path(scratch))
        print("ready", flush=True)
        for line in sys.stdin:
            if line.strip() == "stop":
                break
            best, until = float("inf"), time.perf_counter() + seconds
            while time.perf_counter() < until:
                began = time.perf_counter()
                for _ in range(SLICE):
                    run.make_step()
                best = min(best, (time.perf_counter() - began) / SLICE)
            print(best, flush=True)
        run.close()
    return {}


def overhead(steps: int) -> dict[str, float]:
    """Seconds per evaluation with re-calibration and per checkpoint, at the paper's settings, against the loop's."""
    import torch

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        from carebn.training import Run, TrainConfig

        run = Run(
            TrainConfig(env_id="Ant-v4", threads=1, learning_starts=5000, run_dir=Path(scratch) / "r", quiet=True)
        )
        run.open()
        for _ in range(5000):
            run.make_step()
        began = time.perf_counter()
        for _ in range(steps):
            run.make_step()
        per_step = (time.perf_counter() - began) / steps
        run.evaluate()
        run.save()
        spent = dict(run.spent)
        run.close()
    interval = 5000 * per_step
    return {**spent, "interval": interval, "share": sum(spent.values()) / (interval + sum(spent.values()))}


def child(*arguments: str, threads: int) -> subprocess.Popen[str]:
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
    environment = {**os.environ, **dict.fromkeys(names, str(threads))}
    command = [sys.executable, __file__, *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True, env=environment)


def ask(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdin is not None
    process.stdin.write(word + "\n")
    process.stdin.flush()


def answer(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def two_at_once(cycles: int, seconds: float) -> tuple[float, float]:
    """What each of two one-thread runs keeps of the speed of one alone."""
    pair = [child("--task", "together", "--seconds", str(seconds), threads=1) for _ in range(2)]
    for process in pair:
        answer(process)
    alone, both = [float("inf")] * 2, [float("inf")] * 2
    for _ in range(cycles):
        for i, process in enumerate(pair):
            ask(process, "go")
            alone[i] = min(alone[i], float(answer(process)))
        for process in pair:
            ask(process, "go")
        for i, process in enumerate(pair):
            both[i] = min(both[i], float(answer(process)))
    for process in pair:
        ask(process, "stop")
        process.wait()
    return alone[0] / both[0], alone[1] / both[1]


def version_of(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return MISSING


def versions() -> dict[str, str]:
    names = ("torch", "numba", "gymnasium", "mujoco", "stable-baselines3", "rltools", "mkl", "sbx-rl", "jax")
    about = {"python": platform.python_version(), "cpus": str(os.cpu_count())}
    return about | {name: version_of(name) for name in names}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    parser.add_argument("--task", choices=("measure", "apart", "together", "overhead"), help=argparse.SUPPRESS)
    parser.add_argument("--threads", type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument("--name", choices=tuple(APART), help=argparse.SUPPRESS)
    parser.add_argument("--env-id", help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=10, help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=5.0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.task == "measure":
        print(json.dumps(measure(options.threads, options.rounds)))
        return
    if options.task == "apart":
        apart(options.name, options.env_id, options.threads)
        return
    if options.task == "together":
        together(options.seconds)
        return
    if options.task == "overhead":
        print(json.dumps(overhead(options.rounds)))
        return

    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else 120)
    rounds = 6 if options.quick else 20
    results: dict[str, Any] = {"versions": versions()}
    table = Table(title="Training, one environment step: act, step, store, update")
    for column in ("", "ms", "steps/s", "÷ floor", "× Stable-Baselines3's ANN", "× the same with 256-256"):
        table.add_column(column, justify="left" if not column else "right")
    for threads in (1, 2):
        process = child("--task", "measure", "--threads", str(threads), "--rounds", str(rounds), threads=threads)
        measured = json.loads(process.communicate()[0])
        results[f"threads {threads}"] = measured
        for name, why in measured.pop("left out").items():
            console.print(f"{threads} thread{'s' * (threads > 1)}: {name} is left out ({why})")
        for env_id in ENVS:
            best = measured[env_id]
            table.add_section()
            table.add_row(f"[bold]{env_id}, {threads} thread{'s' * (threads > 1)}")
            for name, seconds in best.items():
                floor = best["floor spiking" if "spiking" in name else "floor ann"]
                times = [f"{best[sb3] / seconds:.2f}" if sb3 in best else "not installed" for sb3 in (SB3, SB3_SAME)]
                table.add_row(name, f"{1e3 * seconds:.2f}", f"{1 / seconds:.0f}", f"{seconds / floor:.2f}", *times)
    console.print(table)
    kept = two_at_once(2 if options.quick else 5, 4.0)
    results["two at once"] = kept
    console.print(f"two one-thread runs at once keep {100 * kept[0]:.0f} % and {100 * kept[1]:.0f} % of one's speed")
    results["overhead"] = json.loads(
        child("--task", "overhead", "--rounds", "200" if options.quick else "500", threads=1).communicate()[0]
    )
    console.print(
        f"evaluation, re-calibration and checkpoints: {100 * results['overhead']['share']:.1f} % of the time on Ant-v4 "
        f"at the paper's settings"
    )
    latency = results["threads 1"]["Ant-v4 predict"]
    console.print(f"predict, one Ant observation: {1e3 * latency:.3f} ms")

    from carebn.algorithm import ReplayBuffer

    memory = sum(a.nbytes for a in ReplayBuffer(10**6, (27,), "float32", (8,)).arrays.values())
    results["replay bytes"] = memory
    console.print(f"10⁶ Ant transitions: {memory / 1e6:.0f} MB")
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(results, indent=1) + "\n")
        console.print(f"written to {options.out}")


if __name__ == "__main__":
    main()
