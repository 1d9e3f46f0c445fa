"""Exact moving statistics from data: one pass over some batches, every normaliser of any model."""

from collections.abc import Callable, Iterable, Sized
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from carebn.norm.base import MomentRecorder, Norm, store_


class _TorchListener:
    """Reads the batch statistics of a foreign batch norm of any layout.

    With a momentum of one its running statistics are those of the last batch, so nothing has to be known about axes.
    """

    def __init__(self, module: _BatchNorm) -> None:
        self.module = module
        self.recorder = MomentRecorder()
        self.saved = {name: buffer.clone() for name, buffer in module.named_buffers(recurse=False)}
        self.rule = module.momentum, module.track_running_stats
        module.momentum, module.track_running_stats = 1.0, True
        self.hook = module.register_forward_hook(self._listen)

    def _listen(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        mean, var = self.module.running_mean, self.module.running_var
        assert mean is not None
        assert var is not None
        samples = output.numel() // self.module.num_features
        self.recorder.add(mean, var * ((samples - 1) / samples), samples)

    def close(self) -> None:
        self.hook.remove()
        self.module.momentum, self.module.track_running_stats = self.rule
        for name, value in self.saved.items():
            getattr(self.module, name).copy_(value)


class _OwnListener:
    def __init__(self, module: Norm) -> None:
        self.module = module
        self.recorder = module._recorder = MomentRecorder()

    def close(self) -> None:
        self.module._recorder = None


def _call(model: nn.Module, batch: Any) -> Any:
    return model(*batch) if isinstance(batch, (tuple, list)) else model(batch)


@torch.no_grad()
def recalibrate(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    progress: Callable[[int, int | None], None] | None = None,
    forward: Callable[[nn.Module, Any], Any] = _call,
) -> int:
    """Replace the moving statistics of every normaliser in ``model`` by the exact ones of ``batches``.

    Each batch goes through the model once with batch statistics. The result is the mean and the population variance of
    all batches taken together, whatever their sizes. Works for the normalisers of this package and for every torch
    ``_BatchNorm`` and its subclasses; one without moving statistics (``track_running_stats=False``) has nothing to
    replace and is left alone. Other layers (dropout, ...) are in evaluation mode meanwhile; the mode of every module is
    restored, and if anything fails the statistics stay as they were. Error estimates are kept.

    A batch is an argument of the model, or a tuple of them. A model that has to be prepared before each batch (say, its
    hidden state cleared) gets a ``forward(model, batch)``. ``progress(done, total)`` is called after every batch; total
    is None if ``batches`` has no length. Returns the number of normalisers that were reached.
    """
    norms = [
        m
        for m in model.modules()
        if isinstance(m, (Norm, _BatchNorm)) and m.running_mean is not None and m.running_var is not None
    ]
    total = len(batches) if isinstance(batches, Sized) else None
    modes = [(module, module.training) for module in model.modules()]
    listeners: list[_OwnListener | _TorchListener] = []
    done = 0
    try:
        for norm in norms:
            listeners.append(_OwnListener(norm) if isinstance(norm, Norm) else _TorchListener(norm))
        for module, _ in modes:
            module.training = False
        for norm in norms:
            norm.training = True
        for done, batch in enumerate(batches, start=1):
            forward(model, batch)
            if progress is not None:
                progress(done, total)
    finally:
        for listener in listeners:
            listener.close()
        for module, mode in modes:
            module.training = mode
    if done == 0:
        raise ValueError("recalibrate got no batches; pass at least one")
    pooled = [(x.module, *x.recorder.pooled()) for x in listeners if x.recorder.samples]
    for norm, mean, var in pooled:
        _require_finite(norm, mean, var)
    for norm, mean, var in pooled:
        for buffer, value in ((norm.running_mean, mean), (norm.running_var, var)):
            assert isinstance(buffer, Tensor)
            store_(buffer, value)
    return len(pooled)


def _require_finite(module: nn.Module, mean: Tensor, var: Tensor) -> None:
    if not torch.isfinite(mean + var).all():
        raise ValueError(
            f"recalibrate got NaN or infinity at a {type(module).__name__}; the moving statistics are unchanged"
        )
