"""Stores made by an attacker: nothing outside them is read or written, and nothing hangs."""

from __future__ import annotations

import json
import os
import resource
import shutil
import socket
import sqlite3
import stat
import struct
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from attacks.frame import attack, automl, said

CONFIG = """name: s
goals: minimize loss
space: {x: {low: 0, high: 1}, y: [a, b]}
suggester: random
workers: 1
"""
OBJECTIVE = """def objective(trial):
    (trial.folder / "mine").write_text("x")
    trial.report(1, loss=trial.params["x"])
    return {"loss": trial.params["x"]}
"""
READ = [
    ["list"],
    ["status", "s"],
    ["trials", "s"],
    ["best", "s"],
    ["logs", "s", "0"],
    ["report", "s", "-o", "report.html"],
    ["check", ".automl"],
    ["backup", ".automl", "copy.sqlite3"],
    ["export", "s", "--trial", "0", "-o", "exported"],
]
WRITE = [
    [
        "resume",
        "s",
        "--trials",
        "4",
        "--cwd",
        ".",
        "--objective",
        "mine.py:objective",
        "--dispatcher",
        "inline",
    ],
    ["repair", ".automl"],
    ["delete", "s", "--yes"],
]
NOBODY = 65534
HANG_SECONDS = 2.0
HUGE = 3 << 40  # bytes, most of them a hole
LEDGER = "ledger.sqlite3"
HARMLESS = "harmless"
SECRET = "root:secret-of-the-victim"
Kind = Callable[[Path, Path], None]


def sql(*statements: str) -> Kind:
    """A ledger with these statements run in it."""

    def make(store: Path, outside: Path) -> None:
        with closing(sqlite3.connect(store / LEDGER)) as connection:
            for statement in statements:
                connection.execute(statement)
            connection.commit()

    return make


def link(place: str, target: str = "") -> Kind:
    """A symbolic link in place of something; to the folder outside, or to a file in it."""

    def make(store: Path, outside: Path) -> None:
        empty(store, place).symlink_to(outside / target)

    return make


def hard_link(place: str) -> Kind:
    """A second name of the file outside."""

    def make(store: Path, outside: Path) -> None:
        os.link(outside / "secret", empty(store, place))

    return make


def pipe(place: str) -> Kind:
    """A pipe that nobody writes to."""

    def make(store: Path, outside: Path) -> None:
        os.mkfifo(empty(store, place))

    return make


def device(place: str) -> Kind:
    """/dev/zero; a socket if only root may make a device."""

    def make(store: Path, outside: Path) -> None:
        path = empty(store, place)
        if os.geteuid() == 0:
            os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 5))
        else:
            with closing(socket.socket(socket.AF_UNIX)) as server:
                server.bind(str(path))

    return make


def empty(store: Path, place: str) -> Path:
    """A path in the store where nothing is."""
    path = store / place
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    return path


def journal(store: Path, outside: Path) -> None:
    """A journal to roll back that names the file outside: SQLite deletes such a file."""
    settle(store)
    name = str(outside / "secret").encode()
    page = (store / LEDGER).read_bytes()[:4096]
    size = (store / LEDGER).stat().st_size // 4096
    magic = bytes.fromhex("d9d505f920a163d7")
    head = magic + struct.pack(">IIIII", 1, 0, size, 512, 4096)
    checksum = sum(page[i] for i in range(4096 - 200, 0, -200)) & 0xFFFFFFFF
    entry = struct.pack(">I", 1) + page + struct.pack(">I", checksum)
    pointer = struct.pack(">I", (1 << 30) // 4096 + 1)
    sums = sum(name)
    tail = pointer + name + struct.pack(">II", len(name), sums) + magic
    (store / f"{LEDGER}-journal").write_bytes(head.ljust(512, b"\0") + entry + tail)


def endless(store: Path, outside: Path) -> None:
    """Pages of a table that refer to each other: a hundred billion rows in a few kilobytes."""
    settle(store)
    file = store / LEDGER
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")
        query = "SELECT rootpage FROM sqlite_master WHERE name = 'sweeps'"
        root = connection.execute(query).fetchone()[0]
    content = bytearray(file.read_bytes())
    size = struct.unpack(">H", content[16:18])[0]
    count = len(content) // size
    content += content[(root - 1) * size : root * size]  # the leaf
    child = count + 1
    for level in range(4):
        cells = [struct.pack(">I", child) + varint(key) for key in range(1, 400)]
        body = b"".join(reversed(cells))
        begin = size - len(body)
        pointers, at = b"", size
        for cell in cells:
            at -= len(cell)
            pointers += struct.pack(">H", at)
        head = struct.pack(">BHHHBI", 5, 0, len(cells), begin, 0, child)
        page = (head + pointers).ljust(begin, b"\0") + body
        if level == 3:
            content[(root - 1) * size : root * size] = page
        else:
            content += page
            child = len(content) // size
    content[28:32] = struct.pack(">I", len(content) // size)
    file.write_bytes(content)


def varint(number: int) -> bytes:
    """A number below 16,384 as SQLite writes it."""
    return bytes([number]) if number < 128 else bytes([0x80 | number >> 7, number & 0x7F])


def settle(store: Path) -> None:
    """Bring everything into the file itself."""
    with closing(sqlite3.connect(store / LEDGER)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def in_use(store: Path) -> Path:
    """Leave two commits in the log, as a controller that was killed does; the log."""
    log, kept = store / f"{LEDGER}-wal", store / "kept"
    with closing(sqlite3.connect(store / LEDGER)) as connection:
        for change in ("+ 1", "- 1"):
            connection.execute(f"UPDATE leases SET commits = commits {change}")
            connection.commit()
        shutil.copy(log, kept)
    return kept.replace(log)


def huge_log(store: Path, outside: Path) -> None:
    """A log of 3 TB: two commits and a hole."""
    os.truncate(in_use(store), HUGE)


def huge_damaged_log(store: Path, outside: Path) -> None:
    """A log of 3 TB whose first frame is damaged, with a later commit behind the hole."""
    log = in_use(store)
    data = log.read_bytes()
    frame = data[32:]
    with log.open("r+b") as file:
        file.seek(32 + 100)
        file.write(b"damage")
        file.seek(32 + HUGE // len(frame) * len(frame))
        file.write(frame + frame)


def odd_page_size(store: Path, outside: Path) -> None:
    """A log whose header is sound, with pages of 1001 bytes."""
    log = in_use(store)
    data = bytearray(log.read_bytes())
    data[8:12] = struct.pack(">I", 1001)
    order = "<" if data[3] == 0x82 else ">"
    one = two = 0
    words = struct.unpack(f"{order}6I", data[:24])
    for first, second in zip(words[::2], words[1::2], strict=True):
        one = (one + first + two) & 0xFFFFFFFF
        two = (two + second + one) & 0xFFFFFFFF
    data[24:32] = struct.pack(">II", one, two)
    log.write_bytes(data)


def huge_record(store: Path, outside: Path) -> None:
    """A record of commits of 4 MiB, with something in every slot."""
    (store / f"{LEDGER}-head").write_bytes(b"x" * (1 << 22))


def nested(store: Path, outside: Path) -> None:
    """Three hundred folders in each other."""
    here = os.open(store / "sweeps" / "s" / "trials" / "0", os.O_RDONLY)
    for _ in range(300):
        os.mkdir("d", dir_fd=here)
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)


TRIAL = "sweeps/s/trials/0"
NEXT = "sweeps/s/trials/3"
RECURSIVE = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT {} FROM n"
KINDS: dict[str, Kind] = {
    "a link: the ledger": link(LEDGER, "secret"),
    "a link: its log": link(f"{LEDGER}-wal", "new"),
    "a link: its shared memory": link(f"{LEDGER}-shm", "new"),
    "a link: its journal": link(f"{LEDGER}-journal", "secret"),
    "a link: the backups": link("backup"),
    "a link: the sweeps": link("sweeps"),
    "a link: a sweep": link("sweeps/s"),
    "a link: the lock": link("sweeps/s/controller.lock", "new"),
    "a link: the trials": link("sweeps/s/trials"),
    "a link: a trial": link(TRIAL),
    "a link: the next trial": link(NEXT),
    "a link: the logs": link(f"{TRIAL}/logs"),
    "a link: a log": link(f"{TRIAL}/logs/attempt-1-rank-0.log", "secret"),
    "a link: the next log": link(f"{NEXT}/logs/attempt-1-rank-0.log", "secret"),
    "a link: the checkpoints": link(f"{TRIAL}/checkpoints"),
    "a link: a file of the objective": link(f"{NEXT}/mine", "secret"),
    "a link: a file to export": link(f"{TRIAL}/mine", "secret"),
    "a link: a folder to export": link(f"{TRIAL}/folder"),
    "a hard link: a file of the objective": hard_link(f"{NEXT}/mine"),
    "a hard link: the lock": hard_link("sweeps/s/controller.lock"),
    "a pipe: the ledger": pipe(LEDGER),
    "a pipe: its log": pipe(f"{LEDGER}-wal"),
    "a pipe: its shared memory": pipe(f"{LEDGER}-shm"),
    "a pipe: its journal": pipe(f"{LEDGER}-journal"),
    "a pipe: the log of a backup": pipe(f"backup/{LEDGER}-wal"),
    "a link: the heads of logs": link(f"{LEDGER}-head", "new"),
    "a pipe: the heads of logs": pipe(f"{LEDGER}-head"),
    "a pipe: the lock": pipe("sweeps/s/controller.lock"),
    "a pipe: a log": pipe(f"{TRIAL}/logs/attempt-1-rank-0.log"),
    "a pipe: a file of the objective": pipe(f"{NEXT}/mine"),
    "a pipe: a file to export": pipe(f"{TRIAL}/mine"),
    "a device: the ledger": device(LEDGER),
    "a device: a log": device(f"{TRIAL}/logs/attempt-1-rank-0.log"),
    "a device: a file to export": device(f"{TRIAL}/mine"),
    "folders in folders": nested,
    "a journal that deletes": journal,
    "endless pages": endless,
    "a huge log": huge_log,
    "a huge log, damaged": huge_damaged_log,
    "a log of odd pages": odd_page_size,
    "a huge record of commits": huge_record,
    "a trigger": sql(
        "CREATE TRIGGER t AFTER UPDATE ON leases BEGIN UPDATE records SET payload = "
        "'{\"loss\": -999.0}'; END"
    ),
    "a view": sql(
        "ALTER TABLE records RENAME TO kept",
        "CREATE VIEW records AS SELECT sweep, number, trial, kind, recorded, "
        "'{\"loss\": -999.0}' AS payload, previous, sum FROM kept",
    ),
    "a recursive view": sql(
        "ALTER TABLE sweeps RENAME TO kept",
        f"CREATE VIEW sweeps AS {RECURSIVE.format('kept.*, max(i)')}, kept",
    ),
    "a recursive view of the version": sql(
        "ALTER TABLE meta RENAME TO kept",
        f"CREATE VIEW meta AS {RECURSIVE.format('max(i) AS value, 0 AS key')}",
    ),
    "an index over an expression": sql(
        "CREATE INDEX i ON records (printf('%.*c', 1000000, 'x'))",
    ),
    "another table": sql("CREATE TABLE more (a)"),
    "a virtual table": sql("CREATE VIRTUAL TABLE more USING fts5(a)"),
    "a hundred thousand views": sql(
        "PRAGMA writable_schema=ON",
        "INSERT INTO sqlite_master SELECT 'view', 'v' || i, 'v' || i, 0, 'CREATE VIEW v' || i || "
        "' AS SELECT 1' FROM (WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n "
        "LIMIT 100000) SELECT i FROM n)",
    ),
    "a huge text": sql(
        "UPDATE records SET payload = printf('%.*c', 50000000, 'x') WHERE number = 1"
    ),
    "a huge blob": sql("UPDATE records SET payload = zeroblob(50000000) WHERE number = 1"),
    "deep JSON": sql("UPDATE records SET payload = printf('%.*c', 1000000, '[')"),
    "a name that leads out": sql("UPDATE sweeps SET name = '../../../outside'"),
    "a number that leads out": sql(
        "UPDATE records SET trial = '../../../../outside' WHERE trial = 0"
    ),
    "an attempt that leads out": sql(
        "UPDATE records SET payload = '/../../../outside' WHERE kind = 'Begun'"
    ),
    "a process that leads out": sql("UPDATE leases SET pid = '../tmp', held = 1"),
}
QUICK = (
    "a link: a log",
    "a link: the backups",
    "a hard link: a file of the objective",
    "a pipe: a log",
    "a trigger",
    "a recursive view",
    "endless pages",
    "a journal that deletes",
    "a process that leads out",
)


def made(folder: Path) -> Path:
    """A store with a sweep of three trials, which have logs and files."""
    (folder / "config.yaml").write_text(CONFIG)
    (folder / "mine.py").write_text(OBJECTIVE)
    done = automl(
        folder,
        *("sweep", "config.yaml", "--trials", "3", "--objective", "mine.py:objective"),
        *("--dispatcher", "inline"),
    )
    assert done.returncode == 0, done.stderr
    store = folder / ".automl"
    logs = store / TRIAL / "logs"
    logs.mkdir(exist_ok=True)
    (logs / "attempt-1-rank-0.log").write_text("a log\n")
    return store


def try_all(folder: Path, name: str, kind: Kind) -> float:
    """Try every verb on a store of this kind; returns the longest processor time of one."""
    longest = 0.0
    for verb in (*READ, *WRITE):
        place = folder / "tried"
        subprocess.run(["rm", "-rf", str(place)], check=True)  # folders may be too deep for Python
        place.mkdir()
        shutil.copytree(folder / "base" / ".automl", place / ".automl")
        shutil.copy(folder / "base" / "mine.py", place)
        outside = place / "outside"
        outside.mkdir()
        (outside / "secret").write_text(SECRET)
        kind(place / ".automl", outside)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        try:
            done = automl(place, *verb, seconds=120)  # of the wall; below, of the processor
        except TimeoutError:
            raise AssertionError(f"{name}: `{' '.join(verb)}` hangs") from None
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        text = f"{name}: `{' '.join(verb)}`: {said(done)}"
        assert name != HARMLESS or done.returncode == 0, text
        assert os.listdir(outside) == ["secret"], f"{text}: wrote outside"  # noqa: PTH208
        assert (outside / "secret").read_text() == SECRET, f"{text}: changed a file outside"
        assert SECRET not in done.stdout + done.stderr, f"{text}: read a file outside"
        assert "-999" not in done.stdout, f"{text}: ran SQL"
        for file in (place / "exported").rglob("*"):
            assert SECRET not in file.read_text(errors="replace"), f"{text}: exported a secret"
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        longest = max(longest, used)
    subprocess.run(["rm", "-rf", str(place)], check=True)
    return longest


def conduct(folder: Path, names: list[str]) -> str:
    """Try kinds of stores; none takes `HANG_SECONDS` longer than a harmless one."""
    (folder / "base").mkdir()
    made(folder / "base")
    harmless = try_all(folder, HARMLESS, lambda store, outside: None)
    longest = 0.0
    for name in names:
        seconds = try_all(folder, name, KINDS[name])
        assert seconds < harmless + HANG_SECONDS, f"{name}: {seconds:.1f} s of processor time"
        longest = max(longest, seconds)
    return f"{len(names)} kinds, at most {longest:.1f} s ({harmless:.1f} s for a harmless one)"


@attack("nothing outside is read or written, nothing hangs", quick=True)
def a_few_stores_of_an_attacker(folder: Path) -> str:
    return conduct(folder, list(QUICK))


@attack("nothing outside is read or written, nothing hangs", seconds=600)
def stores_of_an_attacker(folder: Path) -> str:
    return conduct(folder, list(KINDS))


EACH = """import json, sys
from click.testing import CliRunner
from automl.cli import cli
for words in json.loads(sys.argv[1]):
    done = CliRunner().invoke(cli, words)
    print(json.dumps([words[0], done.exit_code, done.output[-300:], repr(done.exception)]))
"""


@attack("it can be read, and what would write is refused with one error", quick=True)
def a_store_that_may_only_be_read(folder: Path) -> str:
    store = made(folder)
    for path in [store, *store.rglob("*")]:
        path.chmod(path.stat().st_mode & ~0o222)
    answers = without_power(folder)
    for (verb, status, output, error), given in zip(answers, [*READ, *WRITE], strict=True):
        harmless = given in READ or verb == "repair"  # nothing is damaged
        assert (status == 0) is harmless, f"{verb}: {status} {output} {error}"
        assert status == 0 or output.startswith("Error: "), f"{verb}: {output} {error}"
    return answers[-1][2]


@attack("every verb is refused with one error")
def a_store_of_another_account(folder: Path) -> str:
    if os.geteuid() != 0:
        return "not tried: only root can give a store away"
    store = made(folder)
    for path in [store, *store.rglob("*")]:
        os.chown(path, NOBODY, NOBODY)
    answers = without_power(folder)
    for verb, status, output, error in answers:
        refused = status == 2 and output.startswith("Error: ") and "Permission denied" in output
        assert refused, f"{verb}: {status} {output} {error}"
    return f"{len(answers)} verbs"


def without_power(folder: Path) -> list[list[Any]]:
    """Verb, exit status, output and exception of each verb for an account that is not root."""
    powers = "--bounding-set=-dac_override,-dac_read_search,-fowner,-chown"
    prefix = ["setpriv", powers] if os.geteuid() == 0 else []
    words = json.dumps([*READ, *WRITE])
    paths = os.pathsep.join(path for path in sys.path if path)
    done = subprocess.run(
        [*prefix, sys.executable, "-c", EACH, words],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]
