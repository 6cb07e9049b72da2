from __future__ import annotations

import hashlib
import io
import json
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner

from automl.cli import cli
from search_spaces.errors import AutomlError, DataError
from workers.data.fetch import DATASETS, PublicDataset, fetch

CONTENT = bytes(range(256)) * 4000


def tar(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


class Server(ThreadingHTTPServer):
    """Serves `files`; the first `broken` answers end in the middle."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.asked = self.broken = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.asked += 1
        content = self.server.files.get(self.path.lstrip("/"))
        if content is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        end = len(content) // 2 if self.server.asked <= self.server.broken else len(content)
        self.wfile.write(content[:end])
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    one = Server()
    thread = threading.Thread(target=one.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield one
    one.shutdown()
    one.server_close()


def dataset(
    server: Server, content: bytes = CONTENT, name: str = "set.bin"
) -> dict[str, PublicDataset]:
    files = {f"{server.url}/{name}": hashlib.sha256(content).hexdigest()}
    return {"one": PublicDataset("a test", "nothing", files)}


def test_fetches_checks_and_keeps(tmp_path: Path, server: Server) -> None:
    server.files["set.bin"] = CONTENT
    seen: list[int] = []
    (path,) = fetch("one", tmp_path, lambda file, done, total: seen.append(done), dataset(server))
    assert path.read_bytes() == CONTENT
    assert seen[-1] == len(CONTENT)
    fetch("one", tmp_path, datasets=dataset(server))
    assert server.asked == 1
    assert [p.name for p in tmp_path.iterdir()] == ["set.bin"]


def test_a_file_that_was_changed_is_fetched_again(tmp_path: Path, server: Server) -> None:
    server.files["set.bin"] = CONTENT
    (tmp_path / "set.bin").write_bytes(b"other")
    (path,) = fetch("one", tmp_path, datasets=dataset(server))
    assert path.read_bytes() == CONTENT


def test_a_wrong_checksum_is_refused_and_not_kept(tmp_path: Path, server: Server) -> None:
    server.files["set.bin"] = CONTENT[:-1] + b"x"
    with pytest.raises(DataError, match="sha256"):
        fetch("one", tmp_path, datasets=dataset(server))
    assert list(tmp_path.iterdir()) == []


def test_a_broken_transfer_leaves_nothing(tmp_path: Path, server: Server) -> None:
    server.files["set.bin"], server.broken = CONTENT, 1
    with pytest.raises(AutomlError, match="the transfer broke off after 512000 of 1024000 bytes"):
        fetch("one", tmp_path, datasets=dataset(server))
    assert list(tmp_path.iterdir()) == []
    (path,) = fetch("one", tmp_path, datasets=dataset(server))
    assert path.read_bytes() == CONTENT


def test_refused(tmp_path: Path, server: Server) -> None:
    with pytest.raises(AutomlError, match="404"):
        fetch("one", tmp_path, datasets=dataset(server))
    with pytest.raises(DataError, match="did you mean 'one'"):
        fetch("on", tmp_path, datasets=dataset(server))


def test_from_the_command_line(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.data.fetch.DATASETS", dataset(server))
    monkeypatch.chdir(tmp_path)
    server.files["set.bin"] = CONTENT
    done = CliRunner().invoke(cli, ["workloads", "--fetch", "one", "--json"])
    assert (done.exit_code, json.loads(done.stdout)["files"]) == (0, ["data/one/set.bin"])
    (tmp_path / "data" / "one" / "set.bin").unlink()
    server.files["set.bin"] = CONTENT[1:]
    for name, message in (("two", "unknown data set"), ("one", "sha256")):
        done = CliRunner().invoke(cli, ["workloads", "--fetch", name])
        assert done.exit_code in (1, 2)
        assert message in done.stderr
        assert isinstance(done.exception, SystemExit)


def test_members_are_checked_and_written_apart(tmp_path: Path, server: Server) -> None:
    server.files["g.tar.gz"] = tar({"G/train.txt": b"a\tr\tb\n", "G/other": b"?"})
    unpack = {"train.txt": hashlib.sha256(b"a\tr\tb\n").hexdigest()}
    known = {"g": PublicDataset("", "", {f"{server.url}/g.tar.gz": unpack})}
    (path,) = fetch("g", tmp_path, datasets=known)
    assert path.read_bytes() == b"a\tr\tb\n"
    assert [p.name for p in tmp_path.iterdir()] == ["train.txt"]
    server.files["g.tar.gz"] = tar({"G/train.txt": b"changed"})
    path.unlink()
    with pytest.raises(DataError, match=r"train\.txt"):
        fetch("g", tmp_path, datasets=known)
    assert list(tmp_path.iterdir()) == []


def test_members_known_are_those_of_the_real_data(data_dir: Path) -> None:
    import gzip

    [members] = DATASETS["umls"].files.values()
    assert not isinstance(members, str)
    for member, wanted in members.items():
        content = gzip.decompress((data_dir / "kg" / "umls" / f"{member}.gz").read_bytes())
        assert hashlib.sha256(content).hexdigest() == wanted
