"""Check a release: build it, install it elsewhere, and use it there as a stranger does.

    python scripts/release.py --quick      with the dependencies of this environment: a minute
    python scripts/release.py              with dependencies from the package index: 2 GB
    python scripts/release.py --keep       leave the wheel and the source archive in dist/

The steps: version, citation and changelog agree; `build` makes both archives from the tracked
files; the wheel holds every file of the packages; `twine check --strict` accepts both; in an empty
environment and folder, `automl --version`, `automl init` and a sweep of three trials run. The
script uploads nothing. It needs `pip install build twine`.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("automl", "workers", "search_spaces", "hydra_plugins")
SECTION = re.compile(r"^## \[(\d+\.\d+\.\d+)\] - (\d{4}-\d{2}-\d{2})$", re.MULTILINE)
OBJECTIVE = """
import automl

def objective(trial):
    return {"loss": (trial.params["x"] - 1) ** 2}

if __name__ == "__main__":
    result = automl.sweep(objective, {"x": (-2.0, 2.0)}, "minimize loss", trials=3, name="first")
    print(len(result.trials), "trials", automl.__version__)
"""


class Wrong(RuntimeError):
    """Something about the release is wrong."""


def version() -> str:
    """The version in automl/__init__.py, the one place where it stands.

    Raises:
        Wrong: the citation or the changelog has another one.
    """
    text = (ROOT / "automl" / "__init__.py").read_text(encoding="utf-8")
    (found,) = re.findall(r'^__version__ = "([^"]+)"', text, re.MULTILINE)
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = SECTION.search(changelog)
    if newest is None or newest[1] != found:
        raise Wrong(f"CHANGELOG.md has no section for {found} before the other releases")
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8").splitlines()
    for line in (f"version: {found}", f"date-released: {newest[2]}"):
        if line not in citation:
            raise Wrong(f"CITATION.cff has no line {line!r}")
    return found


def run(*words: str | Path, folder: Path) -> str:
    """Run a command without any path of the checkout; its standard output.

    Raises:
        Wrong: it failed.
    """
    kept = {name: text for name, text in os.environ.items() if name not in ("PYTHONPATH", "PWD")}
    done = subprocess.run(
        [str(word) for word in words], cwd=folder, env=kept, capture_output=True, text=True
    )
    if done.returncode:
        raise Wrong(f"{' '.join(map(str, words))}:\n{done.stdout}\n{done.stderr}")
    return done.stdout


def tracked() -> list[str]:
    """The files that git tracks, relative to the checkout."""
    return run("git", "ls-files", folder=ROOT).splitlines()


def build(folder: Path, quick: bool) -> tuple[Path, Path]:
    """Build the source archive, and the wheel from it; their paths."""
    copy, dist = folder / "copy", folder / "dist"
    for name in tracked():
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy / name)
    isolation = ["--no-isolation"] if quick else []
    run(sys.executable, "-m", "build", "--outdir", dist, *isolation, copy, folder=folder)
    run(sys.executable, "-m", "twine", "check", "--strict", *dist.iterdir(), folder=folder)
    (wheel,), (archive,) = dist.glob("*.whl"), dist.glob("*.tar.gz")
    return wheel, archive


def check_files(wheel: Path) -> int:
    """How many files of the packages the wheel holds.

    Raises:
        Wrong: a file is missing.
    """
    names = set(zipfile.ZipFile(wheel).namelist())
    wanted = {name for name in tracked() if name.startswith(PACKAGES) and not name.endswith(".md")}
    if absent := sorted(wanted - names):
        raise Wrong(f"the wheel lacks {', '.join(absent)}")
    return len(wanted)


def install(wheel: Path, folder: Path, quick: bool) -> Path:
    """Install the wheel in an empty environment; the folder of its programs."""
    venv.create(folder, with_pip=True)
    programs = folder / "bin"
    pip = (programs / "python", "-m", "pip", "install", "--quiet")
    run(*pip, *(["--no-deps", "--no-index"] if quick else []), wheel, folder=folder)
    if quick:
        (packages,) = folder.glob("lib/*/site-packages")
        present = [path for path in sys.path if Path(path).name == "site-packages"]
        (packages / "dependencies.pth").write_text("\n".join(present) + "\n")
    return programs


def use(programs: Path, folder: Path, expected: str) -> None:
    """Do what a stranger does first.

    Raises:
        Wrong: a command fails, or does not print what it should.
    """
    automl = programs / "automl"
    (folder / "mine.py").write_text(OBJECTIVE)
    place = run(programs / "python", "-c", "import automl; print(automl.__file__)", folder=folder)
    if not Path(place.strip()).is_relative_to(programs.parent):
        raise Wrong(f"automl is imported from {place.strip()}, not from the wheel")
    told = {
        run(automl, "--version", folder=folder).split()[-1],
        run(programs / "python", "mine.py", folder=folder).split()[-1],
    }
    if told != {expected}:
        raise Wrong(f"the wheel is {expected}, and its programs say {', '.join(sorted(told))}")
    run(automl, "init", "--objective", "mine.py:objective", "-o", "mine.yaml", folder=folder)
    if not (folder / "mine.yaml").read_text(encoding="utf-8").strip():
        raise Wrong("automl init wrote an empty configuration")
    if "3 of 3" not in run(automl, "status", "first", folder=folder):
        raise Wrong("automl status does not show the three trials")


def main(words: list[str] | None = None) -> int:
    """Run every step, and print the first that fails."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="dependencies of this environment")
    parser.add_argument("--keep", action="store_true", help="leave both archives in dist/")
    given = parser.parse_args(words)
    with tempfile.TemporaryDirectory(prefix="release-") as name:
        folder = Path(name)
        try:
            expected = version()
            print(f"{expected}: automl/__init__.py, CITATION.cff and CHANGELOG.md agree")
            archives = build(folder, given.quick)
            print(f"built and checked by twine: {', '.join(path.name for path in archives)}")
            print(f"the wheel holds {check_files(archives[0])} files of the packages")
            programs = install(archives[0], folder / "environment", given.quick)
            (folder / "elsewhere").mkdir()
            use(programs, folder / "elsewhere", expected)
            print("installed elsewhere: --version, init, a sweep of three trials, status")
        except Wrong as error:
            print(f"NOT READY: {error}")
            return 1
        if given.keep:
            (ROOT / "dist").mkdir(exist_ok=True)
            for path in archives:
                shutil.copy(path, ROOT / "dist")
    print("READY")
    return 0


if __name__ == "__main__":
    sys.exit(main())
