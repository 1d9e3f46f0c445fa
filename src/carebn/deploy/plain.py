"""Whether a module does what its type does, and nothing else: only such modules can be taken for their numbers."""

import torch
from torch import nn
from torch.nn.utils import parametrize

# of the call itself; those of the backward pass do not concern a policy that only acts
HOOKS = ("_forward_hooks", "_forward_pre_hooks")
CALLS = {name: getattr(nn.Module, name, None) for name in ("__call__", "_wrapped_call_impl", "_call_impl")}


def check_unchanged(network: nn.Module) -> None:
    """Refuse what computes something else than its classes say: hooks, replaced methods, parametrisations."""
    if any(getattr(torch.nn.modules.module, f"_global{hooks}", None) for hooks in HOOKS):
        raise ValueError("a network cannot be folded while torch calls a hook with every module; remove it first")
    for name, module in network.named_modules():
        what = f"{name} ({type(module).__name__})" if name else f"this {type(module).__name__}"
        if parametrize.is_parametrized(module):
            raise ValueError(
                f"do not know how to fold {what}, because it has a parametrisation; make it plain with "
                f"torch.nn.utils.parametrize.remove_parametrizations"
            )
        if any(getattr(module, hooks, None) for hooks in HOOKS):
            raise ValueError(
                f"do not know how to fold {what}, because a hook is called with it; remove the hook first (torch's "
                f"weight_norm, spectral_norm and pruning have functions for it)"
            )
        own = [name for name, usual in CALLS.items() if getattr(type(module), name, None) is not usual]
        if own:
            raise ValueError(f"do not know how to fold {what}, because it has its own {own[0]}")
        replaced = [name for name in vars(module) if callable(getattr(type(module), name, None))]
        if replaced:
            raise ValueError(f"do not know how to fold {what}, because its {replaced[0]} was replaced")
