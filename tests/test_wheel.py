"""What the built wheel holds; `scripts/release.py --quick` uses it as a stranger does."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from sources import MODULES, PACKAGES, ROOT

from scripts import release

TIME = "1700000000"
END = ("-py3-none-any.whl", ".tar.gz")
DATA = ("**/py.typed", "**/*.json", "**/assets/*")
NEEDED = {  # one file of each kind, in case the patterns find nothing
    "automl/py.typed",
    "automl/launch/assets/slurm_job.sh",
    "automl/report/assets/report.html",
    "automl/report/assets/index.html",
    "search_spaces/py.typed",
    "workers/py.typed",
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the source archive beside it."""
    folder = tmp_path_factory.mktemp("wheel")
    copy = release.copy_tracked(folder / "copy")  # because building leaves files behind
    return release.build(copy, folder / "dist", quick=True, time=TIME)[0]


def test_the_wheel_holds_the_packages_with_their_data_and_nothing_else(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == set(PACKAGES)
    data = {path for top in PACKAGES for pattern in DATA for path in (ROOT / top).glob(pattern)}
    assert len(data) >= len(PACKAGES)
    expected = {str(path.relative_to(ROOT)) for path in {*MODULES.values(), *data}}
    assert (expected | NEEDED) - names == set()
