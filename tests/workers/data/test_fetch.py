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
from search_spaces.errors import DataError
from workers.data.datasets import DATASETS, PublicDataset, Source
from workers.data.fetch import FetchError, fetch

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
    """Serves `files`, ends after `limit` bytes a request, and keeps the requested ranges."""

    files: dict[str, bytes]
    limit: int | None = None
    ranges: bool = True
    silent_after: int | None = None

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[str | None] = []
        self.files = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        asked = self.headers.get("Range")
        self.server.asked.append(asked)
        content = self.server.files.get(self.path.lstrip("/"))
        if content is None:
            self.send_error(404)
            return
        begin = int(asked.split("=")[1].rstrip("-")) if asked and self.server.ranges else 0
        if begin >= len(content):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(content)}")
            self.end_headers()
            return
        self.send_response(206 if begin else 200)
        if begin:
            self.send_header("Content-Range", f"bytes {begin}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(content) - begin))
        self.end_headers()
        end = len(content) if self.server.limit is None else begin + self.server.limit
        if self.server.silent_after is None or begin < self.server.silent_after:
            self.wfile.write(content[begin:end])
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
    source = Source(f"{server.url}/{name}", hashlib.sha256(content).hexdigest())
    return {"one": PublicDataset("a test", "nothing", (source,))}


def test_fetches_checks_and_keeps(tmp_path: Path, server: Server) -> None:
    server.files["set.bin"] = CONTENT
    seen: list[int] = []
    (path,) = fetch("one", tmp_path, lambda file, done, total: seen.append(done), dataset(server))
    assert path.read_bytes() == CONTENT
    assert seen[-1] == len(CONTENT)
    fetch("one", tmp_path, datasets=dataset(server))
    assert len(server.asked) == 1
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


def test_a_broken_transfer_goes_on_from_where_it_broke(tmp_path: Path, server: Server) -> None:
    server.files["set.bin"], server.limit = CONTENT, 300_000
    (path,) = fetch("one", tmp_path, datasets=dataset(server))
    assert path.read_bytes() == CONTENT
    assert server.asked == [None, "bytes=300000-", "bytes=600000-", "bytes=900000-"]


def test_a_transfer_that_stays_broken_is_kept_for_the_next_try(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.data.fetch.ATTEMPTS", 2)
    server.files["set.bin"], server.limit, server.silent_after = CONTENT, 400_000, 400_000
    with pytest.raises(FetchError, match="400000 bytes are kept"):
        fetch("one", tmp_path, datasets=dataset(server))
    server.limit = server.silent_after = None
    server.asked.clear()
    (path,) = fetch("one", tmp_path, datasets=dataset(server))
    assert server.asked == ["bytes=400000-"]
    assert path.read_bytes() == CONTENT


def test_a_server_without_ranges_sends_all_again(tmp_path: Path, server: Server) -> None:
    server.files["set.bin"], server.ranges = CONTENT, False
    (tmp_path / "set.bin.part").write_bytes(CONTENT[:1000])
    (path,) = fetch("one", tmp_path, datasets=dataset(server))
    assert path.read_bytes() == CONTENT


@pytest.mark.parametrize("stale", [b"x" * 1000, b"x" * len(CONTENT), b"x" * (len(CONTENT) + 5)])
def test_a_part_of_another_file_is_thrown_away(
    tmp_path: Path, server: Server, stale: bytes
) -> None:
    server.files["set.bin"] = CONTENT
    (tmp_path / "set.bin.part").write_bytes(stale)
    (path,) = fetch("one", tmp_path, datasets=dataset(server))
    assert path.read_bytes() == CONTENT


def test_refused(tmp_path: Path, server: Server) -> None:
    with pytest.raises(FetchError, match="404"):
        fetch("one", tmp_path, datasets=dataset(server))
    with pytest.raises(DataError, match="did you mean 'one'"):
        fetch("on", tmp_path, datasets=dataset(server))


def test_from_the_command_line(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.data.fetch.DATASETS", dataset(server))
    monkeypatch.setattr("workers.data.fetch.ATTEMPTS", 1)
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
    known = {"g": PublicDataset("", "", (Source(f"{server.url}/g.tar.gz", unpack=unpack),))}
    (path,) = fetch("g", tmp_path, datasets=known)
    assert path.read_bytes() == b"a\tr\tb\n"
    assert [p.name for p in tmp_path.iterdir()] == ["train.txt"]
    server.files["g.tar.gz"] = tar({"G/train.txt": b"changed"})
    path.unlink()
    with pytest.raises(DataError, match=r"train\.txt"):
        fetch("g", tmp_path, datasets=known)
    assert list(tmp_path.iterdir()) == []


def test_the_known_data_sets_are_of_official_sources_over_https() -> None:
    for known in DATASETS.values():
        for source in known.sources:
            assert source.url.startswith("https://")
            assert all(
                len(value) == 64 for value in (source.sha256, *source.unpack.values()) if value
            )
            assert source.sha256 or source.unpack


def test_members_known_are_those_of_the_real_data(data_dir: Path) -> None:
    import gzip

    for member, wanted in DATASETS["umls"].sources[0].unpack.items():
        content = gzip.decompress((data_dir / "kg" / "umls" / f"{member}.gz").read_bytes())
        assert hashlib.sha256(content).hexdigest() == wanted
