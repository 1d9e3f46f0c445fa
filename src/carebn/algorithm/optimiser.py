"""Adam, reduced to its fused update."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn


def _own(name: str) -> Callable[..., Any]:
    """A method of torch's optimisers without the cover that keeps torch's compiler out: the first call of that imports
    the compiler, a second's work at the start of every run that compiles nothing."""
    covered = getattr(torch.optim.Adam, name)
    return getattr(covered, "__wrapped__", covered)  # type: ignore[no-any-return]


class LeanAdam(torch.optim.Adam):
    """Torch's fused Adam, state and results the same, for parameters that are all updated together.

    On networks of this size torch's own ``step`` spends most of its time deciding what to do. This one knows: it takes
    gradients as they are, without ``parameter.grad``, and all parameters share one count of steps. For that it calls a
    function that torch keeps to itself; where there is none of that name, it is torch's ``step`` after all.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], lr: float, weight_decay: float = 0.0) -> None:
        super().__init__(parameters, lr=lr, weight_decay=weight_decay, fused=True)
        self._slots: tuple[list[Tensor], list[Tensor], list[Tensor]] | None = None

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        _own("add_param_group")(self, param_group)

    def state_dict(self) -> dict[str, Any]:
        return _own("state_dict")(self)  # type: ignore[no-any-return]

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        _own("load_state_dict")(self, dict(state_dict))
        self._slots = None

    def _find_slots(self, parameters: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
        """First and second moments and the steps, made if this is the first step."""
        steps = self.state[parameters[0]].get("step")
        if steps is None:
            steps = torch.zeros((), device=parameters[0].device)
        for parameter in parameters:
            slot = self.state[parameter]
            for name in ("exp_avg", "exp_avg_sq"):
                if name not in slot:
                    slot[name] = torch.zeros_like(parameter)
            slot["step"] = steps
        slots = [self.state[p] for p in parameters]
        self._slots = [s["exp_avg"] for s in slots], [s["exp_avg_sq"] for s in slots], [steps] * len(slots)
        return self._slots

    @torch.no_grad()
    def update(self, grads: Sequence[Tensor]) -> None:
        """One step with these gradients, in the order of the parameters."""
        fused = getattr(torch, "_fused_adam_", None)
        if fused is None:
            self._update_by_torch(grads)
            return
        group = self.param_groups[0]
        parameters = group["params"]
        first, second, steps = self._slots or self._find_slots(parameters)
        steps[0].add_(1)
        # The fused update walks parameter and gradient in memory order, whatever their strides: they must be alike.
        grads = [g if g.stride() == p.stride() else g.contiguous() for g, p in zip(grads, parameters, strict=True)]
        beta1, beta2 = group["betas"]
        fused(
            parameters, grads, first, second, [], steps, lr=group["lr"], beta1=beta1, beta2=beta2,
            weight_decay=group["weight_decay"], eps=group["eps"], amsgrad=False,
            maximize=False,
        )  # fmt: skip

    def _update_by_torch(self, grads: Sequence[Tensor]) -> None:
        group = self.param_groups[0]
        group["fused"] = False
        for parameter, grad in zip(group["params"], grads, strict=True):
            parameter.grad = grad
            slot = self.state[parameter]
            if "step" in slot:
                slot["step"] = slot["step"].clone()  # torch counts for each parameter
        self.step()
        for parameter in group["params"]:
            parameter.grad = None
        self._slots = None


def adam(network: nn.Module, learning_rate: float, weight_decay: float = 0.0) -> LeanAdam:
    return LeanAdam(list(network.parameters()), learning_rate, weight_decay)


def descend(optimiser: LeanAdam, loss: Tensor, grad: Tensor | None = None, spike_loss: Tensor | None = None) -> None:
    """One step down the gradient of ``loss`` with respect to this optimiser's parameters, and no others.

    ``grad``: the gradient of the true loss with respect to ``loss``, where that is only a part of the way to it.
    ``spike_loss`` is added to the loss: a penalty on spikes.
    """
    if spike_loss is not None:
        both = torch.autograd.grad((loss, spike_loss), optimiser.param_groups[0]["params"], (grad, None))
        optimiser.update(both)
        return
    optimiser.update(torch.autograd.grad(loss, optimiser.param_groups[0]["params"], grad))
