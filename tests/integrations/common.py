"""What the three libraries' tests share: a small task, and looks into the norms of a network."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from carebn import CaReBN, recalibrate

T, N, C, HIDDEN, CLASSES = 5, 32, 8, 16, 3

Pass = Callable[[nn.Module, Tensor], Tensor]  # (network, input [T, N, C]) → outputs [T, N, classes], from a fresh state


def sequence(batch: int = N, seed: int = 0) -> Tensor:
    """Noisy repetitions of one vector per sample, off centre and of unequal scales, so that normalising matters."""
    generator = torch.Generator().manual_seed(seed)
    vector = torch.randn(batch, C, generator=generator)
    noise = torch.randn(T, batch, C, generator=generator)
    return (vector + 0.3 * noise) * torch.linspace(0.5, 2.0, C) + torch.linspace(-1.0, 1.0, C)


def labels(x: Tensor) -> Tensor:
    return x.mean(0)[:, :CLASSES].argmax(-1)


def norms(net: nn.Module) -> list[CaReBN]:
    return [m for m in net.modules() if isinstance(m, CaReBN)]


def statistics(net: nn.Module) -> list[dict[str, Tensor]]:
    """A copy of all the buffers of every norm."""
    return [{name: b.clone() for name, b in norm.named_buffers()} for norm in norms(net)]


def same(a: list[dict[str, Tensor]], b: list[dict[str, Tensor]]) -> bool:
    pairs = zip(a, b, strict=True)
    return all(x.keys() == y.keys() and all(torch.equal(x[name], y[name]) for name in x) for x, y in pairs)


def updates(net: nn.Module) -> list[int]:
    return [int(norm.num_batches_tracked) for norm in norms(net)]


def batch_normalised(norm: CaReBN, x: Tensor) -> Tensor:
    """What torch makes of x with the statistics of all its rows together."""
    rows = F.batch_norm(x.flatten(0, -2), None, None, norm.weight, norm.bias, training=True, eps=norm.eps)
    return rows.view_as(x)


@contextmanager
def recorded(net: nn.Module) -> Iterator[list[list[tuple[Tensor, Tensor]]]]:
    """Inputs and outputs of all calls of every norm."""
    calls: list[list[tuple[Tensor, Tensor]]] = [[] for _ in norms(net)]

    def listen(to: list[tuple[Tensor, Tensor]]) -> Callable[[nn.Module, Any, Tensor], None]:
        return lambda module, args, out: to.append((args[0].detach().clone(), out.detach().clone()))

    hooks = [norm.register_forward_hook(listen(to)) for norm, to in zip(norms(net), calls, strict=True)]
    try:
        yield calls
    finally:
        for hook in hooks:
            hook.remove()


def train(net: nn.Module, run: Pass, steps: int = 25) -> tuple[float, float]:
    """A few steps of Adam; the first and the last loss."""
    x = sequence()
    y = labels(x)
    optimiser = torch.optim.Adam(net.parameters(), lr=2e-2)
    losses = []
    net.train()
    for _ in range(steps):
        loss = F.cross_entropy(run(net, x).mean(0), y)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses[0], losses[-1]


def check_learns(net: nn.Module, run: Pass) -> None:
    first, last = train(net, run)
    assert last < 0.8 * first


def check_gradients(net: nn.Module, run: Pass) -> None:
    """Every weight, and the norms' bias, gets one. (A bias in front of a norm cancels, so it is not asked.)"""
    net.train()
    x = sequence().requires_grad_()
    F.cross_entropy(run(net, x).mean(0), labels(x)).backward()
    weights = [m.weight for m in net.modules() if isinstance(m, (nn.Linear, CaReBN))]
    for tensor in (x, *weights, *(norm.bias for norm in norms(net))):
        assert tensor.grad is not None
        assert torch.isfinite(tensor.grad).all()
        assert tensor.grad.abs().sum() > 0


def check_modes(net: nn.Module, run: Pass, updates_per_pass: int) -> None:
    """Training: the batch's statistics, whatever the moving ones are, and updates. Inference: the moving ones only."""
    x = sequence()
    net.train()
    before = updates(net)
    with torch.no_grad(), recorded(net) as calls:
        trained = run(net, x)
    for norm, of_norm in zip(norms(net), calls, strict=True):
        assert len(of_norm) == updates_per_pass
        for given, out in of_norm:
            torch.testing.assert_close(out, batch_normalised(norm, given))
    assert updates(net) == [n + updates_per_pass for n in before]
    moved = statistics(net)
    with torch.no_grad():
        for norm in norms(net):
            norm.running_mean.add_(3.0)
        torch.testing.assert_close(run(net, x), trained)
        for norm, saved in zip(norms(net), moved, strict=True):
            norm.load_state_dict(saved, strict=False)
        net.eval()
        with recorded(net) as calls:
            run(net, x)
    for norm, of_norm in zip(norms(net), calls, strict=True):
        for given, out in of_norm:
            scale = norm.weight / (norm.running_var + norm.eps).sqrt()
            torch.testing.assert_close(out, (given - norm.running_mean) * scale + norm.bias)
    assert same(statistics(net), moved)


def check_state_dict(make: Callable[[], nn.Module], run: Pass) -> None:
    """Into a file and into a new network: the same statistics, the same outputs."""
    net, other = make(), make()
    train(net, run, steps=3)
    other.load_state_dict({name: tensor.clone() for name, tensor in net.state_dict().items()})
    assert same(statistics(other), statistics(net))
    net.eval()
    other.eval()
    x = sequence(seed=1)
    with torch.no_grad():
        assert torch.equal(run(net, x), run(other, x))


def check_recalibration(net: nn.Module, run: Pass) -> None:
    """Exactly the statistics of all that each norm was shown, from batches of unequal sizes; nothing else moves."""
    train(net, run, steps=2)
    before = statistics(net)
    batches = [sequence(size, seed=size) for size in (4, 16, 9)]
    with recorded(net) as calls:
        assert recalibrate(net, batches, forward=run) == len(norms(net))
    for norm, of_norm, old in zip(norms(net), calls, before, strict=True):
        shown = torch.cat([given.flatten(0, -2) for given, _ in of_norm]).double()
        assert shown.shape[0] == T * (4 + 16 + 9)
        torch.testing.assert_close(norm.running_mean.double(), shown.mean(0), rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(norm.running_var.double(), shown.var(0, correction=0), rtol=1e-5, atol=1e-6)
        for kept in ("error_mean", "error_var", "num_batches_tracked"):
            assert torch.equal(norm.get_buffer(kept), old[kept])
    assert all(module.training for module in net.modules())
