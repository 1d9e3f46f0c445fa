"""Whether the compiled and the pure run are the same, and when only rounding decided.

Compiled kernels sum in another order. So a potential within rounding of its threshold may fire or not, and everything
behind it is different. That is judged, not guessed:

    1  Both runs are compared with a narrow tolerance. Most agree, and that is all.
    2  If not, the pure run is repeated in float64 (a float64 network: with parameters slightly disturbed) and every
       decision of both runs is recorded: spikes of neurons and encoder, edges of rectangular surrogates. What the
       potentials of the two differ by is what rounding does in this network.
    3  If some decision lies within a few times that of its threshold, the case cannot tell: it is drawn again with
       other numbers, up to ``ATTEMPTS`` times. Networks are drawn with few different neurons and observations, so
       that this is rare. Where the two agree to the last bit, arithmetic is exact and nothing is forgiven.
    4  Otherwise the compiled run must be as near to the float64 run as the pure one is, within a factor.
    5  Where sums cancel, the pure run may be exact by symmetry and errs by nothing. So what is still too far off is
       measured by what rounding does in the middle: the float64 run is repeated with every input of a norm and of a
       neuron, and every gradient that leaves one, off by a rounding of float32. Only repetitions in which every
       decision is the same count, so that no fault can hide behind another spike.
"""

import re
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from .cases import Case
from .oddities import TO_SINGLE
from .running import Outcome, Recorder, UnbuildableError, Way, run

ATTEMPTS = 6
NARROW = {torch.float32: 3e-6, torch.float64: 1e-11}  # of the largest entry
WIDE = {torch.float32: 1e-4, torch.float64: 2e-7}
STEEP = 10.0  # times that for gradients: a feature that hardly varies multiplies rounding by 1/√eps, again and again
TIMES_ROUNDING = 30.0  # as often as the pure run errs may the compiled one
NEAR = 16.0  # times the rounding seen: as near to a threshold as that, anything may happen
FLOOR = {torch.float32: 1e-6, torch.float64: 1e-11}  # and at least so near, unless arithmetic is exact
DISTURBANCE = {torch.float32: 3e-7, torch.float64: 1e-13}
ROUNDING = {torch.float32: 6e-8, torch.float64: 1.2e-16}
JITTERS = 3  # repetitions with such errors
OVERFLOWING = 1e-3  # of the largest number: there the order of a sum decides whether it overflows
FAINT = {torch.float32: 1e-6, torch.float64: 1e-13}  # of the largest gradient of all: zero, but for rounding

AGREED, REDRAWN, UNDECIDED, REFUSED, UNBUILDABLE, FAILED = (
    "agreed", "agreed after redrawing", "undecided", "refused", "unbuildable", "failed",
)  # fmt: skip


@dataclass(frozen=True)
class Verdict:
    kind: str
    symptom: str = ""  # of a failure, in few words
    detail: str = ""
    lively: bool = False  # whether what was compared were different numbers, not all the same


def judge(case: Case) -> Verdict:
    undecided = []
    for attempt in range(ATTEMPTS):
        try:
            verdict = _once(case, attempt)
        except UnbuildableError as error:
            return Verdict(UNBUILDABLE, detail=str(error))
        if verdict.kind != UNDECIDED:
            return replace(verdict, kind=REDRAWN) if attempt and verdict.kind == AGREED else verdict
        undecided.append(verdict)
    # Rounding may decide a gradient every time, at the edge of a surrogate, but not send other spikes every time.
    if all(verdict.symptom and "gradient" not in verdict.symptom for verdict in undecided):
        return replace(undecided[-1], kind=FAILED, symptom=f"{undecided[-1].symptom} in every draw")
    return undecided[-1]


def _once(case: Case, attempt: int) -> Verdict:
    """Undecided: rounding may be the reason, so draw again."""
    expected = run(case, attempt, Way(compiled=False))
    found = run(case, attempt, Way(compiled=True))
    if found.refused:
        return Verdict(REFUSED, detail=found.message)
    if expected.raised or found.raised:
        return _about_exceptions(case, expected, found)
    if expected.heard != found.heard:
        return Verdict(FAILED, "hooks called differently", f"pure: {expected.heard[:4]}, compiled: {found.heard[:4]}")
    if set(expected.values) != set(found.values):
        odd = sorted(set(expected.values) ^ set(found.values))
        return Verdict(FAILED, "other results", ", ".join(odd[:3]))
    for name, value in expected.values.items():
        problem = _kind_differs(name, value, found.values[name])
        if problem:
            return Verdict(FAILED, _symptom(name), problem)
    differing = [name for name in expected.values if not _same(name, expected, found, NARROW)]
    if not differing:
        return Verdict(AGREED, lively=_lively(expected))
    return _with_rounding(case, attempt, expected, found, differing)


def _about_exceptions(case: Case, expected: Outcome, found: Outcome) -> Verdict:
    if expected.raised == found.raised:
        return Verdict(AGREED)
    if case.meddle != "none" and expected.raised is None and found.raised == "RuntimeError":
        return Verdict(AGREED)  # more careful than it need be
    pure = f"pure: {expected.raised} {expected.message[:150]!r}" if expected.raised else "pure: no exception"
    compiled = f"compiled: {found.raised} {found.message[:150]!r}" if found.raised else "compiled: no exception"
    if expected.raised and found.raised:
        symptom = f"raises {found.raised} in place of {expected.raised}"
    else:
        symptom = f"does not raise {expected.raised}" if expected.raised else f"raises {found.raised}"
    return Verdict(FAILED, symptom, f"{pure}; {compiled}")


def _symptom(name: str) -> str:
    """Which kind of result is wrong."""
    first, *rest = name.split()
    return f"{first} of {rest[-1].rpartition('.')[2]} differs" if first == "gradient" and rest else f"{first} differs"


def _kind_differs(name: str, expected: Tensor | None, found: Tensor | None) -> str | None:
    if expected is None or found is None:
        if (expected is None) != (found is None):
            there, missing = ("pure", "compiled") if found is None else ("compiled", "pure")
            return f"{name}: there is one on the {there} path, none on the {missing} path"
        return None
    if expected.shape != found.shape:
        return f"{name}: shape {tuple(expected.shape)} on the pure path, {tuple(found.shape)} on the compiled one"
    if expected.dtype != found.dtype:
        return f"{name}: {expected.dtype} on the pure path, {found.dtype} on the compiled one"
    if not expected.is_floating_point() and not torch.equal(expected, found):
        return f"{name}: {expected.tolist()} on the pure path, {found.tolist()} on the compiled one"
    return None


def _size(name: str, outcome: Outcome) -> float:
    """What a result is measured by: its largest entry. Sums over everything may cancel to nothing, as those that are
    the gradients of a bias or of a normaliser's parameters; they are measured by the others of their module too."""
    names = [name]
    where = re.match(r"gradient .*\b(linear|norm)\.", name)
    if where and not name.endswith("linear.weight"):
        names = [other for other in outcome.values if other.startswith(where.group())]
    sizes = [0.0]
    for value in (outcome.values.get(n) for n in names):
        if value is not None and value.numel():
            finite = value.double().abs()
            finite = finite[torch.isfinite(finite)]
            sizes.append(float(finite.max()) if finite.numel() else 0.0)
    return max(sizes)


def _same(name: str, expected: Outcome, found: Outcome, tolerance: dict[torch.dtype, float]) -> bool:
    a, b = expected.values[name], found.values[name]
    if a is None or b is None or not a.is_floating_point():
        return True
    allowed = tolerance.get(a.dtype, 1e-3) * _size(name, expected)
    return bool(torch.isclose(a.double(), b.double(), rtol=0.0, atol=allowed, equal_nan=True).all())


def _lively(outcome: Outcome) -> bool:
    """Whether the first result holds different numbers."""
    for value in outcome.values.values():
        if value is not None and value.is_floating_point() and value.numel() > 1:
            return bool((value != value.flatten()[0]).any())
    return False


# --- rounding --------------------------------------------------------------------------------------------------------


def _with_rounding(case: Case, attempt: int, expected: Outcome, found: Outcome, differing: list[str]) -> Verdict:
    single = (case.dtype == "float32" or case.change == TO_SINGLE) and case.scenario not in ("fold", "export")
    dtype = torch.float32 if single else torch.float64
    here = Recorder(torch.float32 if case.dtype == "float32" else torch.float64)
    there = Recorder(here.dtype)
    again = run(case, attempt, Way(compiled=False, recorder=here))
    other = run(
        case, attempt, Way(compiled=False, wide=single, noise=0 if single else DISTURBANCE[dtype], recorder=there)
    )
    if single and other.raised:  # not every oddity can be had in float64
        there = Recorder(here.dtype)
        other = run(case, attempt, Way(compiled=False, noise=DISTURBANCE[dtype], recorder=there))
    blind = bool(again.raised or other.raised or set(other.values) != set(expected.values))
    kind = UNDECIDED if _near_a_threshold(case, here, there, dtype, blind) else FAILED
    reference = None if blind or kind == UNDECIDED else other
    problems = {name: _beyond_rounding(name, expected, found, reference, dtype) for name in differing}
    if kind == FAILED and any(problems.values()):
        wide = single and not blind and all(v is None or v.dtype == torch.float64 for v in _reals(other))
        base, decisions = (other, there) if wide else (again, here)
        spread = _spread_of_rounding(case, attempt, wide, base, decisions, dtype)
        problems = {name: _beyond_rounding(name, expected, found, reference, dtype, spread) for name in differing}
    for name, problem in problems.items():
        if problem:
            return Verdict(kind, _symptom(name), problem)
    return Verdict(AGREED, lively=_lively(expected))


def _reals(outcome: Outcome) -> list[Tensor | None]:
    return [v for name, v in outcome.values.items() if v is not None and v.is_floating_point() and "output" in name]


def _spread_of_rounding(
    case: Case, attempt: int, wide: bool, base: Outcome, decisions: Recorder, dtype: torch.dtype
) -> dict[str, float]:
    """By how much each result moves if everything in the middle of the network is off by a rounding."""
    spread: dict[str, float] = {}
    for draw in range(JITTERS):
        ears = Recorder(decisions.dtype)
        way = Way(compiled=False, wide=wide, jitter=ROUNDING[dtype], draw=draw, recorder=ears)
        moved = run(case, attempt, way)
        if moved.raised or set(moved.values) != set(base.values) or not _same_decisions(decisions, ears):
            continue
        for name, value in base.values.items():
            other = moved.values[name]
            if value is not None and other is not None and value.is_floating_point() and value.shape == other.shape:
                gap = (value.double() - other.double()).abs()
                gap = gap[torch.isfinite(gap)]
                spread[name] = max(spread.get(name, 0.0), float(gap.max()) if gap.numel() else 0.0)
    return spread


def _same_decisions(here: Recorder, there: Recorder) -> bool:
    if len(here.decisions) != len(there.decisions):
        return False
    for (x, edge), (y, _) in zip(here.decisions, there.decisions, strict=True):
        if x.shape != y.shape or ((x > 0) != (y > 0)).any():
            return False
        if edge is not None and ((x.abs() <= edge) != (y.abs() <= edge)).any():
            return False
    return True


def _near_a_threshold(case: Case, here: Recorder, there: Recorder, dtype: torch.dtype, blind: bool) -> bool:
    """Whether rounding may have decided anything in this run."""
    gradients = case.scenario == "step" and case.context == "grad"
    comparable = not blind and len(here.decisions) == len(there.decisions)
    rounding, exact = 0.0, comparable
    for i, (x, edge) in enumerate(here.decisions):
        x = x.double()
        finite = x[torch.isfinite(x)]
        if not finite.numel():
            continue
        if comparable and there.decisions[i][0].shape == x.shape:
            y = there.decisions[i][0].double()
            if ((x > 0) != (y > 0)).any():
                return True
            gap = (x - y).abs()
            gap = gap[torch.isfinite(gap)]
            largest = float(gap.max()) if gap.numel() else 0.0
            exact = exact and largest == 0.0
            rounding = max(rounding, largest)
        bound = 0.0 if exact else NEAR * rounding + FLOOR[dtype] * max(1.0, float(finite.abs().median()))
        if bound == 0.0:
            continue
        if (finite.abs() <= bound).any():
            return True
        if gradients and edge is not None and ((finite.abs() - edge).abs() <= bound).any():
            return True
    return False


def _beyond_rounding(
    name: str,
    expected: Outcome,
    found: Outcome,
    other: Outcome | None,
    dtype: torch.dtype,
    spread: dict[str, float] | None = None,
) -> str | None:
    a, b = expected.values[name], found.values[name]
    assert a is not None
    assert b is not None
    c = other.values[name] if other is not None else None
    half = a.dtype == torch.float16
    nearly_all = OVERFLOWING * torch.finfo(a.dtype).max
    a, b = a.double(), b.double()
    c = a if c is None or c.shape != a.shape else c.double()
    # Where the pure run itself overflows, what float64 says is as good.
    same = (a == b) | (a.isnan() & b.isnan())
    overflown = ~torch.isfinite(a) & (torch.isfinite(c) | ~torch.isfinite(b))
    overflown |= ~torch.isfinite(b) & (a.abs() > nearly_all)
    left = ~same & ~overflown
    if not left.any():
        return None
    unlike = left & (torch.isfinite(a) != torch.isfinite(b))
    if (
        name.endswith("linear.bias") and (b == 0).all()
    ):  # cancels before a normaliser, so that kernels do not compute it
        unlike &= torch.isfinite(a)
    if unlike.any():
        return f"{name}: {float(b[unlike][0])} where the pure path has {float(a[unlike][0])}"
    error = (a - c).abs()
    error = error[torch.isfinite(error)]
    size = _size(name, expected)
    rounding = float(error.max()) if error.numel() else 0.0
    steep = STEEP if name.startswith("gradient") else 1.0
    allowed = steep * WIDE[dtype] * size + TIMES_ROUNDING * rounding
    if name.startswith("gradient"):
        gradients = [other for other in expected.values if other.startswith("gradient")]
        allowed += FAINT[dtype] * max(_size(other, expected) for other in gradients)
    if half:
        allowed += 2e-3 * size
    if spread is not None:
        allowed += TIMES_ROUNDING * spread.get(name, 0.0)
    difference = (b - c).abs().minimum((b - a).abs())[left]
    difference = difference[torch.isfinite(difference)]
    if not difference.numel() or float(difference.max()) <= allowed:
        return None
    return (
        f"{name}: differs by {float(difference.max()):.3g} where at most {allowed:.3g} is rounding; the largest entry "
        f"is {size:.3g}"
    )
