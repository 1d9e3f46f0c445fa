"""What a policy is, in words: from the record that ``PolicyGraph.info`` gives."""

from collections.abc import Sequence
from typing import Any

# What is known of where a policy comes from; none of it has to be there.
ORIGIN: dict[str, type | tuple[type, ...]] = {
    "carebn": str,  # version
    "environment": str,
    "run": str,
    "algorithm": str,
    "method": str,
    "neuron": str,
    "seed": int,
    "trained_steps": int,
    "mean_return": (int, float),
    "return_of": str,  # which evaluation
    "observation": dict,  # low, high; pieces, where the environment's own observations have another shape
    "first_action": int,  # the environment's number of action 0, where it is another
}


def check_origin(origin: Any) -> None:
    if not isinstance(origin, dict):
        raise ValueError("its origin is not a record")
    for name, kind in ORIGIN.items():
        if name in origin and not isinstance(origin[name], kind):
            raise ValueError(f"its origin has {origin[name]!r} as {name}")


def title(info: dict[str, Any]) -> str:
    """One line: where it comes from, what goes in and out. What is not known is left out."""
    origin = [str(info[name]) for name in ("environment", "algorithm", "method", "neuron") if name in info]
    if "seed" in info:
        origin.append(f"seed {info['seed']}")
    if "trained_steps" in info:
        origin.append(f"{info['trained_steps']:,} steps")
    if "mean_return" in info:
        origin.append(f"mean return {info['mean_return']:.1f}")
    observation, action = info["observation"], info["action"]
    out = f"{action['count']} actions" if action["kind"] == "discrete" else f"action of size {action['size']}"
    steps = info["time_steps"]
    parts = [
        ", ".join(origin) or "of unknown origin",
        f"observation of size {observation['size']} ({observation['type']}) to {out}",
        f"{steps} time step{'' if steps == 1 else 's'}",
    ]
    return "; ".join(parts)


def order_of(observation: dict[str, Any], besides: str = "") -> str:
    """In which order its numbers are, and ``besides``, if they are those of the environment one by one."""
    if "pieces" in observation:
        return "made flat as Gymnasium does it (gymnasium.spaces.flatten)"
    return f"in the order{besides} in which the environment gives them"


def piece_lines(observation: dict[str, Any]) -> list[str]:
    """What each stretch of a flat observation is; none of one that was flat before."""
    return [f"    {_where(piece)}: {_piece(piece)}" for piece in observation.get("pieces", [])]


def _where(piece: dict[str, Any]) -> str:
    start, last = piece["start"], piece["start"] + piece["size"] - 1
    return f"observation[{start}]" if last == start else f"observation[{start}..{last}]"


def _piece(piece: dict[str, Any]) -> str:
    words = [piece["name"]] if piece["name"] else []
    if piece["kind"] == "one-hot":
        words.append(f"one-hot (observation[{piece['start']}] is 1 for the value {piece['first']})")
    if piece["kind"] == "binary":
        words.append("0 or 1" if piece["size"] == 1 else "each 0 or 1")
    if "shape" in piece:
        words.append(f"an array of {' x '.join(map(str, piece['shape']))}, the last index fastest")
    return ", ".join(words) or "the number itself"


def origin_lines(info: dict[str, Any]) -> list[str]:
    """``name: value``, for a comment."""
    lines = []
    training = [str(info[name]) for name in ("algorithm", "method", "neuron") if name in info]
    if "seed" in info:
        training.append(f"seed {info['seed']}")
    if "trained_steps" in info:
        training.append(f"{info['trained_steps']:,} steps")
    if training:
        lines.append(f"training: {', '.join(training)}")
    if "run" in info:
        lines.append(f"run: {info['run']}")
    if "mean_return" in info:
        lines.append(f"mean return: {info['mean_return']:.1f}, in {info.get('return_of', 'evaluation')}")
    if "carebn" in info:
        lines.append(f"carebn: {info['carebn']}")
    return lines


def range_of(low: Sequence[float | None] | None, high: Sequence[float | None] | None, name: str) -> list[str]:
    """The bounds of a vector, on one line if they are the same for all."""
    if low is None or high is None:
        return []
    pairs = list(zip(low, high, strict=True))
    if len(set(pairs)) == 1:
        return [f"    each {_range(*pairs[0])}"]
    return [f"    {name}[{i}] {_range(*pair)}" for i, pair in enumerate(pairs)]


def _range(low: float | None, high: float | None) -> str:
    if low is None and high is None:
        return "unbounded"
    if low is None:
        return f"at most {high:g}"
    return f"at least {low:g}" if high is None else f"from {low:g} to {high:g}"
