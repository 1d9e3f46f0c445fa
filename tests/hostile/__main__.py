"""The command line of the fuzzer."""

import argparse
import shutil
import sys
import tempfile
import time
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path

from .cases import Case, draw
from .judging import findings
from .running import Outcome, prepare, run
from .world import RUNS, Template

MEMORY = Path("/dev/shm")  # where flushing to disk costs nothing


def main() -> int:
    parser = argparse.ArgumentParser(prog="hostile", description="hostile command lines, at random")
    parser.add_argument("--cases", type=int, default=2000, help="how many cases")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="what they are drawn from")
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    parser.add_argument("--only", type=int, help="this case of the seed alone")
    parser.add_argument("--case", help="this case alone, as JSON")
    parser.add_argument("--runs", nargs="+", choices=RUNS, default=list(RUNS), help="those that are there")
    parser.add_argument("--keep", type=Path, help="a directory for the trained runs, which then serve again")
    parser.add_argument("--say", action="store_true", help="what each case said")
    options = parser.parse_args()
    root = options.keep or Path(tempfile.mkdtemp(prefix="hostile-", dir=MEMORY if MEMORY.is_dir() else None))
    template = Template(root, options.runs)
    prepare(template)
    try:
        if options.case is not None:
            return _all({0: Case.from_json(options.case)}, template, say=True)
        if options.only is not None:
            return _all({options.only: draw(options.seed, options.only)}, template, say=True)
        numbers = range(options.first, options.first + options.cases)
        print(f"{options.cases:,} cases, seed {options.seed}", flush=True)
        return _all({number: draw(options.seed, number) for number in numbers}, template, options.say)
    finally:
        template.close()
        if not options.keep:
            shutil.rmtree(root, ignore_errors=True)


def _all(cases: dict[int, Case], template: Template, say: bool) -> int:
    families: defaultdict[str, list[int]] = defaultdict(list)
    kinds: Counter[str] = Counter()
    begin, failed, slowest = time.monotonic(), 0, (0.0, 0)
    for done, (number, case) in enumerate(cases.items(), 1):
        outcome = run(case, template, "world")
        found = findings(case, outcome)
        failed += bool(found)
        kinds[_kind(outcome)] += 1
        slowest = max(slowest, (outcome.seconds, number))
        for finding in found:
            if finding not in families:
                print(f"case {number}: {finding}\n  {_spelled(case)}", flush=True)
            families[finding].append(number)
        if say:
            _say(number, case, outcome)
        if done % 50 == 0:
            print(f"{done:,} cases in {time.monotonic() - begin:.0f} s: {failed} with findings", flush=True)
    print(f"{len(cases):,} cases: " + ", ".join(f"{count:,} {kind}" for kind, count in kinds.most_common()))
    print(f"{time.monotonic() - begin:.0f} s, the slowest {slowest[0]:.1f} s (case {slowest[1]})")
    for finding, numbers in sorted(families.items(), key=lambda item: -len(item[1])):
        print(f"{len(numbers):4} × {finding} (cases {', '.join(map(str, numbers[:6]))})")
    print(f"{failed} of {len(cases):,} with findings" if failed else "no findings")
    return int(failed > 0)


def _kind(outcome: Outcome) -> str:
    if outcome.stopped:
        return "stopped at work"
    return {0: "succeeded", 1: "refused", 2: "not parsed"}.get(outcome.code, f"exit code {outcome.code}")


def _spelled(case: Case) -> str:
    words = tuple(word if len(word) <= 60 else f"{word[:30]}…{len(word)}" for word in case.words)
    return (
        ascii(" ".join(words)) + (f" {case.damages}" if case.damages else "") + (f" >{case.output}" * bool(case.output))
    )


def _say(number: int, case: Case, outcome: Outcome) -> None:
    print(f"--- {number}: {_spelled(replace(case))}\n{ascii(case.to_json())[:300]}")
    print(f"code {outcome.code}, {outcome.seconds:.1f} s, stopped {outcome.stopped}, left {outcome.left}")
    print(ascii(outcome.out[-600:]).replace("\\n", "\n"))
    print(ascii(outcome.err[-6000:]).replace("\\n", "\n"), flush=True)


if __name__ == "__main__":
    sys.exit(main())
