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


NAMES = ["<img src=x onerror=alert(1)>", "a\u202eb", "\x1b[2Jx", "'; DROP TABLE sweeps; --"]


@attack("a bound, with one clear error", quick=True)
def a_billion_workers(folder: Path) -> str:
    (folder / "many.yaml").write_text(
        "name: many\nspace: {x: {low: 0.0, high: 1.0}}\ngoals: minimize loss\nworkers: 1000000000\n"
    )
    (folder / "mine.py").write_text("def objective(trial):\n    return {'loss': 1.0}\n")
    done = automl(
        folder, "sweep", "many.yaml", "--objective", "mine.py:objective", "--dry-run", seconds=30
    )
    assert done.returncode == 2, said(done)
    return said(done)


@attack("refused, and nothing is made", quick=True)
def hostile_names_of_sweeps(folder: Path) -> str:
    (folder / "toy.yaml").write_text("name: toy\nspace: {x: {low: 0.0, high: 1.0}}\n")
    for name in NAMES:
        done = automl(folder, "sweep", "toy.yaml", "--name", name, seconds=30)
        assert done.returncode == 2, said(done)
        assert "\x1b" not in done.stderr, "an escape sequence reaches the terminal"
    assert not (folder / ".automl").exists()
    return f"{len(NAMES)} refused"


@attack("no password is shown, no file is made", quick=True)
def studies_by_url(folder: Path) -> str:
    (folder / "toy.yaml").write_text(
        "name: toy\nspace: {x: {low: 0.0, high: 1.0}}\ngoals: minimize loss\nsuggester: random\n"
    )
    (folder / "mine.py").write_text("def objective(trial):\n    return {'loss': 1.0}\n")
    options = ("--objective", "mine.py:objective", "--dispatcher", "inline", "--trials", "1")
    for source in (
        "postgresql://me:secret@127.0.0.1/db#s",
        "postgresql://me:secret@127.0.0.1/db",
        "postgresql:/me:secret@127.0.0.1/db#s",
        "sqlite:///missing.db#s",
    ):
        done = automl(folder, "sweep", "toy.yaml", *options, "--prior", f"optuna:{source}")
        assert done.returncode == 2, said(done)
        assert "secret" not in said(done) + done.stderr, "the password is shown"
    assert not (folder / "missing.db").exists(), "a mistyped path made a file"
    done = automl(folder, "sweep", "toy.yaml", *options, "--store", "postgresql:/me:secret@h/db")
    assert done.returncode != 0, said(done)
    assert "secret" not in done.stdout + done.stderr, "the password is shown"
    assert not (folder / "postgresql:").exists(), "a mistyped URL made a folder"
    return said(done)
