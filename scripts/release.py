"""Check a release: build it, install it elsewhere, and use it there as a stranger does.

    python scripts/release.py --quick      with the dependencies of this environment: minutes
    python scripts/release.py              with dependencies from the package index: 6 GB
    python scripts/release.py --keep       leave the wheel and the source archive in dist/
    python scripts/release.py --tag v0.3.0 this tag must name the version

The steps: version, citation and changelog agree; the tracked files become a source archive, and
that a wheel; the same files become the same bytes again, in another folder and at another time; the
wheel holds every file of the packages; `twine check --strict` accepts both; in an empty environment
and folder run `automl --version`, `automl init`, a sweep of a function, README's first example, a
sweep of a command and the studio. The script uploads nothing. It needs `pip install build twine`.
"""

from __future__ import annotations

import argparse
import gzip
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path
from urllib.request import Request, urlopen

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("automl", "workers", "search_spaces")
BACKEND = """
import sys
from setuptools import build_meta

getattr(build_meta, sys.argv[1])(sys.argv[2])
"""
SECTION = re.compile(r"^## \[(\d+\.\d+\.\d+)\] - (\d{4}-\d{2}-\d{2})$", re.MULTILINE)
OBJECTIVE = """
import automl

def objective(trial):
    return {"loss": (trial.params["x"] - 1) ** 2}

if __name__ == "__main__":
    result = automl.sweep(objective, {"x": (-2.0, 2.0)}, "minimize loss", trials=3, name="first")
    print(len(result.trials), "trials", automl.__version__)
"""


PROGRAM = """
import sys

lr, width = float(sys.argv[2]), int(sys.argv[4])
print("val_loss:", (lr - 0.002) ** 2 + 1 / width)
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


def outside() -> dict[str, str]:
    """The environment without any path of the checkout."""
    return {name: text for name, text in os.environ.items() if name not in ("PYTHONPATH", "PWD")}


def run(*words: str | Path, folder: Path, **variables: str) -> str:
    """Run a command without any path of the checkout; its standard output.

    Raises:
        Wrong: it failed.
    """
    done = subprocess.run(
        [str(word) for word in words],
        cwd=folder,
        env={**outside(), **variables},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise Wrong(f"{' '.join(map(str, words))}:\n{done.stdout}\n{done.stderr}")
    return done.stdout


def tracked() -> list[str]:
    """The files that git tracks, relative to the checkout."""
    return run("git", "ls-files", folder=ROOT).splitlines()


def seconds() -> str:
    """The time of every file in the archives, for SOURCE_DATE_EPOCH: that of the last commit."""
    return (
        os.environ.get("SOURCE_DATE_EPOCH")
        or run("git", "log", "-1", "--format=%ct", folder=ROOT).strip()
    )


def copy_tracked(folder: Path) -> Path:
    """A copy of the tracked files, with the permissions that git knows."""
    for name in tracked():
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
            executable = (ROOT / name).stat().st_mode & 0o100
            (folder / name).chmod(0o755 if executable else 0o644)
    return folder


def build(source: Path, dist: Path, quick: bool, time: str) -> tuple[Path, Path]:
    """Build the source archive, and the wheel from it; the paths of wheel and archive.

    Args:
        source: a copy of the tracked files; building leaves files there.
        dist: a new folder.
        quick: build with the setuptools of this environment, else in an environment of its own.
        time: of every file in the archives, in seconds since 1970.
    """
    dist.mkdir()
    make("sdist", source, dist, quick, time)
    (archive,) = dist.glob("*.tar.gz")
    normalise(archive, int(time))
    with tempfile.TemporaryDirectory(dir=dist.parent) as name:
        with tarfile.open(archive) as packed:
            packed.extractall(name, filter="data")
        (unpacked,) = Path(name).iterdir()
        make("wheel", unpacked, dist, quick, time)
    (wheel,) = dist.glob("*.whl")
    return wheel, archive


def make(kind: str, source: Path, dist: Path, quick: bool, time: str) -> None:
    """Make one archive, a "wheel" or an "sdist"; the arguments are those of `build`."""
    words = ["-c", BACKEND, f"build_{kind}", dist] if quick else ["-m", "build", f"--{kind}"]
    place = [] if quick else ["--outdir", dist, source]
    folder = source if quick else dist  # a folder `build` would hide the module
    run(sys.executable, *words, *place, folder=folder, SOURCE_DATE_EPOCH=time)


def normalise(archive: Path, time: int) -> None:
    """Give a source archive one order, one time and no owner, so that it is the same each time."""
    with tarfile.open(archive) as packed:
        files = {
            member.name: stream.read()
            for member in packed.getmembers()
            if (stream := packed.extractfile(member))
        }
        modes = {member.name: member.mode for member in packed.getmembers()}
    with (
        archive.open("wb") as raw,
        gzip.GzipFile("", "wb", fileobj=raw, mtime=time) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as packed,
    ):
        for name in sorted(files):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime = len(files[name]), time
            entry.mode = 0o755 if modes[name] & 0o100 else 0o644
            packed.addfile(entry, io.BytesIO(files[name]))


def check_repeatable(folder: Path, quick: bool, time: str, first: tuple[Path, Path]) -> None:
    """Build again from a copy in another folder.

    Raises:
        Wrong: an archive has other bytes.
    """
    again = build(copy_tracked(folder / "another" / "place"), folder / "again", quick, time)
    for one, other in zip(first, again, strict=True):
        if one.read_bytes() != other.read_bytes():
            raise Wrong(f"{one.name} has other bytes if it is built again")


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
    if "3 of 3" not in run(automl, "status", "first", folder=folder):
        raise Wrong("automl status does not show the three trials")


def use_readme(programs: Path, folder: Path) -> None:
    """Run what README shows: its first example, and a sweep of a command.

    Raises:
        Wrong: something fails, or a result is missing.
    """
    automl, python = programs / "automl", programs / "python"
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    first = re.search(r"^```python\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)
    if first is None or "trials=20" not in first[1]:
        raise Wrong("README.md has no first example with 20 trials")
    (folder / "example.py").write_text(first[1])
    if "'lr'" not in run(python, "example.py", folder=folder):
        raise Wrong("README's example does not print the best configuration")
    (folder / "train.py").write_text(PROGRAM)
    run(automl, "init", "--", python, "train.py", "--lr", "0.001", "--width", "64", folder=folder)
    run(automl, "sweep", "train.yaml", "--trials", "4", folder=folder)
    if "4 of 4" not in run(automl, "status", "train", folder=folder):
        raise Wrong("the sweep of a command does not have four trials")


def use_studio(programs: Path, folder: Path) -> None:
    """Start the studio, and ask it for its page and for the sweeps of the store.

    Raises:
        Wrong: it does not start, or does not list the sweep of the command.
    """
    with subprocess.Popen(
        [programs / "automl", "studio", "--port", "0"],
        cwd=folder,
        env=outside(),
        stdout=subprocess.PIPE,
        text=True,
    ) as studio:
        try:
            assert studio.stdout is not None
            address, _, token = studio.stdout.readline().strip().partition("/#token=")
            if not token:
                raise Wrong(f"the studio prints no address: {address!r}")
            known = {"Authorization": f"Bearer {token}"}
            sweeps = Request(f"{address}/api/sweeps", headers=known)
            with urlopen(address, timeout=60) as page, urlopen(sweeps, timeout=60) as answer:
                if b"<html" not in page.read() or '"train"' not in answer.read().decode():
                    raise Wrong("the studio does not serve its page and the sweeps")
        finally:
            studio.terminate()


def main(words: list[str] | None = None) -> int:
    """Run every step, and print the first that fails."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="dependencies of this environment")
    parser.add_argument("--keep", action="store_true", help="leave both archives in dist/")
    parser.add_argument("--tag", help="the tag of the release, which must name the version")
    given = parser.parse_args(words)
    with tempfile.TemporaryDirectory(prefix="release-") as name:
        try:
            archives = check(Path(name), given.quick, given.tag)
        except Wrong as error:
            print(f"NOT READY: {error}")
            return 1
        if given.keep:
            (ROOT / "dist").mkdir(exist_ok=True)
            for path in archives:
                shutil.copy(path, ROOT / "dist")
    print("READY")
    return 0


def check(folder: Path, quick: bool, tag: str | None) -> tuple[Path, Path]:
    """Do every step, and print what holds; the paths of wheel and source archive.

    Raises:
        Wrong: a step fails.
    """
    expected, time = version(), seconds()
    if tag is not None and tag != f"v{expected}":
        raise Wrong(f"the tag is {tag}, the version {expected}")
    print(f"{expected}: automl/__init__.py, CITATION.cff and CHANGELOG.md agree")
    archives = build(copy_tracked(folder / "copy"), folder / "dist", quick, time)
    run(sys.executable, "-m", "twine", "check", "--strict", *archives, folder=folder)
    print(f"built and checked by twine: {', '.join(path.name for path in archives)}")
    check_repeatable(folder, quick, time, archives)
    print("built again in another folder: the same bytes")
    print(f"the wheel holds {check_files(archives[0])} files of the packages")
    programs = install(archives[0], folder / "environment", quick)
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    use(programs, elsewhere, expected)
    print("installed elsewhere: --version, init, a sweep of three trials, status")
    use_readme(programs, elsewhere)
    print("README's first example, and a sweep of a command")
    use_studio(programs, elsewhere)
    print("the studio serves its page and the sweeps")
    return archives


if __name__ == "__main__":
    sys.exit(main())
