"""The mirror of a trial's folder, on a folder and on a real S3 server."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from search_spaces.errors import StoreError, UsageError
from workers import artifacts
from workers.artifacts import (
    MARK,
    Copies,
    DamagedCopy,
    Manifest,
    Mirror,
    object_name,
    read_location,
)
from workers.context import Context
from workers.files import Folder
from workers.protocol import Assignment
from workers.run import run


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60.0
    while not condition():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.02)


class Machines:
    """The attempts of one trial on several machines, each a folder, and the location of its copies.

    The state is the content of the file `checkpoints/state`.
    """

    def __init__(self, folder: Path, location: str) -> None:
        self.folder, self.location, self.copies = folder, location, Copies(location)
        self.begun: list[Mirror] = []

    def begin(self, machine: str, attempt: int = 1, rank: int = 0, ranks: int = 1) -> Mirror:
        folder, resume = str(self.folder / machine), attempt > 1
        one = Assignment("s", 0, attempt, {}, None, folder, resume=resume, artifacts=self.location)
        self.begun.append(Mirror(Context(one, rank=rank, world_size=ranks)))
        self.begun[-1].__enter__()
        return self.begun[-1]

    def end(self, mirror: Mirror) -> None:
        mirror.__exit__(None)

    def write(self, machine: str, state: str = "", **files: str) -> None:
        for name, text in {"state": state, **files}.items():
            path = self.folder / machine / "checkpoints" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def upload(self, mirror: Mirror, number: int = 0) -> None:
        """Announce a checkpoint, and wait for its copy."""
        mirror._wake.set()
        wait_until(lambda: self.numbers()[:1] == [(mirror._assignment.attempt, number)])

    def numbers(self) -> list[tuple[int, int]]:
        """Attempt and number of each copy, the newest first."""
        return [(manifest.attempt, manifest.number) for manifest in self.copies.found()]

    def object_of(self, copy: int, path: str) -> str:
        manifest = self.copies.read(self.copies.found()[copy])
        return object_name(manifest.attempt, manifest.files[path])

    def content(self, machine: str) -> dict[str, str]:
        top = self.folder / machine
        kept = [p for p in top.rglob("*") if p.is_file() and ".artifacts" not in p.name]
        return {str(p.relative_to(top)): p.read_text() for p in kept}

    def state(self, machine: str) -> str:
        return self.content(machine)["checkpoints/state"]


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    """Every mirror ends while its server still answers; it would speak into a later test."""
    made = Machines(tmp_path, str(tmp_path / "kept" / "trials" / "0"))
    yield made
    for mirror in reversed(made.begun):
        made.end(mirror)


def test_an_attempt_on_another_machine_gets_the_files_of_the_one_before(machines: Machines) -> None:
    first = machines.begin("first")
    machines.write("first", "ten", **{"a name with *signs?": "x", "empty": ""})
    top = machines.folder / "first"
    for folder in ("logs", "command"):
        (top / folder).mkdir()
        (top / folder / "file").write_text("not kept")
    (top / "link").symlink_to("checkpoints/empty")
    machines.end(first)
    assert first.message == ""
    assert set(machines.content("first")) == {"logs/file", "command/file"}
    again = machines.begin("second", attempt=2)
    files = {"state": "ten", "a name with *signs?": "x", "empty": ""}
    expected = {f"checkpoints/{name}": text for name, text in files.items()}
    assert machines.content("second") == expected | {"link": ""}
    assert (machines.folder / "second" / "link").readlink() == Path("checkpoints/empty")
    machines.end(again)
    assert machines.numbers() == [(1, 0)], "nothing was new"


@pytest.mark.parametrize("where", ["folder", "s3"])
def test_a_checkpoint_is_uploaded_while_the_attempt_goes_on(
    machines: Machines, where: str, request: pytest.FixtureRequest
) -> None:
    if where == "s3":
        place = f"{request.getfixturevalue('s3')}/{machines.folder.name}/trials/0"
        machines.location, machines.copies = place, Copies(place)
    mirror = machines.begin("first")
    for number in range(3):
        machines.write("first", f"state {number}")
        machines.upload(mirror, number)
    # The last two copies are kept, of one object each.
    wait_until(lambda: len(machines.copies.sizes()) == 4)
    # The process is killed here: nothing is finished. The next attempt has what was uploaded.
    machines.begin("second", attempt=2)
    assert machines.state("second") == "state 2"
    for begun in machines.begun:
        machines.end(begun)


def test_files_that_nobody_announces_are_found_once_they_rest(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifacts, "LOOK_SECONDS", 0.05)
    machines.begin("first")
    machines.write("first", "of a program")
    wait_until(lambda: bool(machines.copies.found()))


def test_newer_files_of_a_killed_attempt_on_this_machine_are_not_replaced(
    machines: Machines,
) -> None:
    mirror = machines.begin("first")
    machines.write("first", "uploaded")
    machines.upload(mirror)
    mirror._over.set()  # as if it were killed: what follows is never uploaded
    mirror._wake.set()
    wait_until(lambda: not mirror._thread or not mirror._thread.is_alive())
    machines.write("first", "newer")
    again = machines.begin("first", attempt=2)
    assert machines.state("first") == "newer"
    machines.end(again)
    machines.begin("other", attempt=3)
    assert machines.state("other") == "newer"


def test_the_machine_of_another_rank_gets_what_rank_0_has_written_elsewhere(
    machines: Machines,
) -> None:
    first = machines.begin("of rank 0", ranks=2)
    machines.begin("of rank 1", rank=1, ranks=2)
    machines.write("of rank 0", "1")
    machines.end(first)
    # The first machine is lost: rank 0 of the second attempt runs where rank 1 has run.
    second = machines.begin("of rank 1", attempt=2, ranks=2)
    assert machines.state("of rank 1") == "1"
    machines.write("of rank 1", "2")
    machines.end(second)
    machines.write("of rank 1", "newer")
    machines.begin("of rank 1", attempt=3, rank=1, ranks=2)
    machines.begin("of rank 1", attempt=4)
    assert machines.state("of rank 1") == "newer"


def test_an_attempt_that_was_given_up_does_not_harm_the_one_after(machines: Machines) -> None:
    cut_off = machines.begin("first")
    machines.write("first", "1")
    machines.upload(cut_off)
    second = machines.begin("second", attempt=2)
    machines.write("second", "2")
    machines.end(second)
    machines.write("first", "late")
    machines.end(cut_off)
    third = machines.begin("third", attempt=3)
    assert (machines.state("third"), third.message) == ("2", "")


def test_a_damaged_file_of_a_program_leads_to_the_copy_before_or_to_a_new_begin(
    machines: Machines,
) -> None:
    mirror = machines.begin("first")
    for number in range(2):
        machines.write("first", f"a{number}", b=f"b{number}")
        machines.upload(mirror, number)
    machines.end(mirror)
    names = [machines.object_of(copy, "checkpoints/b") for copy in range(2)]
    machines.copies.write(names[0], b"other")
    again = machines.begin("second", attempt=2)
    assert machines.content("second") == {"checkpoints/state": "a0", "checkpoints/b": "b0"}
    assert f"{names[0]} (checkpoints/b) is damaged" in again.message
    for name in names:
        machines.copies.remove(name)
    again = machines.begin("third", attempt=3)
    assert machines.content("third") == {}
    assert "(checkpoints/b) is missing; the attempt went on from nothing" in again.message


FILE = {"sha256": "0" * 64, "size": 3, "link": ""}
SOUND = Manifest(1, 0, {"checkpoints/a": FILE}).to_json()


@pytest.mark.parametrize(
    ("path", "file"),
    [
        ("../outside", FILE),
        ("/etc/passwd", FILE),
        ("logs/a", FILE),
        (MARK, FILE),
        ("a", {**FILE, "sha256": "/../../../other/object"}),
        ("a", {**FILE, "sha256": "short"}),
        ("a flipped bit", None),
    ],
)
def test_a_manifest_that_is_damaged_or_a_strangers_leads_nowhere_else(
    machines: Machines, path: str, file: dict[str, Any] | None
) -> None:
    machines.copies.write(Manifest(1, 0).name, SOUND)
    assert machines.copies.read(Manifest(1, 0)).files == {"checkpoints/a": FILE}
    strange = Manifest(1, 0, {path: file}).to_json() if file else SOUND.replace(b"s/a", b"s/c")
    machines.copies.write(Manifest(1, 0).name, strange)
    with pytest.raises(DamagedCopy, match=r"manifest-00000000\.json is damaged"):
        machines.copies.read(Manifest(1, 0))


def test_an_object_of_another_size_is_not_read(machines: Machines) -> None:
    manifest = Manifest(1, 0, {"folder/a": FILE})
    machines.copies.write(manifest.name, manifest.to_json())
    machines.copies.write(object_name(1, FILE), b"long")
    with pytest.raises(DamagedCopy, match="as is its size"):
        machines.copies.restore(manifest, Folder(machines.folder / "trial"))
    assert machines.content("trial") == {}


@pytest.mark.parametrize("link", ["/etc/passwd", "../../outside"])
def test_a_link_that_leads_out_of_the_folder_is_refused(machines: Machines, link: str) -> None:
    manifest = Manifest(1, 0, {"folder/a": {**FILE, "link": link}})
    machines.copies.write(manifest.name, manifest.to_json())
    with pytest.raises(StoreError, match="a symbolic link"):
        machines.begin("trial", attempt=2)


def test_the_training_goes_on_while_the_server_is_away_and_uploads_when_it_is_back(
    machines: Machines, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The location is a folder in which nothing can be made for a while."""
    monkeypatch.setattr(artifacts, "LOOK_SECONDS", 0.05)
    mirror, place = machines.begin("first"), machines.folder / "kept"
    place.write_text("in the way")
    machines.write("first", "1")
    mirror._wake.set()
    wait_until(lambda: "cannot be written now" in capfd.readouterr().err)
    place.unlink()
    wait_until(lambda: bool(machines.copies.found()))
    machines.end(mirror)
    assert mirror.message == ""


def test_what_could_not_be_uploaded_stays_here_and_the_outcome_says_so(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifacts, "FINISH_SECONDS", 0.5)
    (machines.folder / "kept").write_text("in the way")
    one = Assignment(
        "s", 0, 1, {}, None, str(machines.folder / "first"), artifacts=machines.location
    )
    begun = time.monotonic()
    outcome = run(Context(one), lambda trial: machines.write("first", "1"))
    assert outcome.seconds <= time.monotonic() - begun - 0.5, "the wait is no part of the attempt"
    assert "its newest files are on" in outcome.message
    assert str(machines.folder / "first") in outcome.message
    assert machines.state("first") == "1"


def test_a_file_that_is_written_during_the_upload_makes_no_copy(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, go_on, put = threading.Event(), threading.Event(), Copies.put

    def slowly(self: Copies, name: str, path: Path) -> None:
        held.set()
        go_on.wait(60)
        put(self, name, path)

    monkeypatch.setattr(Copies, "put", slowly)
    mirror = machines.begin("first", ranks=2)
    machines.write("first", "1")
    mirror._wake.set()
    assert held.wait(60)
    machines.write("first", "2")
    go_on.set()
    machines.end(mirror)
    assert machines.numbers() == [(1, 0)]
    machines.begin("target", attempt=2)
    assert machines.state("target") == "2"


KILLED = """
import os, signal, sys
from pathlib import Path
from workers import artifacts
from workers.context import Context
from workers.protocol import Assignment
from workers.run import run

put, artifacts.LOOK_SECONDS = artifacts.Copies.put, 60.0

def killed(self, name, path):
    if path.name == "state":
        os.kill(os.getpid(), signal.SIGKILL)
    put(self, name, path)

artifacts.Copies.put = killed
location, folder = sys.argv[1:]
one = Assignment("s", 0, 2, {}, None, folder, resume=True, artifacts=location)
with artifacts.Mirror(Context(one)):
    for name in ("b", "state"):
        Path(folder, "checkpoints", name).write_text("new")
"""


def test_a_process_that_is_killed_in_the_middle_of_an_upload_leaves_the_copy_before(
    machines: Machines,
) -> None:
    mirror = machines.begin("first", ranks=2)
    machines.write("first", "old", b="old b")
    machines.end(mirror)
    command = [sys.executable, "-c", KILLED, machines.location, str(machines.folder / "second")]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    machines.begin("third", attempt=3)
    assert machines.content("third") == {"checkpoints/state": "old", "checkpoints/b": "old b"}


@pytest.mark.parametrize(
    ("text", "location"),
    [
        ("", ""),
        ("none", "none"),
        ("/shared/sweeps/", "/shared/sweeps"),
        ("file:///shared/sweeps", "/shared/sweeps"),
        ("memory://bucket/a/", "memory://bucket/a"),
        ("S3://Bucket/prefix//", "s3://Bucket/prefix"),
        ("kept", f"{Path.cwd()}/kept"),
    ],
)
def test_a_location_has_one_form(text: str, location: str) -> None:
    assert read_location(text) == location


@pytest.mark.parametrize(
    "text",
    [
        "s3://key:hidden@bucket/a",
        "sftp://me:hidden@host/a",
        "s3://bucket/a?secret=hidden",
        "simplecache::s3://bucket/a?hidden",
        "memory://bucket/a::zip://hidden",
    ],
)
def test_a_url_that_shows_a_password_or_holds_another_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="credentials in the environment") as error:
        read_location(text)
    assert "hidden" not in str(error.value)
