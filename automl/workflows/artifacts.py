"""The files of a trial for whoever reads them: in the store, or fetched from the artifacts."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from automl.control.artifacts import artifacts_of, check_repeated
from automl.core import SweepSpec
from automl.ledger import Ledger
from workers.artifacts.copies import SweepArtifacts
from workers.artifacts.location import NONE, read_location
from workers.files.folder import Folder


@contextmanager
def files_of_trial(
    ledger: Ledger, sweep: str, number: int, given: str | None = None
) -> Iterator[Folder]:
    """The folder of a trial; what is at the location of the artifacts is fetched for a while.

    Args:
        given: the location as the person names it; None if they name none.

    Raises:
        UsageError: the files are at a location that the person does not name, or an object there is
            missing or damaged.
    """
    spec = ledger.spec(sweep)
    here = ledger.files(sweep) / "trials" / str(number)
    location = read_location(given or "")
    artifacts = artifacts_of(spec)
    if artifacts is None or location == NONE:
        yield here
        return
    check_repeated(spec, location)
    with tempfile.TemporaryDirectory(prefix="automl-") as folder:
        fetched = artifacts.fetch(number, Path(folder))
        yield Folder(folder) if fetched else here


def moved_to(spec: SweepSpec, given: str | None) -> SweepSpec:
    """The spec of a sweep that is derived from one, which may be a stranger's.

    Args:
        spec: its location, which is the earlier sweep's, is not taken over.
        given: the location as the person names it; None if they name none.
    """
    location = read_location(given or "")
    kept = spec.with_location("" if location == NONE else location)
    return replace(kept, artifacts_folder="")


def publish(ledger: Ledger, sweep: str, number: int, target: Path, given: str | None = None) -> str:
    """Copy an exported folder to the artifacts of its sweep; returns where it is, "" for none.

    Args:
        given: the location as the person names it; if they name none, nothing is copied.

    Raises:
        UsageError: the location cannot be written.
    """
    artifacts = artifacts_of(ledger.spec(sweep))
    if artifacts is None or read_location(given or "") in ("", NONE):
        return ""
    return artifacts.put(f"exports/{number}", target)


def location_to_delete(spec: SweepSpec, given: str | None) -> SweepArtifacts | None:
    """The artifacts of a sweep that is deleted; None if it has none.

    Args:
        given: the location as the person names it; None if they name none.

    Raises:
        UsageError: the person names another location than the sweep has.
    """
    artifacts = artifacts_of(spec)
    if artifacts is not None and given is not None:
        check_repeated(spec, read_location(given))
    return None if given == NONE else artifacts
