"""Put the tables and the code of the comparison into docs/comparison.md.

    python benchmarks/comparison/page.py            rewrite what stands between its markers
    python benchmarks/comparison/page.py --check    exit with status 1 if the page is not up to date

A marker is `<!-- begin NAME -->` with `<!-- end -->`. NAME is `table TASK`, `code TASK_TOOL` or
`measured`, which tells when and on which machine the rows were measured.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from benchmarks.common import store
from benchmarks.common.options import parser
from benchmarks.comparison import run

HERE = Path(__file__).parent
PAGE = Path(__file__).parents[2] / "docs" / "comparison.md"
MARKED = re.compile(r"(<!-- begin ([^\n]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def filled(page: str) -> str:
    """The page with present tables and code."""
    rows = list(store.load(run.ROWS, "task", "tool", "seed").values())

    def fill(match: re.Match[str]) -> str:
        kind, _, name = match[2].partition(" ")
        if kind == "table":
            text = run.table(name, rows)
        elif kind == "code":
            text = f"```py\n{(HERE / f'{name}.py').read_text(encoding='utf-8')}```"
        else:
            text = measured(rows)
        return f"{match[1]}\n{text}\n\n{match[3]}"

    return MARKED.sub(fill, page)


def measured(rows: list[store.Row]) -> str:
    """When and on what the rows were measured."""
    if not rows:
        return "Not measured yet."
    dates = sorted({row["date"] for row in rows})
    loads = sorted(row["load"] for row in rows)
    machines = json.loads(store.MACHINES.read_text(encoding="utf-8"))
    used = [machines[number] for number in sorted({row["machine"] for row in rows})]
    names = ", ".join(f"{m['cpu']} with {m['cores']} cores, Python {m['python']}" for m in used)
    when = " to ".join(dict.fromkeys((dates[0], dates[-1])))
    return (
        f"Measured on {when}, on one core of: {names}. "
        f"Other work ran on the machine (load average {loads[0]} to {loads[-1]}), so the tables "
        "have processor seconds. The rows have seconds by the clock too."
    )


def main() -> int:
    """Rewrite or check the page."""
    options = parser(__doc__)
    options.add_argument("--check", action="store_true", help="rewrite nothing")
    given = options.parse_args()
    before = PAGE.read_text(encoding="utf-8")
    after = filled(before)
    if given.check:
        print("up to date" if after == before else "not up to date: run page.py")
        return int(after != before)
    PAGE.write_text(after, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
