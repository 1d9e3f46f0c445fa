"""Environment steps per second of the whole training loop, beside Stable-Baselines3 and the bare matrix products.

    python benchmarks/bench_training.py [--quick] [--out results/bench_training.json]

For Ant-v4 and Hopper-v4, on one and on two threads: one step is act, env.step, store, update, in the state of a run
past its warm-up. Stable-Baselines3's TD3 comes twice: as it is shipped (400-300), and with our 256-256. Contestants
take turns in short slices within one process, and the best slice of each counts, because the machine may be shared. The
floor is the matrix products that one TD3 step cannot do without, with preallocated outputs.

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


def sb3_model(env_id: str, **options: Any) -> Any:
    """Its TD3 as it comes (networks of 400-300, batch 256), with one update per step as ours."""
    import gymnasium as gym
    import numpy as np
    from stable_baselines3 import TD3
    from stable_baselines3.common.noise import NormalActionNoise

    env = gym.make(env_id)
    shape = env.action_space.shape
    assert shape is not None
    return TD3(
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


def measure(threads: int, rounds: int) -> dict[str, Any]:
    """Seconds per step of every contestant, in this process."""
    import torch

    torch.set_num_threads(threads)
    results: dict[str, Any] = {}
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
            try:
                models = {
                    SB3: sb3_model(env_id),
                    SB3_SAME: sb3_model(env_id, policy_kwargs={"net_arch": [HIDDEN, HIDDEN]}),
                }
            except ImportError:
                models = {}
            for model in models.values():
                model.learn(300)
            best = dict.fromkeys([*contestants, *models], float("inf"))
            for _ in range(rounds):
                for name, step in contestants.items():
                    began = time.perf_counter()
                    for _ in range(SLICE):
                        step()
                    best[name] = min(best[name], (time.perf_counter() - began) / SLICE)
                for name, model in models.items():
                    began = time.perf_counter()
                    model.learn(SLICE, reset_num_timesteps=False)
                    best[name] = min(best[name], (time.perf_counter() - began) / SLICE)
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


def versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "cpus": str(os.cpu_count())}
    for name in ("torch", "numba", "gymnasium", "mujoco", "stable-baselines3"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    parser.add_argument("--task", choices=("measure", "together", "overhead"), help=argparse.SUPPRESS)
    parser.add_argument("--threads", type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=10, help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=5.0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.task == "measure":
        print(json.dumps(measure(options.threads, options.rounds)))
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
