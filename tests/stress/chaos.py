"""Attack sweeps, their stores and their controllers, and check what must hold.

    python tests/stress/chaos.py [--check]            every attack; at most 20 minutes
    python tests/stress/chaos.py --quick [--check]    the quick half; at most a minute
    python tests/stress/chaos.py --only WORD          those with the word in their name or file
    python tests/stress/chaos.py --list               their names and what must hold

An attack is one function in `tests/stress/attacks`. The last line is the verdict.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from attacks.frame import Attack, Observed, attacks, conduct

from benchmarks.common.bounds import Claim, conclude
from benchmarks.common.options import parser


def chosen(quick: bool, word: str) -> list[Attack]:
    """The attacks to run."""
    named = [made for made in attacks() if word in f"{made.subject}/{made.name}"]
    return [made for made in named if made.quick or not quick]


def table(observed: Sequence[Observed]) -> str:
    """The attacks as Markdown."""
    lines = ["| attack | what must hold | observed | seconds |", "|---|---|---|---|"]
    for row in observed:
        mark = "" if row.held else "BROKEN: "
        name = f"{row.attack.subject}: {row.attack.name.replace('_', ' ')}"
        text = row.text.replace("|", "\\|")
        lines.append(f"| {name} | {row.attack.holds} | {mark}{text} | {row.seconds:.1f} |")
    return "\n".join(lines)


def claims(observed: Sequence[Observed]) -> list[Claim]:
    """Everything holds."""
    return [Claim(f"{row.attack.name}: {row.attack.holds}", row.held, row.text) for row in observed]


def main() -> int:
    """Attack, and print the table and the verdict."""
    options = parser(__doc__)
    options.add_argument("--quick", action="store_true", help="the quick half")
    options.add_argument("--only", default="", metavar="WORD", help="part of a name or file")
    options.add_argument("--list", action="store_true", help="the names, and run nothing")
    options.add_argument("--check", action="store_true", help="status 1 if something is broken")
    given = options.parse_args()
    observed = []
    for made in chosen(given.quick, given.only):
        if given.list:
            print(f"{made.subject}/{made.name}: {made.holds}")
            continue
        observed.append(conduct(made))
        row = observed[-1]
        print(f"{'held' if row.held else 'BROKEN'} {made.name} {row.seconds:.1f} s", flush=True)
    if given.list:
        return 0
    print("\n" + table(observed))
    status = conclude(claims(observed))
    return status if given.check else 0


if __name__ == "__main__":
    sys.exit(main())
