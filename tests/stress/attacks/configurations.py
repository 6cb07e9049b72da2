"""Hostile configurations."""

from __future__ import annotations

from pathlib import Path

from attacks.frame import attack, automl, said

BOMBS = {
    "aliases": "a: &a [x, x, x]\nb: &b [*a, *a, *a]\nc: &c [*b, *b, *b]\nd: [*c, *c, *c]\n",
    "a cycle": "a: &a\n  b: *a\n",
    "a duplicate": "name: a\nname: b\n",
    "a deep one": "a: " + "[" * 3000 + "]" * 3000 + "\n",
    "2^63": "name: a\nseed: 9223372036854775808\nspace: {x: {low: 0, high: 1}}\n",
    "a tag": "name: !!python/object/apply:os.system [touch hit]\n",
}


@attack("each is refused with one clear error", quick=True)
def yaml_bombs(folder: Path) -> str:
    for name, text in BOMBS.items():
        (folder / "bomb.yaml").write_text(text)
        done = automl(folder, "sweep", "bomb.yaml", "--dry-run", seconds=30)
        assert done.returncode == 2, f"{name}: {said(done)}"
        said(done)
    assert not (folder / "hit").exists(), "a configuration ran code"
    assert not (folder / ".automl").exists(), "a store was made"
    return f"{len(BOMBS)} refused"
