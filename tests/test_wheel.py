"""The built wheel works elsewhere: without the checkout it runs the first example of the README."""

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
from pages import blocks
from sources import MODULES, PACKAGES, ROOT

from scripts import release

DATA = ("**/py.typed", "**/*.json", "**/assets/*")
NEEDED = {  # one file of each kind, in case the patterns find nothing
    "automl/py.typed",
    "automl/workflows/assets/slurm_job.sh",
    "automl/report/assets/report.html",
    "automl/report/assets/index.html",
    "search_spaces/py.typed",
    "workers/py.typed",
}


def run(*command: str | Path, folder: Path) -> str:
    """Run a command without any path of the checkout; its standard output."""
    kept = {name: text for name, text in os.environ.items() if name not in ("PYTHONPATH", "PWD")}
    done = subprocess.run(
        [str(word) for word in command], cwd=folder, env=kept, capture_output=True, text=True
    )
    assert done.returncode == 0, f"{command}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the source archive beside it."""
    folder = tmp_path_factory.mktemp("wheel")
    copy = release.copy_tracked(folder / "copy")  # because building leaves files behind
    return release.build(copy, folder / "dist", quick=True, time="1700000000")[0]


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a new environment that has the wheel.

    The dependencies are those of this environment, named in a `.pth` file: to install them anew
    would take minutes. The `.pth` files of this environment are not read then; one of them leads
    to the checkout.
    """
    folder = tmp_path_factory.mktemp("elsewhere")
    venv.create(folder, with_pip=False)
    interpreter = folder / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", interpreter, "install", "--no-deps")
    run(*pip, "--no-index", "--quiet", wheel, folder=folder)
    (packages,) = folder.glob("lib/*/site-packages")
    present = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    (packages / "dependencies.pth").write_text("\n".join(present) + "\n")
    return interpreter


def test_the_wheel_holds_the_packages_with_their_data_and_nothing_else(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == set(PACKAGES)
    data = {path for top in PACKAGES for pattern in DATA for path in (ROOT / top).glob(pattern)}
    expected = {str(path.relative_to(ROOT)) for path in {*MODULES.values(), *data}}
    assert (expected | NEEDED) - names == set()


def test_the_packages_are_those_of_the_wheel_and_the_first_example_runs(
    python: Path, tmp_path: Path
) -> None:
    """Of fewer trials, from a folder that holds the example alone."""
    code = f"import {', '.join(PACKAGES)}; print({', '.join(f'{p}.__file__' for p in PACKAGES)})"
    places = run(python, "-c", code, folder=tmp_path).split()
    assert [place for place in places if python.parents[1] not in Path(place).parents] == []
    example = blocks(ROOT / "README.md", "python")[0]
    (tmp_path / "mine.py").write_text(example.replace("trials=20", "trials=4"))
    assert "'lr'" in run(python, "mine.py", folder=tmp_path)
    assert "sweep" in run(python.parent / "automl", "list", folder=tmp_path)
