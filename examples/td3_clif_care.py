"""TD3 with a spiking actor (CLIF neurons, CaRe-BN) on Hopper: one file, everything visible, in CleanRL's manner.

    python examples/td3_clif_care.py --env-id Hopper-v4 --seed 0

It computes what ``carebn train --env-id Hopper-v4 --algo td3 --method care-bn --neuron clif --seed 0 --threads 1``
computes: the same evaluations and the same policy, byte for byte. What ``carebn train`` does besides, and this does
not: checkpoints and resuming, the best policy on the way, checks of what the environment gives and of losses that are
not finite, other kinds of observation than a flat Box, and a shorter warm-up in shorter runs.
"""

import json
import time
import warnings
from collections import defaultdict
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

import gymnasium as gym
import numpy as np
import torch
import tyro
from safetensors.torch import save_file
from torch import nn

from carebn import SpikingActor, polyak_, recalibrate
from carebn.network import TwinCritic
from carebn.network.inference import FastActor


@dataclass
class Args:
    env_id: str = "Hopper-v4"
    """the environment: flat observations, finite continuous actions"""
    seed: int = 0
    """all randomness comes from it"""
    total_timesteps: int = 1_025_000
    """environment steps, random warm-up included"""
    learning_starts: int = 25_000
    """steps with uniformly random actions before learning starts"""
    run_dir: Path = Path("runs/td3_clif_care")
    """where metrics.jsonl and policy.safetensors go"""

    # Algorithm specific arguments: the paper's tables
    buffer_size: int = 1_000_000
    """transitions kept for replay"""
    batch_size: int = 256
    """transitions per update"""
    gamma: float = 0.99
    """discount"""
    tau: float = 0.005
    """how fast target networks follow"""
    learning_rate: float = 3e-4
    """step size of Adam, actor and critics"""
    exploration_noise: float = 0.1
    """noise on actions, relative to half their range"""
    policy_noise: float = 0.2
    """noise on the target's actions, relative to half their range"""
    noise_clip: float = 0.5
    """the most of it"""
    policy_frequency: int = 2
    """updates of the critics per update of the actor"""
    hidden: tuple[int, ...] = (256, 256)
    """hidden layers of the actor"""
    time_steps: int = 5
    """simulation steps per decision"""

    eval_interval: int = 5_000
    """steps between evaluations, with re-calibration just before each"""
    eval_episodes: int = 10
    """noise-free episodes per evaluation, always the same ones"""
    recalibration_batches: int = 100
    """replay batches per re-calibration"""


# One seed, a tree of streams: the branches, in the order of their numbers
NETWORKS, WARM_UP, EXPLORE, UPDATE, RECALIBRATE, EPISODES, EVALUATION = range(7)


def stream(seed: int, branch: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(branch,))))


def number(seed: int, *path: int) -> int:
    return int(np.random.SeedSequence(seed, spawn_key=path).generate_state(1)[0] >> 1)


def normal(rng: np.random.Generator, like: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(rng.standard_normal(like.shape, dtype=np.float32))


def target_of(network: nn.Module) -> nn.Module:
    """In evaluation mode for ever: a target normalises with its moving statistics."""
    return deepcopy(network).eval().requires_grad_(False)


class Replay:
    def __init__(self, capacity: int, obs_dim: int, action_dim: int) -> None:
        widths = {"obs": obs_dim, "action": action_dim, "reward": 1, "next_obs": obs_dim, "terminated": 1}
        self.rows = {name: torch.zeros(capacity, width) for name, width in widths.items()}
        self.capacity, self.added = capacity, 0

    def add(self, **transition: object) -> None:
        for name, value in transition.items():
            self.rows[name][self.added % self.capacity] = torch.as_tensor(value, dtype=torch.float32)
        self.added += 1

    def sample(self, batch: int, rng: np.random.Generator, *names: str) -> list[torch.Tensor]:
        index = torch.from_numpy(rng.integers(0, min(self.added, self.capacity), batch))
        return [self.rows[name].index_select(0, index) for name in names]


def evaluate(act: FastActor, envs: list[gym.Env], seeds: list[int]) -> list[float]:
    """One noise-free episode in each environment."""
    returns = []
    for env, seed in zip(envs, seeds, strict=True):
        (obs, _), over, total = env.reset(seed=seed), False, 0.0
        while not over:
            obs, reward, terminated, truncated, _ = env.step(act(obs[None])[0])
            over, total = terminated or truncated, total + float(reward)
        returns.append(total)
    return returns


def make(env_id: str) -> gym.Env:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the paper's tasks are the -v4 ones
        return gym.make(env_id)


def train(args: Args) -> tuple[SpikingActor, list[dict[str, object]]]:
    torch.set_num_threads(1)
    args.run_dir.mkdir(parents=True, exist_ok=True)
    metrics: list[dict[str, object]] = []

    # TRY NOT TO MODIFY: seeding and environments
    env, eval_envs = make(args.env_id), [make(args.env_id) for _ in range(args.eval_episodes)]
    eval_seeds = [number(args.seed, EVALUATION, i) for i in range(args.eval_episodes)]
    warm_up, explore, update, calibrate = (stream(args.seed, b) for b in (WARM_UP, EXPLORE, UPDATE, RECALIBRATE))
    obs_dim, space = env.observation_space.shape[0], env.action_space
    low, high = torch.from_numpy(space.low), torch.from_numpy(space.high)
    reach, action_dim = (high - low) / 2, len(low)

    # ALGO LOGIC: initialise agent
    torch.manual_seed(number(args.seed, NETWORKS))
    # tanh → Gaussian receptive fields → spikes; Linear → CaRe-BN → CLIF, three times; membranes → tanh → [low, high]
    actor = SpikingActor(
        obs_dim, action_dim, norm="care", neuron="clif", hidden=args.hidden, time_steps=args.time_steps,
        low=low, high=high,
    )  # fmt: skip
    critic = TwinCritic(obs_dim, action_dim)
    actor_target, critic_target = target_of(actor), target_of(critic)
    actor_optimiser = torch.optim.Adam(actor.parameters(), lr=args.learning_rate, fused=True)
    critic_optimiser = torch.optim.Adam(critic.parameters(), lr=args.learning_rate, fused=True)
    act = FastActor(actor)  # the same network with its moving statistics, from numpy to numpy
    replay = Replay(min(args.buffer_size, args.total_timesteps), obs_dim, action_dim)

    began, updates, episode, episode_return = time.time(), 0, 0, 0.0
    losses: dict[str, float] = defaultdict(float)
    obs, _ = env.reset(seed=number(args.seed, EPISODES, episode))
    for step in range(1, args.total_timesteps + 1):
        # ALGO LOGIC: put action logic here
        if step <= args.learning_starts:
            action = warm_up.uniform(space.low, space.high).astype(np.float32)
        else:
            action = act(obs[None])[0]
            noise = explore.standard_normal((1, action_dim), dtype=np.float32)[0]
            action = np.clip(action + args.exploration_noise * reach.numpy() * noise, space.low, space.high)

        # TRY NOT TO MODIFY: execute the step, store it; a time limit is no end of the task, so it is not stored as one
        next_obs, reward, terminated, truncated, _ = env.step(action)
        replay.add(obs=obs, action=action, reward=reward, next_obs=next_obs, terminated=terminated)
        obs, episode_return = next_obs, episode_return + float(reward)

        # ALGO LOGIC: training
        if step > args.learning_starts:
            o, a, r, o_next, ended = replay.sample(args.batch_size, update, *replay.rows)
            with torch.no_grad():
                clipped = (normal(update, a) * args.policy_noise).clamp(-args.noise_clip, args.noise_clip)
                a_next = torch.clamp(actor_target(o_next) + clipped * reach, low, high)
                q_next = critic_target(o_next, a_next).amin(0)
                q_target = r[:, 0] + args.gamma * (1 - ended[:, 0]) * q_next
            _, critic_loss, gradients = critic.squared_error(o, a, q_target)  # of both, against the same target
            for parameter, gradient in zip(critic.parameters(), gradients, strict=True):
                parameter.grad = gradient.contiguous()
            critic_optimiser.step()
            losses["losses/qf_loss"] = float(critic_loss)
            updates += 1
            if updates % args.policy_frequency == 0:
                a_new = actor(o)  # in training mode: the batch's statistics, and the only pass that moves the others
                value, slope = critic.first_and_slope(o, a_new.detach())
                actor_optimiser.zero_grad()
                a_new.backward(slope / -len(o))  # the loss is the mean of −value
                actor_optimiser.step()
                losses["losses/actor_loss"] = -float(value.mean())
                polyak_(actor_target, actor, args.tau)  # moving statistics too
                polyak_(critic_target, critic, args.tau)

        if terminated or truncated:
            metrics.append({"step": step, "charts/episodic_return": episode_return})
            episode, episode_return = episode + 1, 0.0
            obs, _ = env.reset(seed=number(args.seed, EPISODES, episode))

        # ALGO LOGIC: re-calibration, then evaluation
        if step % args.eval_interval == 0 or step == args.total_timesteps:
            batches = (replay.sample(args.batch_size, calibrate, "obs")[0] for _ in range(args.recalibration_batches))
            recalibrate(actor, batches)
            returns = evaluate(act, eval_envs, eval_seeds)
            mean = float(np.mean(returns))
            metrics.append({"step": step, "eval/mean_return": mean, "returns": returns, **losses})
            print(f"step {step:,}  return {mean:.1f}  {step / (time.time() - began):.0f} steps a second", flush=True)
            (args.run_dir / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in metrics))
            save_file(actor.state_dict(), args.run_dir / "policy.safetensors")
    for one in (env, *eval_envs):
        one.close()
    return actor, metrics


if __name__ == "__main__":
    train(tyro.cli(Args))
