"""What a module, a tensor and torch itself are at this moment: is this the known code, who listens, how does it lie in
memory.

Nothing is decided here. Each answer is a sentence that says what is unusual; an empty one says that nothing is. What
follows from it is up to whoever asks: ``carebn.router``, and all that takes modules for their numbers.
"""

import math
from collections.abc import Callable, Iterable
from itertools import chain
from operator import attrgetter, is_, methodcaller
from types import FunctionType
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge

PRECISIONS = (torch.float32, torch.float64)

# --- code ------------------------------------------------------------------------------------------------------------

MISSING = object()
# How a module is called and its attributes are found.
_CALLING = (
    *("__call__", "_wrapped_call_impl", "_call_impl", "_compiled_call_impl"),
    *("__getattr__", "__getattribute__"),
)


def known_code(cls: type, methods: Iterable[str], data: Iterable[str] = ()) -> dict[str, Any]:
    """The methods of a class as they are now, and attributes that it must not have: each object has its own."""
    return {name: getattr(cls, name, MISSING) for name in (*_CALLING, *methods)} | dict.fromkeys(data, MISSING)


_code: dict[str, dict[type, dict[str, Any]]] = {}
_found: dict[tuple[str, type], dict[str, Any] | None] = {}
AnyClass = TypeVar("AnyClass", bound=type)


def stands_for(role: str, methods: str, data: str = "") -> Callable[[AnyClass], AnyClass]:
    """A compiled path takes the place of these methods of the class, and reads these of its attributes as plain data: a
    class that defines one of them as a property is something else."""

    def note(cls: AnyClass) -> AnyClass:
        _code.setdefault(role, {})[cls] = known_code(cls, methods.split(), data.split())
        return cls

    return note


stands_for("linear", "forward", "weight bias in_features out_features")(nn.Linear)


def has_role(thing: Any, role: str) -> bool:
    return any(cls in _code.get(role, {}) for cls in type(thing).__mro__)


def changed(thing: Any, role: str) -> str:
    """Why the code of this module (or surrogate) is not what ``stands_for`` noted for this role."""
    kind = type(thing)
    key = role, kind
    if key not in _found:
        known = _code.get(role, {})
        stood_for = next((cls for cls in kind.__mro__ if cls in known), None)
        # A norm is asked at every call; what others compute could be noted once, and change.
        alike = stood_for is not None and (role == "norm" or not computes_attributes(kind, stood_for))
        _found[key] = known[stood_for] if stood_for is not None and alike else None
    code = _found[key]
    if code is None:
        return f"a {kind.__name__} is nothing that a compiled {role} is known for"
    return other_code(thing, code)


def other_code(thing: Any, known: dict[str, Any]) -> str:
    """Why this object does something else than the known code."""
    kind, own = type(thing), thing.__dict__
    for name, function in known.items():
        if getattr(kind, name, MISSING) is not function:
            return f"{kind.__name__} has its own {name}"
        if name in own and function is not MISSING:
            return f"the {name} of this {kind.__name__} was replaced"
    return ""


_METHODS = (FunctionType, staticmethod, classmethod)


def computes_attributes(kind: type, base: type) -> bool:
    """Whether a subclass has attributes that are computed, such as properties: their values may change unseen."""
    above = kind.__mro__[: kind.__mro__.index(base)]
    return any(
        hasattr(type(value), "__get__") and not isinstance(value, _METHODS)
        for cls in above
        for name, value in vars(cls).items()
        if not name.startswith("__")
    )


def not_numbers(**values: Any) -> str:
    for name, value in values.items():
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            return f"{name.replace('_', ' ')} is a {type(value).__name__}, not a number"
    return ""


# --- listeners and modes ---------------------------------------------------------------------------------------------


def _private(owner: Any, *names: str) -> Any:
    """Something that torch does not promise to keep, or None."""
    for name in names:
        owner = getattr(owner, name, None)
    return owner


_GLOBAL_HOOKS = tuple(
    hooks
    for name in ("forward_hooks", "forward_pre_hooks", "backward_hooks", "backward_pre_hooks")
    if (hooks := _private(nn.modules.module, f"_global_{name}")) is not None
)
_LINEAR = _private(torch, "_C", "_nn", "linear") or nn.functional.linear
_is_tracing: Callable[[], bool] = torch.jit.is_tracing  # type: ignore[attr-defined]  # public, and left out of its types
_transform_level = _private(torch, "_C", "_functorch", "maybe_current_level")
_dispatch_modes = _private(torch, "_C", "_len_torch_dispatch_stack")
_function_modes = _private(torch, "_C", "_len_torch_function_stack")
_hooks_on_what_is_saved = _private(torch, "_C", "_autograd", "_top_saved_tensors_default_hooks")


_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def hooks_of(module: nn.Module) -> tuple[Any, ...]:
    """The dictionaries in which a module keeps whom it calls besides itself."""
    own = module.__dict__
    return tuple(own.get(name) for name in _HOOKS)


def listeners(module: nn.Module) -> str:
    return f"somebody listens to this {type(module).__name__}, by a hook" if any(hooks_of(module)) else ""


def is_compiling() -> str:
    return "torch is compiling or tracing" if torch.compiler.is_compiling() or _is_tracing() else ""


def in_autocast() -> bool:
    return torch.is_autocast_enabled("cpu")


def mode_of_torch() -> str:
    """Why operations are not what they usually are, or not seen by torch alone."""
    if in_autocast():
        return "inside torch.autocast"
    if _transform_level is not None and _transform_level():
        return "inside a transform of torch.func"
    if getattr(torch.autograd.forward_ad, "_current_level", -1) >= 0:
        return "inside forward-mode differentiation"
    if (_dispatch_modes is not None and _dispatch_modes()) or (_function_modes is not None and _function_modes()):
        return "a mode of torch watches or changes operations (also torch.device(...) as a context)"
    if _hooks_on_what_is_saved is not None and _hooks_on_what_is_saved(False):
        return "hooks watch or change what is kept for the backward pass"
    if nn.functional.linear is not _LINEAR:
        return "torch.nn.functional.linear was replaced"
    for hooks in _GLOBAL_HOOKS:
        if hooks:
            return "somebody listens to all modules, by a global hook"
    return ""


# --- memory ----------------------------------------------------------------------------------------------------------


def address_of(x: Tensor) -> int | None:
    """0: nowhere, zeros that torch keeps no memory for; None: a stand-in of one of torch's transforms."""
    try:
        return x.data_ptr()
    except RuntimeError:
        return None


def _nowhere(x: Tensor) -> str:
    """Why the numbers of this tensor do not lie where it says."""
    address = address_of(x)
    if address is None:
        return "inside a transform of torch.func"
    if x.numel() == 0:
        return ""
    last = x.storage_offset() + sum((n - 1) * step for n, step in zip(x.shape, x.stride(), strict=True))
    behind = x.untyped_storage().nbytes() >= (last + 1) * x.element_size()
    return "" if address and behind else "there is no memory behind it, or too little"


def not_dense(x: Any, name: str, dtype: torch.dtype, *shape: int) -> str:
    """Why this tensor cannot be read as so many numbers in a row."""
    if type(x) is not Tensor and type(x) is not nn.Parameter:
        return f"{name} is a {type(x).__name__}, not a plain tensor"
    if x.dtype is not dtype:
        return f"{name} is {x.dtype}, not {dtype}"
    if x.shape != shape:
        return f"{name} has the shape {tuple(x.shape)}, not {shape}"
    if not (x.is_cpu and x.layout is torch.strided and x.is_contiguous()) or x.is_neg():
        return f"{name} does not lie in the CPU's memory in one piece"
    return _nowhere(x)


def not_numbers_in_memory(x: Tensor) -> str:
    """Why this input, whose strides may be any, cannot be brought into a row of numbers."""
    if type(x) is not Tensor and type(x) is not nn.Parameter:
        return f"the input is a {type(x).__name__}, not a plain tensor"
    if not x.is_cpu or x.layout is not torch.strided or x.is_neg():
        return "the input does not lie in the CPU's memory"
    if x.dtype not in PRECISIONS:
        return f"the input is {x.dtype}"
    return "the input is empty" if x.numel() == 0 else _nowhere(x)


def overlapping(written: tuple[Tensor, ...], read: tuple[Tensor, ...]) -> bool:
    """Whether something that is written shares memory with anything else."""
    spans = sorted((t.data_ptr(), t.data_ptr() + t.numel() * t.element_size(), i < len(written))
                   for i, t in enumerate((*written, *read)))  # fmt: skip
    end, mine = 0, False
    for start, stop, is_written in spans:
        if start < end and (is_written or mine):
            return True
        if stop > end:
            end, mine = stop, is_written
    return False


def depends_on_others(results: Iterable[Tensor], known: Iterable[Tensor]) -> bool:
    """Whether a gradient of the results goes to anything but these."""
    seen: set[tuple[Any, int]] = {get_gradient_edge(tensor)[:2] for tensor in known if tensor.requires_grad}
    left: list[tuple[Any, int]] = [get_gradient_edge(result)[:2] for result in results if result.requires_grad]
    while left:
        edge = left.pop()
        if edge in seen or edge[0] is None:
            continue
        if hasattr(edge[0], "variable"):  # where gradients end
            return True
        seen.add(edge)
        left += edge[0].next_functions
    return False


# --- the same as before ----------------------------------------------------------------------------------------------


_VALUES, _ORDER = methodcaller("values"), attrgetter("__mro__")


class Noted:
    """Modules and their classes, whole, as they are when a plan is made; ``holds`` tells whether they still are so.
    What training does, changing numbers in place, is no change. It is asked whenever a plan is used again, so the loops
    are C's: over all names, all values, all tensors at once."""

    def __init__(self, modules: Iterable[nn.Module]) -> None:
        things: list[Any] = list(modules)
        self._hooks = [hooks for module in things for hooks in hooks_of(module)]
        inside = [vars(module)[name] for module in things for name in ("_modules", "_parameters", "_buffers")]
        # A surrogate is no module, and frozen; whoever changes one nevertheless is noticed.
        things += [own["surrogate"] for own in map(vars, things) if hasattr(own.get("surrogate"), "__dict__")]
        self._things, self._kinds, self._own = things, list(map(type, things)), list(map(vars, things))
        self._orders = [kind.__mro__ for kind in self._kinds]
        classes = dict.fromkeys(cls for order in self._orders for cls in order)
        self._held = [*self._own, *inside, *map(vars, classes)]
        self._sizes = list(map(len, self._held))
        self._names = list(chain.from_iterable(self._held))
        self._values = list(chain.from_iterable(map(_VALUES, self._held)))
        self._tensors = [value for value in self._values if isinstance(value, Tensor)]
        self._memory = self._memory_now()

    def _memory_now(self) -> list[Any]:
        return [
            (type(t), t.data_ptr(), t.shape, t.dtype, t.is_cpu, t.is_contiguous(), t.is_neg(), bool(t._backward_hooks))
            if t.layout is torch.strided
            else None
            for t in self._tensors
        ]

    def holds(self) -> bool:
        return (
            all(map(is_, map(type, self._things), self._kinds))
            and all(map(is_, map(vars, self._things), self._own))
            and all(map(is_, map(_ORDER, self._kinds), self._orders))
            and list(map(len, self._held)) == self._sizes
            and all(map(is_, chain.from_iterable(map(_VALUES, self._held)), self._values))
            and list(chain.from_iterable(self._held)) == self._names
            and not any(self._hooks)
            and self._memory_now() == self._memory
        )


class Remembered:
    """Answers to one question about modules, of the last two states that they were in: some are trained with one mode
    and asked with another in turn. Kept with whom it is about; a copy of that starts anew."""

    def __init__(self) -> None:
        self._known: list[tuple[tuple[nn.Module, ...], int, Any, Noted]] = []

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return Remembered, ()

    def answer(self, modules: tuple[nn.Module, ...], size: int) -> Any:
        """For these modules and this size of input; None if there is none, or anything has changed since."""
        for known, of_size, answer, noted in self._known:
            if of_size == size and len(known) == len(modules) and all(map(is_, known, modules)) and noted.holds():
                return answer
        return None

    def note(self, modules: tuple[nn.Module, ...], size: int, answer: Any) -> None:
        noted = Noted(dict.fromkeys(part for module in modules for part in module.modules()))
        self._known = [(modules, size, answer, noted), *self._known[:1]]


# --- numbers ---------------------------------------------------------------------------------------------------------


def keeps_precision(shift: Tensor, dtype: torch.dtype) -> bool:
    """Whether z·scale + shift is (z − mean)·scale + offset but for rounding: shift holds mean·scale, which z·scale has
    to cancel, and in this precision either is rounded by its size times eps. NaN is not."""
    return float(torch.linalg.vector_norm(shift.detach(), math.inf)) <= 1e-3 / torch.finfo(dtype).eps


def is_moderate(weight: Tensor) -> bool:
    """Whether products with spikes may be looked up. A table leaves out what is multiplied by zero, also NaN and
    infinity; and a kernel's float32 holds 1/variance of a feature only as long as its square is a number."""
    return float(torch.linalg.vector_norm(weight.detach())) < 1e4
