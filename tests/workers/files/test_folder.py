"""Nothing in a folder of a store leads out of it, blocks, or is anything but a file or a folder."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from automl.errors import StoreError
from workers.files import Folder
from workers.protocol import Assignment, open_log


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder with a file that nothing may touch."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "precious").write_text("mine")
    yield tmp_path / "outside"
    assert os.listdir(tmp_path / "outside") == ["precious"]  # noqa: PTH208
    assert (tmp_path / "outside" / "precious").read_text() == "mine"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A folder `a/b` in a store."""
    (tmp_path / "store" / "a" / "b").mkdir(parents=True)
    return tmp_path / "store"


def test_a_folder_and_its_files_are_made_read_and_removed(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "new", "a", "b")
    assert folder.names() == []
    folder.make()
    for mode, text in (("w", "four"), ("a", "more")):
        with folder.open("file", mode) as file:
            file.write(text)
    assert folder.file("file").read_bytes() == b"fourmore"
    assert folder.names() == ["file"]
    (folder / "c").make()
    for _ in range(2):
        folder.remove()
    assert Folder(tmp_path, "new", "a").names() == []


@pytest.mark.parametrize("place", ["a", "a/b"])
def test_a_link_in_place_of_a_folder_is_refused_at_any_depth(
    store: Path, outside: Path, place: str
) -> None:
    (store / "a" / "b").rmdir()
    (store / "a").rmdir()
    (store / place).parent.mkdir(exist_ok=True)
    (store / place).symlink_to(outside)
    folder = Folder(store, "a", "b")
    actions = (
        folder.make,
        folder.names,
        folder.remove,
        folder.check,
        lambda: folder.open("precious"),
        lambda: folder.open("precious", "w"),
        lambda: folder.copy("precious", store),
    )
    for action in actions:
        with pytest.raises(StoreError, match=f"{place} is a symbolic link.*Remove it"):
            action()


@pytest.mark.parametrize("mode", ["r", "w", "a", "x"])
def test_a_link_in_place_of_a_file_is_refused(store: Path, outside: Path, mode: str) -> None:
    folder = Folder(store, "a", "b")
    for name, target in {"there": "precious", "dangling": "new"}.items():
        (folder.path / name).symlink_to(outside / target)
        with pytest.raises(StoreError, match=f"{name} is a symbolic link"):
            folder.open(name, mode)


@pytest.mark.parametrize("mode", ["r", "w", "a"])
def test_pipes_sockets_and_devices_are_refused_at_once(store: Path, mode: str) -> None:
    place = store / "a" / "b"
    os.mkfifo(place / "pipe")
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(place / "socket"))
    names = {"pipe": "a pipe", "socket": "a socket or a device"}
    if os.geteuid() == 0:
        os.mknod(place / "device", 0o666 | stat.S_IFCHR, os.makedev(1, 5))
        names["device"] = "a socket or a device"
    for name, kind in names.items():
        with pytest.raises(StoreError, match=f"{name} is {kind}"):
            Folder(store, "a", "b").open(name, mode)
    server.close()


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "/etc", "a\0"])
def test_a_name_that_leads_elsewhere_is_refused(store: Path, name: str) -> None:
    folder = Folder(store, "a")
    for action in (
        lambda: folder / name,
        lambda: folder.open(name),
    ):
        with pytest.raises(StoreError, match="is not a name"):
            action()


def test_links_within_a_folder_are_its_own(store: Path, outside: Path) -> None:
    place, folder = store / "a" / "b", Folder(store, "a", "b")
    (place / "file").write_text("1")
    (place / "inner").mkdir()
    for link, target in {
        "inner/last": "../file",
        "absolute": f"{place}/file",
        "itself": "itself",
    }.items():
        (place / link).symlink_to(target)
    folder.check()
    for name in folder.names():
        folder.copy(name, store)
    assert (store / "inner" / "last").read_text() == "1"
    os.mkfifo(place / "pipe")
    with pytest.raises(StoreError, match="is a pipe"):
        folder.check()
    (place / "pipe").unlink()
    (place / "inner" / "out").symlink_to(outside / "precious")
    with pytest.raises(StoreError, match="inner/out is a symbolic link"):
        folder.check()
    (place / "elsewhere").symlink_to(outside)
    folder.remove()  # not what the links lead to
    assert not place.exists()


def test_a_label_is_one_line_and_the_log_begins_with_it(tmp_path: Path) -> None:
    hostile = {"x": "a\ntouch hit; echo", "y\x1b[2J": 0.123456, "z": "\x9b\u2028é"}
    given = Assignment("s", 0, 1, hostile, None, str(tmp_path / "s" / "0"), str(tmp_path))
    label = given.label
    assert label == "s/0.1 x=a\\ntouch hit; echo y\\x1b[2J=0.1235 z=\\x9b\\u2028é"
    (tmp_path / "s" / "0" / "logs").mkdir(parents=True)
    (tmp_path / "s" / "0" / "logs" / "attempt-1-rank-0.log").symlink_to(tmp_path / "profile")
    with pytest.raises(StoreError, match="is a symbolic link"):
        open_log(given, 0)
    assert not (tmp_path / "profile").exists()
