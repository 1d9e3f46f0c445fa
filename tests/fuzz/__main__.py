"""The command line of the fuzzer."""

import argparse
import os
import sys
import time
from collections import Counter
from dataclasses import dataclass, field

from .cases import Case, draw
from .children import FAILED, Found, serve, shrink, sweep

COMPARED = ("agreed", "agreed after redrawing")
FEWEST_COMPARED = 0.75  # of the cases; a fuzzer that compares less is no test
MOST_UNDECIDED = 0.05


@dataclass
class Family:
    """Failures that look alike, and the smallest case of them."""

    smallest: Found
    first: int  # the number of the case that began it
    numbers: list[int] = field(default_factory=list)

    def includes(self, found: Found) -> bool:
        ours, theirs = self.smallest.case, found.case
        return (
            self.smallest.symptom == found.symptom
            and (ours.scenario, ours.change) == (theirs.scenario, theirs.change)
            and set(ours.oddities) <= set(theirs.oddities)
            and (ours.python_threads > 1) <= (theirs.python_threads > 1)
            and bool(ours.oddities or ours.change != "none" or ours.meddle != "none" or ours.kind == theirs.kind)
        )


def main() -> int:
    parser = argparse.ArgumentParser(prog="fuzz", description="the compiled path against the pure path, at random")
    parser.add_argument("--cases", type=int, default=2000, help="how many cases")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="what they are drawn from")
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    parser.add_argument("--only", type=int, help="this case of the seed alone")
    parser.add_argument("--case", help="this case alone, as JSON")
    parser.add_argument("--shrink", type=int, default=40, help="families of failures that are made small, at most")
    parser.add_argument(
        "--rehearse",
        action="store_true",
        help="the pure path against itself, summed in another order",
    )
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rehearse:
        os.environ["FUZZ_REHEARSAL"] = "1"  # for the children
    if options.child:
        serve()
        return 0
    if options.case is not None or options.only is not None:
        return _alone(Case.from_json(options.case) if options.case else draw(options.seed, options.only))
    return _all(options.seed, options.first, options.cases, options.shrink)


def _alone(case: Case) -> int:
    (found,) = sweep([case])
    print(f"{found.kind}: {found.symptom}\n  {found.detail}\n  {found.case.to_json()}")
    return int(found.kind == FAILED)


def _all(seed: int, first: int, number: int, shrinkings: int) -> int:
    print(f"{number:,} cases, seed {seed}", flush=True)
    counts: Counter[str] = Counter()
    families: list[Family] = []
    undecided: list[int] = []
    lively, begin, slowest = 0, time.monotonic(), 0.0
    numbers = range(first, first + number)
    cases = {i: draw(seed, i) for i in numbers}
    if "FUZZ_REHEARSAL" in os.environ:  # deployment has no pure path to rehearse with
        cases = {i: case for i, case in cases.items() if case.scenario not in ("fold", "export")}

    def known(found: Found) -> bool:
        return any(family.includes(found) for family in families)

    for i, found in zip(cases, sweep(list(cases.values()), known), strict=True):
        counts[found.kind] += 1
        lively += found.lively
        slowest = max(slowest, found.seconds)
        if found.kind == "undecided":
            undecided.append(i)
        if found.kind == FAILED:
            _file(families, found, i, shrinkings)
        if (i + 1 - first) % 500 == 0:
            _progress(i + 1 - first, counts, families, begin)
    if undecided:
        print(f"undecided, by number: {', '.join(map(str, undecided))}")
    return _report(seed, counts, lively, families, time.monotonic() - begin, slowest)


def _file(families: list[Family], found: Found, number: int, shrinkings: int) -> None:
    for family in families:
        if family.includes(found):
            family.numbers.append(number)
            return
    if len(families) < shrinkings and "not when run alone" not in found.symptom:
        found = shrink(found)
    families.append(Family(found, number, [number]))
    print(f"  case {number}: {found.symptom}\n    {found.detail[:300]}\n    {found.case.to_json()}", flush=True)


def _progress(done: int, counts: Counter[str], families: list[Family], begin: float) -> None:
    passed = time.monotonic() - begin
    print(f"  {done:,} cases in {passed:.0f} s: {counts[FAILED]} failed, {len(families)} families", flush=True)


def _report(
    seed: int, counts: Counter[str], lively: int, families: list[Family], seconds: float, slowest: float
) -> int:
    total = counts.total()
    print("; ".join(f"{count:,} {kind}" for kind, count in counts.most_common()))
    print(f"{lively:,} with different numbers in the first result; {seconds:.0f} s, the slowest case {slowest:.1f} s")
    for family in sorted(families, key=lambda family: -len(family.numbers)):
        print(f"{len(family.numbers)} × {family.smallest.symptom} (first: --seed {seed} --only {family.first})")
        print(f"    {family.smallest.detail[:300]}\n    --case '{family.smallest.case.to_json()}'")
    compared = sum(counts[kind] for kind in COMPARED)
    wrong = bool(families)
    if compared + counts[FAILED] < FEWEST_COMPARED * total or counts["undecided"] > MOST_UNDECIDED * total:
        print("too few cases were compared for this to mean anything")
        wrong = True
    print("there are differences" if families else "no difference beyond rounding")
    return int(wrong)


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # a child that hangs in a thread of ours must not keep us
