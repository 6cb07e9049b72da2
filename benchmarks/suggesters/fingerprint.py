"""Which code a row was measured with, and which later code computes the same.

A fingerprint is a hash of the suggester's syntax trees without docstrings. Renaming or moving a
file changes it, even if every number stays the same. `results/same_code.json` declares such code,
so that its rows stay valid; `tests/stress/same_numbers.py` is the proof.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import json
from pathlib import Path
from typing import Any

from benchmarks.common import store

OWN = ("bayes", "bayes-blackbox")
CODE = Path(__file__).parents[2] / "automl" / "suggesters" / "bayes"
SAME = store.RESULTS / "same_code.json"
PROOF = "tests/stress/same_numbers.py"


@functools.cache
def fingerprint(name: str) -> str:
    """Fingerprint of the rows that speak of the present code; "" for a peer."""
    if name.partition("~")[0] not in OWN:
        return ""
    present = present_fingerprint()
    return str(declared().get(present, {}).get("same_as", present))


@functools.cache
def present_fingerprint() -> str:
    """Fingerprint of the code as it is now, without declarations."""
    code = "".join(_code(path) for path in sorted(CODE.rglob("*.py")))
    return hashlib.sha256(code.encode()).hexdigest()[:10]


def declared() -> dict[str, dict[str, str]]:
    """The declared fingerprints, each with `same_as` and `proof`."""
    found: dict[str, dict[str, str]] = json.loads(SAME.read_text()) if SAME.exists() else {}
    return found


def declare_same(old: str) -> str:
    """Declare that the present code computes the same as the code of older rows.

    Raises:
        ValueError: no stored row has that fingerprint.
    """
    known = {row["code"] for path in (store.ROWS, store.SPEED) for row in store.read(path)} - {""}
    if old not in known:
        raise ValueError(f"no stored row has the fingerprint {old!r}; known: {sorted(known)}")
    kept: dict[str, Any] = {new: row for new, row in declared().items() if row["same_as"] != old}
    kept[present_fingerprint()] = {"same_as": old, "proof": PROOF}
    SAME.write_text(json.dumps(kept, indent=1) + "\n")
    return present_fingerprint()


def _code(path: Path) -> str:
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [part for part in body if not _is_docstring(part)]  # type: ignore[attr-defined]
    return ast.dump(tree)


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
