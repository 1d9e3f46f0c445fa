"""Train a spiking actor with CaRe-BN to imitate a control law, in about half a minute.

The law is a smooth, non-linear function of six observations: two angles, their velocities and two disturbances. The
error shown is that of the deployed policy: eval mode, moving statistics.
"""

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("Agg")  # no screen needed
import matplotlib.pyplot as plt
import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from safetensors.torch import save_file
from torch import Tensor

from carebn import SpikingActor, recalibrate


def law(obs: Tensor) -> Tensor:
    """Two torques from two angles, their velocities, and two disturbances."""
    angle, velocity, push = obs[:, 0:2], obs[:, 2:4] / 3, obs[:, 4:6]
    return torch.tanh(torch.sin(2 * angle) - velocity + 0.5 * push * angle.flip(1))


def observations(batch: int, generator: torch.Generator) -> Tensor:
    return torch.randn(batch, 6, generator=generator) * torch.tensor([1.0, 1.0, 3.0, 3.0, 0.5, 0.5])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1500, help="training steps (default: 1500)")
    parser.add_argument("--norm", default="care", help="normaliser: care, bn, none, ... (default: care)")
    parser.add_argument("--neuron", default="clif", help="neuron: clif, lif, dn (default: clif)")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="threads to use (default: all)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/imitate"), help="where the results go")
    options = parser.parse_args()

    if options.steps < 1 or options.threads < 1:
        parser.error("--steps and --threads must be at least 1")
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    generator = torch.Generator().manual_seed(options.seed)
    try:
        actor = SpikingActor(6, 2, norm=options.norm, neuron=options.neuron)
    except ValueError as mistake:
        parser.error(str(mistake))
    optimiser = torch.optim.Adam(actor.parameters(), lr=1e-3, fused=True)
    held_out = observations(4096, generator)
    curve: list[tuple[int, float]] = []

    console = Console()
    columns = (TextColumn("training"), BarColumn(), TextColumn("{task.completed}/{task.total} steps"))
    columns += (TextColumn("error {task.fields[error]:.4f}"), TimeRemainingColumn())  # type: ignore[assignment]
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=options.steps, error=float("nan"))
        for step in range(1, options.steps + 1):
            obs = observations(256, generator)
            actor.train()
            loss = (actor(obs) - law(obs)).square().mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            if step % 50 == 0 or step == options.steps:
                actor.eval()
                with torch.no_grad():
                    error = (actor(held_out) - law(held_out)).square().mean().item()
                curve.append((step, error))
                progress.update(task, error=error)
            progress.advance(task)

    recalibrate(actor, [held_out[i : i + 256] for i in range(0, len(held_out), 256)])
    actor.eval()
    with torch.no_grad():
        final = (actor(held_out) - law(held_out)).square().mean().item()
        variance = law(held_out).var().item()

    options.out.mkdir(parents=True, exist_ok=True)
    policy, picture = options.out / "policy.safetensors", options.out / "curve.png"
    save_file(actor.state_dict(), policy)
    figure, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
    axes.semilogy(*zip(*curve, strict=True))
    axes.set(xlabel="training step", ylabel="squared error of the policy", title=f"{options.neuron} + {options.norm}")
    axes.grid(alpha=0.3)
    figure.savefig(picture, dpi=150)

    console.print(f"error on fresh observations: {final:.4f} (a constant action would have {variance:.4f})")
    console.print(f"learning curve: {picture}\npolicy: {policy}")
    console.print("next: python examples/imitate.py --norm none    (the same without a normaliser)")


if __name__ == "__main__":
    main()
