"""The mirror of a trial's folder, on a folder and on a real S3 server."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from workers.artifacts import mirror as mirror_module
from workers.artifacts.mirror import MARK, ArtifactMirror
from workers.artifacts.snapshots import DamagedArtifact, Manifest, Snapshots, StoredFile
from workers.artifacts.storage import ArtifactStorage
from workers.files.folder import Folder


@pytest.fixture(params=["folder", "s3"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "folder":
        return str(tmp_path / "kept" / "trials" / "0")
    url = request.getfixturevalue("s3")
    return f"{url}/{tmp_path.name}/trials/0"


BEGUN: list[ArtifactMirror] = []  # of the test that runs


@pytest.fixture(autouse=True)
def no_thread_is_left(location: str) -> Iterator[None]:
    """Ends every mirror while its server still answers; it would speak into a later test."""
    yield
    while BEGUN:
        end(BEGUN.pop())


def begin(location: str, folder: Path, attempt: int = 1) -> ArtifactMirror:
    mirror = ArtifactMirror(location, Folder(folder), attempt, resume=attempt > 1)
    BEGUN.append(mirror)
    mirror.restore()
    mirror.start()
    return mirror


def end(mirror: ArtifactMirror, *, remove: bool = True) -> None:
    mirror.finish(lambda: None, remove=remove)


def write(folder: Path, files: dict[str, str]) -> None:
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)


def content(folder: Path) -> dict[str, str]:
    kept = [p for p in folder.rglob("*") if p.is_file() and ".artifacts" not in p.name]
    return {str(p.relative_to(folder)): p.read_text() for p in kept}


def wait_until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.02)


FILES = {
    "checkpoints/00000005/manifest.json": "{}",
    "checkpoints/00000005/model.safetensors": "five",
    "checkpoints/00000010/manifest.json": "{}",
    "checkpoints/00000010/model.safetensors": "ten",
    "model of *mine?.txt": "a name with signs",
    "empty/file": "",
}


def test_an_attempt_on_another_machine_gets_the_files_of_the_one_before(
    location: str, tmp_path: Path
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    mirror = begin(location, first)
    write(first, FILES)
    write(first, {"logs/attempt-1-rank-0.log": "not kept", "command/params.json": "{}"})
    (first / "link").symlink_to("empty/file")
    end(mirror)
    assert mirror.message == ""
    assert mirror.artifact_bytes == sum(map(len, FILES.values()))
    assert set(content(first)) == {"logs/attempt-1-rank-0.log", "command/params.json"}

    again = begin(location, second, attempt=2)
    assert content(second) == FILES | {"link": ""}
    assert (second / "link").readlink() == Path("empty/file")
    end(again)
    assert Snapshots(ArtifactStorage(location)).found() == [(1, 0)], "nothing was new"


def test_a_checkpoint_is_uploaded_while_the_attempt_goes_on(location: str, tmp_path: Path) -> None:
    mirror = begin(location, tmp_path / "first")
    snapshots = Snapshots(ArtifactStorage(location))
    for number in range(3):
        write(tmp_path / "first", {"checkpoints/state": f"state {number}"})
        mirror.checkpointed()
        wait_until(lambda: snapshots.found()[:1] == [(1, number)])  # noqa: B023
    # The last two snapshots are kept, of one object each.
    wait_until(lambda: len((ArtifactStorage(location) / "000001").names()) == 4)
    # The process is killed here: nothing is finished. The next attempt has what was uploaded.
    begin(location, tmp_path / "second", attempt=2)
    assert content(tmp_path / "second") == {"checkpoints/state": "state 2"}
    end(mirror)


def test_files_that_nobody_announces_are_found_once_they_rest(
    location: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror_module, "LOOK_SECONDS", 0.05)
    mirror = begin(location, tmp_path / "first")
    write(tmp_path / "first", {"checkpoints/state": "of a program"})
    wait_until(lambda: bool(Snapshots(ArtifactStorage(location)).found()))
    end(mirror)


def test_newer_files_of_a_killed_attempt_on_this_machine_are_not_replaced(
    location: str, tmp_path: Path
) -> None:
    folder = tmp_path / "first"
    mirror = begin(location, folder)
    write(folder, {"checkpoints/state": "uploaded"})
    mirror.checkpointed()
    wait_until(lambda: bool(Snapshots(ArtifactStorage(location)).found()))
    mirror._over.set()  # as if it were killed: what follows is never uploaded
    mirror._wake.set()
    assert mirror._thread is not None
    mirror._thread.join()
    write(folder, {"checkpoints/state": "newer"})
    again = begin(location, folder, attempt=2)
    assert content(folder) == {"checkpoints/state": "newer"}
    end(again)
    begin(location, tmp_path / "other", attempt=3)
    assert content(tmp_path / "other") == {"checkpoints/state": "newer"}


def test_the_machine_of_another_rank_gets_what_rank_0_has_written_elsewhere(
    location: str, tmp_path: Path
) -> None:
    written, other = tmp_path / "of rank 0", tmp_path / "of rank 1"
    first = begin(location, written)
    ArtifactMirror(location, Folder(other), 1, resume=False).restore()
    write(written, {"checkpoints/state": "1"})
    end(first)
    # The first machine is lost: rank 0 of the second attempt runs where rank 1 has run.
    second = begin(location, other, attempt=2)
    assert content(other) == {"checkpoints/state": "1"}
    write(other, {"checkpoints/state": "2"})
    end(second, remove=False)
    write(other, {"checkpoints/state": "newer"})
    ArtifactMirror(location, Folder(other), 3, resume=True).restore()  # rank 1 again
    begin(location, other, attempt=4)
    assert content(other) == {"checkpoints/state": "newer"}


def test_an_attempt_that_was_given_up_does_not_harm_the_one_after(
    location: str, tmp_path: Path
) -> None:
    cut_off = begin(location, tmp_path / "first")
    write(tmp_path / "first", {"checkpoints/state": "1"})
    cut_off.checkpointed()
    wait_until(lambda: bool(Snapshots(ArtifactStorage(location)).found()))
    second = begin(location, tmp_path / "second", attempt=2)
    write(tmp_path / "second", {"checkpoints/state": "2"})
    end(second)
    write(tmp_path / "first", {"checkpoints/state": "late"})
    end(cut_off)
    third = begin(location, tmp_path / "third", attempt=3)
    assert content(tmp_path / "third") == {"checkpoints/state": "2"}
    assert third.message == ""


def objects_of(location: str) -> dict[str, str]:
    """The object of each file of the newest snapshot, as a name below the location."""
    snapshots = Snapshots(ArtifactStorage(location))
    manifest = snapshots.read(*snapshots.found()[0])
    return {path: f"{manifest.attempt:06d}/{f.object}" for path, f in manifest.files.items()}


@pytest.mark.parametrize("harm", ["missing", "damaged"])
def test_a_damaged_checkpoint_is_named_and_left_out(
    location: str, tmp_path: Path, harm: str, capfd: pytest.CaptureFixture[str]
) -> None:
    mirror = begin(location, tmp_path / "first")
    write(tmp_path / "first", FILES)
    end(mirror)
    name = objects_of(location)["checkpoints/00000010/model.safetensors"]
    storage = ArtifactStorage(location)
    storage.remove(name) if harm == "missing" else storage.write_bytes(name, b"TEN")
    again = begin(location, tmp_path / "second", attempt=2)
    expected = {path: text for path, text in FILES.items() if "00000010" not in path}
    assert content(tmp_path / "second") == expected
    said = f"{location}/{name} (checkpoints/00000010/model.safetensors) is {harm}"
    assert said in again.message
    assert "went on from an older snapshot" in again.message
    assert said in again.details["damaged_artifacts"][0]
    assert said in capfd.readouterr().err


def test_a_damaged_file_of_a_program_leads_to_the_snapshot_before(
    location: str, tmp_path: Path
) -> None:
    folder = tmp_path / "first"
    mirror = begin(location, folder)
    for number in range(2):
        write(folder, {"checkpoints/a": f"a{number}", "checkpoints/b": f"b{number}"})
        mirror.checkpointed()
        found = Snapshots(ArtifactStorage(location))
        wait_until(lambda: found.found()[:1] == [(1, number)])  # noqa: B023
    end(mirror)
    name = objects_of(location)["checkpoints/b"]
    ArtifactStorage(location).write_bytes(name, b"other")
    again = begin(location, tmp_path / "second", attempt=2)
    assert content(tmp_path / "second") == {"checkpoints/a": "a0", "checkpoints/b": "b0"}
    assert f"{name} (checkpoints/b) is damaged" in again.message


def test_without_a_whole_snapshot_it_begins_anew_and_says_so(location: str, tmp_path: Path) -> None:
    mirror = begin(location, tmp_path / "first")
    write(tmp_path / "first", {"checkpoints/a": "a", "checkpoints/b": "b"})
    end(mirror)
    ArtifactStorage(location).remove(objects_of(location)["checkpoints/b"])
    again = begin(location, tmp_path / "second", attempt=2)
    assert content(tmp_path / "second") == {}
    assert "(checkpoints/b) is missing; the attempt went on from nothing" in again.message


def test_a_manifest_with_a_flipped_bit_is_damaged(tmp_path: Path) -> None:
    file = StoredFile("object-00000001", "0" * 64, 3)
    text = Manifest(1, 0, "host", {"checkpoints/a": file}).to_json()
    assert Manifest.from_json(text).files == {"checkpoints/a": file}
    with pytest.raises(ValueError, match="checksum"):
        Manifest.from_json(text.replace(b"checkpoints/a", b"checkpoints/c"))


@pytest.mark.parametrize(
    ("path", "file"),
    [
        ("../outside", StoredFile("object-00000001", "0" * 64, 3)),
        ("/etc/passwd", StoredFile("object-00000001", "0" * 64, 3)),
        ("logs/a", StoredFile("object-00000001", "0" * 64, 3)),
        (MARK, StoredFile("object-00000001", "0" * 64, 3)),
        ("a", StoredFile("../../../other/object-00000001", "0" * 64, 3)),
        ("a", StoredFile("object-00000001", "short", 3)),
        ("a", StoredFile(link="/etc/passwd")),
    ],
)
def test_a_manifest_of_a_stranger_leads_nowhere_else(
    path: str, file: StoredFile, tmp_path: Path
) -> None:
    snapshots = Snapshots(ArtifactStorage(str(tmp_path)))
    snapshots.write_manifest(Manifest(1, 0, "", {path: file}))
    with pytest.raises(DamagedArtifact, match=r"manifest-00000000\.json is damaged"):
        snapshots.read(1, 0)


def test_the_training_goes_on_while_the_server_is_away_and_uploads_when_it_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The location is a folder in which nothing can be made for a while."""
    monkeypatch.setattr(mirror_module, "LOOK_SECONDS", 0.05)
    place = tmp_path / "kept"
    mirror = begin(str(place / "0"), tmp_path / "first")
    place.write_text("in the way")
    write(tmp_path / "first", {"checkpoints/state": "1"})
    mirror.checkpointed()
    wait_until(lambda: "cannot be written now" in capfd.readouterr().err)
    place.unlink()
    wait_until(lambda: bool(Snapshots(ArtifactStorage(str(place / "0"))).found()))
    end(mirror)
    assert mirror.message == ""


def test_what_could_not_be_uploaded_stays_here_and_the_outcome_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror_module, "FINISH_SECONDS", 0.5)
    place = tmp_path / "kept"
    mirror = begin(str(place / "0"), tmp_path / "first")
    place.write_text("in the way")
    write(tmp_path / "first", {"checkpoints/state": "1"})
    end(mirror)
    assert "its newest files are on" in mirror.message
    assert str(tmp_path / "first") in mirror.message
    assert content(tmp_path / "first") == {"checkpoints/state": "1"}


def held_back(mirror: ArtifactMirror, monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Let an upload begin, which goes on once the event is set."""
    held, go_on = threading.Event(), threading.Event()
    write_object = ArtifactStorage.write

    def slowly(self: ArtifactStorage, name: str, source: object, size: int) -> str:
        held.set()
        go_on.wait(60)
        return write_object(self, name, source, size)  # type: ignore[arg-type]

    monkeypatch.setattr(ArtifactStorage, "write", slowly)
    mirror.checkpointed()
    assert held.wait(60)
    return go_on


def test_a_file_that_is_written_during_the_upload_makes_no_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "first"
    mirror = begin(str(tmp_path / "kept"), folder)
    write(folder, {"checkpoints/state": "1"})
    go_on = held_back(mirror, monkeypatch)
    write(folder, {"checkpoints/state": "2"})
    go_on.set()
    end(mirror, remove=False)
    snapshots = Snapshots(ArtifactStorage(str(tmp_path / "kept")))
    assert snapshots.found() == [(1, 0)]
    target = tmp_path / "target"
    assert snapshots.restore(snapshots.read(1, 0), Folder(target)) == []
    assert content(target) == {"checkpoints/state": "2"}


def test_a_replaced_checkpoint_is_still_uploaded_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "first"
    mirror = begin(str(tmp_path / "kept"), folder)
    write(folder, {"checkpoints/00000001/a": "a", "checkpoints/00000001/b": "b"})
    go_on = held_back(mirror, monkeypatch)
    for name in ("a", "b"):
        (folder / "checkpoints" / "00000001" / name).unlink()
    go_on.set()
    snapshots = Snapshots(ArtifactStorage(str(tmp_path / "kept")))
    wait_until(lambda: snapshots.found() == [(1, 0)])
    files = snapshots.read(1, 0).files
    assert set(files) == {"checkpoints/00000001/a", "checkpoints/00000001/b"}
    end(mirror)
    assert snapshots.read(*snapshots.found()[0]).files == {}


def open_files(folder: Path) -> int:
    """Number of files of a folder that this process has open."""
    count = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # another thread may have closed it since
            count += descriptor.readlink().is_relative_to(folder)
    return count


def test_many_files_are_not_all_open_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.artifacts.listing.MAX_OPEN", 3)
    folder = tmp_path / "first"
    mirror = begin(str(tmp_path / "kept"), folder)
    most = []
    write_object = ArtifactStorage.write

    def counted(self: ArtifactStorage, name: str, source: object, size: int) -> str:
        most.append(open_files(folder))
        return write_object(self, name, source, size)  # type: ignore[arg-type]

    monkeypatch.setattr(ArtifactStorage, "write", counted)
    files = {f"checkpoints/{number}": str(number) for number in range(30)}
    write(folder, files)
    end(mirror)
    assert max(most) <= 3
    assert len(most) >= 30  # a file that is read while it is written is copied again
    begin(str(tmp_path / "kept"), tmp_path / "second", attempt=2)
    assert content(tmp_path / "second") == files
