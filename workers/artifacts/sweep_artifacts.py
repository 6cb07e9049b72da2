"""The artifacts of a whole sweep: where those of a trial are, reading and removing them."""

from pathlib import Path
from typing import Final

from search_spaces.errors import UsageError
from workers.files.folder import Folder
from workers.protocol import DISPOSABLE

from .snapshots import Manifest, Snapshots, attempt_name, manifest_name
from .storage import ArtifactStorage, described, retried

READ_SECONDS: Final = 60.0  # until reading or removing gives up
PROBE_SECONDS: Final = 15.0  # until the check at the start gives up


class SweepArtifacts:
    """The artifacts of a sweep.

    Args:
        location: of all sweeps, from `location.read_location`.
        folder: the name of the sweep's own folder there.
    """

    def __init__(self, location: str, folder: str) -> None:
        self.location = f"{location}/{folder}"

    def trial(self, number: int) -> str:
        """The location of a trial's snapshots."""
        return f"{self.location}/trials/{number}"

    def fetch(self, number: int, target: Path) -> bool:
        """Write the files of a trial's newest snapshot into a folder.

        Returns:
            Whether there is a snapshot.

        Raises:
            UsageError: an object is missing or damaged, or the location does not answer.
        """
        snapshots = self._snapshots(number)
        try:
            found = retried(snapshots.found, READ_SECONDS)
            if not found:
                return False
            manifest = retried(lambda: snapshots.read(*found[0]), READ_SECONDS)
            damaged = retried(lambda: snapshots.restore(manifest, Folder(target)), READ_SECONDS)
        except UsageError:
            raise
        except Exception as error:
            raise UsageError(f"{self.location} cannot be read: {described(error)}") from error
        if damaged:
            raise UsageError(f"{'; '.join(damaged)}: restore the object, or choose another trial")
        return True

    def put(self, name: str, source: Path) -> str:
        """Copy the files of a folder to the location; returns where they are.

        Args:
            name: of the folder there; what is in it is replaced.
            source: a folder of files and folders, without links.

        Raises:
            UsageError: the location cannot be written.
        """
        storage = ArtifactStorage(f"{self.location}/{name}")

        def copy() -> None:
            storage.remove_all()
            for path in sorted(source.rglob("*")):
                if path.is_file():
                    with path.open("rb") as file:
                        storage.write(
                            path.relative_to(source).as_posix(), file, path.stat().st_size
                        )

        try:
            retried(copy, READ_SECONDS)
        except Exception as error:
            raise UsageError(f"{storage.location} cannot be written: {described(error)}") from error
        return storage.location

    def forget_checkpoints(self, number: int) -> None:
        """Remove the checkpoints of a trial; other files that it has written stay.

        Raises:
            Exception: as fsspec raises it, if the location does not answer.
        """
        snapshots = self._snapshots(number)
        found = snapshots.found()
        if not found:
            return
        newest = snapshots.read(*found[0])
        kept = {path: f for path, f in newest.files.items() if path.split("/")[0] not in DISPOSABLE}
        if not kept:
            snapshots.storage.remove_all()
            return
        rest = Manifest(newest.attempt, newest.sequence + 1, newest.host, kept)
        snapshots.write_manifest(rest)
        snapshots.remove_before(rest.attempt)
        place = snapshots.storage / attempt_name(rest.attempt)
        for name in place.names():
            if name not in rest.objects and name != manifest_name(rest.sequence):
                place.remove(name)

    def remove(self) -> None:
        """Remove everything of the sweep.

        Raises:
            UsageError: the location does not answer.
        """
        try:
            retried(ArtifactStorage(self.location).remove_all, READ_SECONDS)
        except Exception as error:
            raise UsageError(f"{self.location} cannot be removed: {described(error)}") from error

    def _snapshots(self, number: int) -> Snapshots:
        return Snapshots(ArtifactStorage(self.trial(number)))


def check_writable(location: str) -> None:
    """Write a small object to a location, read it and remove it.

    Raises:
        UsageError: this is not possible from this machine.
    """
    try:
        retried(ArtifactStorage(location).probe, PROBE_SECONDS)
    except Exception as error:
        raise UsageError(
            f"artifacts: {location} cannot be written from this machine: {described(error)}. Check "
            "the name and the credentials in the environment"
        ) from error
