"""Tokens are kept in files that only their owner can read."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from automl.errors import StoreError, UsageError
from automl.studio.tokens import Role, Tokens
from workers.files.folder import Folder


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path, "studio")


def test_tokens_stay_and_are_nobody_elses(folder: Folder) -> None:
    before = os.umask(0)
    try:
        made = Tokens.kept(folder)
    finally:
        os.umask(before)
    assert Tokens.kept(folder) == made
    assert len(set(made.secrets.values())) == len(Role)
    for role in Role:
        file = folder.path / f"{role}.token"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert file.read_text().strip() == made.secrets[role]
    assert sorted(folder.names()) == sorted(f"{role}.token" for role in Role)


def test_new_tokens_shut_the_earlier_ones_out(folder: Folder) -> None:
    made = Tokens.kept(folder)
    other = Tokens.kept(folder, renew=True)
    assert not set(made.secrets.values()) & set(other.secrets.values())
    assert Tokens.kept(folder) == other


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o606])
def test_a_token_that_others_can_read_is_refused(folder: Folder, mode: int) -> None:
    Tokens.kept(folder)
    (folder.path / "agent.token").chmod(mode)
    with pytest.raises(UsageError, match=r"agent\.token may be read by others: give --new-tokens"):
        Tokens.kept(folder)
    Tokens.kept(folder, renew=True)


@pytest.mark.parametrize("content", ["", "short", "x" * 5000, "two words " * 9, "\xff" * 40])
def test_a_file_without_a_token_is_refused(folder: Folder, content: str) -> None:
    Tokens.kept(folder)
    (folder.path / "viewer.token").write_text(content, "latin-1")
    with pytest.raises(UsageError, match=r"viewer\.token holds no token: give --new-tokens"):
        Tokens.kept(folder)


def test_a_link_in_the_place_of_a_token_is_refused(folder: Folder, tmp_path: Path) -> None:
    Tokens.kept(folder)
    secret = tmp_path / "elsewhere"
    secret.write_text("x" * 40)
    secret.chmod(0o600)
    (folder.path / "viewer.token").unlink()
    (folder.path / "viewer.token").symlink_to(secret)
    with pytest.raises(StoreError, match="is a symbolic link"):
        Tokens.kept(folder)


def test_of_many_studios_that_begin_at_once_all_have_the_same(folder: Folder) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(8) as threads:
        made = list(threads.map(lambda _: Tokens.kept(folder), range(16)))
    assert all(one == made[0] for one in made)


@pytest.mark.parametrize("role", ["operator", "viewer", "agent"])
def test_the_terminal_shows_one_address(store: str, role: str) -> None:
    command = [sys.executable, "-m", "automl", "studio", "--store", store, "--token", role]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        token = (Path(store) / "studio" / f"{role}.token").read_text().strip()
        assert re.fullmatch(rf"http://127\.0\.0\.1:\d+/#token={token}\n", line)
    finally:
        process.terminate()
        out, _ = process.communicate(timeout=60)
    assert out == "", "nothing else is on standard output"
