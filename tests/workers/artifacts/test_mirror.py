"""The mirror of a trial's folder, on a folder and on a real S3 server."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from search_spaces.errors import StoreError
from workers.artifacts import mirror as mirror_module
from workers.artifacts.copies import CopiedFile, Copies, DamagedCopy, Manifest, object_name
from workers.artifacts.mirror import MARK, ArtifactNotes, Mirror
from workers.files.folder import Folder


@pytest.fixture(params=["folder", "s3"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "folder":
        return str(tmp_path / "kept" / "trials" / "0")
    url = request.getfixturevalue("s3")
    return f"{url}/{tmp_path.name}/trials/0"


BEGUN: list[Mirror] = []  # of the test that runs


@pytest.fixture(autouse=True)
def no_thread_is_left(location: str) -> Iterator[None]:
    """Ends every mirror while its server still answers; it would speak into a later test."""
    yield
    while BEGUN:
        end(BEGUN.pop())


def mirror_of(location: str, folder: Path, attempt: int) -> Mirror:
    notes = ArtifactNotes()
    return Mirror(location, Folder(folder), attempt, resume=attempt > 1, notes=notes)


def begin(location: str, folder: Path, attempt: int = 1) -> Mirror:
    mirror = mirror_of(location, folder, attempt)
    BEGUN.append(mirror)
    mirror.restore()
    mirror.start()
    return mirror


def end(mirror: Mirror, *, remove: bool = True) -> None:
    mirror.finish(lambda: None, remove=remove)


def write(folder: Path, files: dict[str, str]) -> None:
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)


def numbers(copies: Copies) -> list[tuple[int, int]]:
    """Attempt and number of each copy, the newest first."""
    return [(manifest.attempt, manifest.number) for manifest in copies.found()]


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
    "checkpoints/00000010/manifest.json": "{ }",
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
    assert mirror.notes.message == ""
    assert mirror.notes.artifact_bytes == sum(map(len, FILES.values()))
    assert set(content(first)) == {"logs/attempt-1-rank-0.log", "command/params.json"}

    again = begin(location, second, attempt=2)
    assert content(second) == FILES | {"link": ""}
    assert (second / "link").readlink() == Path("empty/file")
    end(again)
    assert numbers(Copies(location)) == [(1, 0)], "nothing was new"


def test_a_checkpoint_is_uploaded_while_the_attempt_goes_on(location: str, tmp_path: Path) -> None:
    mirror = begin(location, tmp_path / "first")
    copies = Copies(location)
    for number in range(3):
        write(tmp_path / "first", {"checkpoints/state": f"state {number}"})
        mirror.checkpointed()
        wait_until(lambda: numbers(copies)[:1] == [(1, number)])  # noqa: B023
    # The last two copies are kept, of one object each.
    wait_until(lambda: len(copies.sizes()) == 4)
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
    wait_until(lambda: bool(Copies(location).found()))
    end(mirror)


def test_newer_files_of_a_killed_attempt_on_this_machine_are_not_replaced(
    location: str, tmp_path: Path
) -> None:
    folder = tmp_path / "first"
    mirror = begin(location, folder)
    write(folder, {"checkpoints/state": "uploaded"})
    mirror.checkpointed()
    wait_until(lambda: bool(Copies(location).found()))
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
    mirror_of(location, other, 1).restore()
    write(written, {"checkpoints/state": "1"})
    end(first)
    # The first machine is lost: rank 0 of the second attempt runs where rank 1 has run.
    second = begin(location, other, attempt=2)
    assert content(other) == {"checkpoints/state": "1"}
    write(other, {"checkpoints/state": "2"})
    end(second, remove=False)
    write(other, {"checkpoints/state": "newer"})
    mirror_of(location, other, 3).restore()  # rank 1 again
    begin(location, other, attempt=4)
    assert content(other) == {"checkpoints/state": "newer"}


def test_an_attempt_that_was_given_up_does_not_harm_the_one_after(
    location: str, tmp_path: Path
) -> None:
    cut_off = begin(location, tmp_path / "first")
    write(tmp_path / "first", {"checkpoints/state": "1"})
    cut_off.checkpointed()
    wait_until(lambda: bool(Copies(location).found()))
    second = begin(location, tmp_path / "second", attempt=2)
    write(tmp_path / "second", {"checkpoints/state": "2"})
    end(second)
    write(tmp_path / "first", {"checkpoints/state": "late"})
    end(cut_off)
    third = begin(location, tmp_path / "third", attempt=3)
    assert content(tmp_path / "third") == {"checkpoints/state": "2"}
    assert third.notes.message == ""


def objects_of(location: str) -> dict[str, str]:
    """The object of each file of the newest copy, as a name below the location."""
    copies = Copies(location)
    manifest = copies.read(copies.found()[0])
    return {path: object_name(manifest.attempt, f) for path, f in manifest.files.items()}


def test_a_damaged_file_of_a_program_leads_to_the_copy_before(
    location: str, tmp_path: Path
) -> None:
    folder = tmp_path / "first"
    mirror = begin(location, folder)
    for number in range(2):
        write(folder, {"checkpoints/a": f"a{number}", "checkpoints/b": f"b{number}"})
        mirror.checkpointed()
        copies = Copies(location)
        wait_until(lambda: numbers(copies)[:1] == [(1, number)])  # noqa: B023
    end(mirror)
    name = objects_of(location)["checkpoints/b"]
    Copies(location).write(name, b"other")
    again = begin(location, tmp_path / "second", attempt=2)
    assert content(tmp_path / "second") == {"checkpoints/a": "a0", "checkpoints/b": "b0"}
    assert f"{name} (checkpoints/b) is damaged" in again.notes.message


def test_without_a_whole_copy_it_begins_anew_and_says_so(location: str, tmp_path: Path) -> None:
    mirror = begin(location, tmp_path / "first")
    write(tmp_path / "first", {"checkpoints/a": "a", "checkpoints/b": "b"})
    end(mirror)
    Copies(location).remove(objects_of(location)["checkpoints/b"])
    again = begin(location, tmp_path / "second", attempt=2)
    assert content(tmp_path / "second") == {}
    assert "(checkpoints/b) is missing; the attempt went on from nothing" in again.notes.message


FILE = CopiedFile("0" * 64, 3)


def test_a_manifest_with_a_flipped_bit_is_damaged(tmp_path: Path) -> None:
    text = Manifest(1, 0, {"checkpoints/a": FILE}).to_json()
    assert Manifest.from_json(text).files == {"checkpoints/a": FILE}
    with pytest.raises(ValueError, match="checksum"):
        Manifest.from_json(text.replace(b"checkpoints/a", b"checkpoints/c"))


@pytest.mark.parametrize(
    ("path", "file"),
    [
        ("../outside", FILE),
        ("/etc/passwd", FILE),
        ("logs/a", FILE),
        (MARK, FILE),
        ("a", CopiedFile("/../../../other/object", 3)),
        ("a", CopiedFile("short", 3)),
    ],
)
def test_a_manifest_of_a_stranger_leads_nowhere_else(
    path: str, file: CopiedFile, tmp_path: Path
) -> None:
    copies, manifest = Copies(str(tmp_path)), Manifest(1, 0, {path: file})
    copies.write(manifest.name, manifest.to_json())
    with pytest.raises(DamagedCopy, match=r"manifest-00000000\.json is damaged"):
        copies.read(manifest)


def test_an_object_of_another_size_is_not_read(tmp_path: Path) -> None:
    copies, manifest = Copies(str(tmp_path / "kept")), Manifest(1, 0, {"folder/a": FILE})
    copies.write(manifest.name, manifest.to_json())
    copies.write(object_name(1, FILE), b"long")
    with pytest.raises(DamagedCopy, match="as is its size"):
        copies.restore(manifest, Folder(tmp_path / "trial"))
    assert not (tmp_path / "trial" / "folder" / "a").exists()


@pytest.mark.parametrize("link", ["/etc/passwd", "../../outside"])
def test_a_link_that_leads_out_of_the_folder_is_refused(link: str, tmp_path: Path) -> None:
    copies = Copies(str(tmp_path / "kept"))
    manifest = Manifest(1, 0, {"folder/a": CopiedFile(link=link)})
    copies.write(manifest.name, manifest.to_json())
    with pytest.raises(StoreError, match="a symbolic link"):
        mirror_of(copies.location, tmp_path / "trial", 2).restore()


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
    wait_until(lambda: bool(Copies(str(place / "0")).found()))
    end(mirror)
    assert mirror.notes.message == ""


def test_what_could_not_be_uploaded_stays_here_and_the_outcome_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror_module, "FINISH_SECONDS", 0.5)
    place = tmp_path / "kept"
    mirror = begin(str(place / "0"), tmp_path / "first")
    place.write_text("in the way")
    write(tmp_path / "first", {"checkpoints/state": "1"})
    end(mirror)
    assert "its newest files are on" in mirror.notes.message
    assert str(tmp_path / "first") in mirror.notes.message
    assert content(tmp_path / "first") == {"checkpoints/state": "1"}


def held_back(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Let an upload begin, which goes on once the event is set."""
    held, go_on = threading.Event(), threading.Event()
    put = Copies.put

    def slowly(self: Copies, name: str, path: Path) -> None:
        held.set()
        go_on.wait(60)
        put(self, name, path)

    monkeypatch.setattr(Copies, "put", slowly)
    mirror.checkpointed()
    assert held.wait(60)
    return go_on


def test_a_file_that_is_written_during_the_upload_makes_no_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "first"
    mirror = begin(str(tmp_path / "kept"), folder)
    write(folder, {"checkpoints/state": "1"})
    go_on = held_back(mirror, monkeypatch)
    write(folder, {"checkpoints/state": "2"})
    go_on.set()
    end(mirror, remove=False)
    copies = Copies(str(tmp_path / "kept"))
    assert numbers(copies) == [(1, 0)]
    target = tmp_path / "target"
    copies.restore(copies.found()[0], Folder(target))
    assert content(target) == {"checkpoints/state": "2"}


def test_a_process_that_is_killed_in_the_middle_of_an_upload_leaves_the_copy_before(
    location: str, tmp_path: Path
) -> None:
    mirror = begin(location, tmp_path / "first")
    write(tmp_path / "first", {"checkpoints/a": "old a", "checkpoints/b": "old b"})
    end(mirror, remove=False)
    script = """
import os, signal, sys
from pathlib import Path
from workers.artifacts import copies, mirror
from workers.files.folder import Folder

put, mirror.LOOK_SECONDS = copies.Copies.put, 60.0

def killed(self, name, path):
    if path.name == "b":
        os.kill(os.getpid(), signal.SIGKILL)
    put(self, name, path)

copies.Copies.put = killed
notes, folder = mirror.ArtifactNotes(), Path(sys.argv[2])
second = mirror.Mirror(sys.argv[1], Folder(folder), 2, resume=True, notes=notes)
second.restore()
second.start()
for name in ("a", "b"):
    (folder / "checkpoints" / name).write_text("new " + name)
second.finish(lambda: None, remove=False)
"""
    command = [sys.executable, "-c", script, location, str(tmp_path / "second")]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    begin(location, tmp_path / "third", attempt=3)
    expected = {"checkpoints/a": "old a", "checkpoints/b": "old b"}
    assert content(tmp_path / "third") == expected
