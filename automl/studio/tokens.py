"""Who may do what: a token for each role."""

from __future__ import annotations

import contextlib
import hmac
import os
import re
import secrets
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from automl.errors import UsageError
from workers.files.folder import Folder

FOLDER: Final = "studio"  # in the folder of the store
_TOKEN: Final = re.compile(r"[\w-]{20,100}", re.ASCII)


class Role(StrEnum):
    """What the bearer of a token may do."""

    VIEWER = "viewer"  # reads
    AGENT = "agent"  # reads, asks and tells
    OPERATOR = "operator"  # reads and acts


@dataclass(frozen=True)
class Tokens:
    """A secret for each role."""

    secrets: Mapping[Role, str]

    @classmethod
    def new(cls) -> Tokens:
        """Tokens that nobody knows yet."""
        return cls({role: secrets.token_urlsafe(24) for role in Role})

    @classmethod
    def kept(cls, folder: Folder, *, renew: bool = False) -> Tokens:
        """The tokens of a store, made with the first studio that serves it.

        Each is in a file that only its owner can read, so an agent keeps its own over restarts.

        Args:
            folder: of the tokens.
            renew: make other ones, which shuts out whoever has the earlier ones.

        In a store that this user may only read, they last as long as the studio.

        Raises:
            UsageError: others may read a file, or it holds no token.
            StoreError: something else than a file is in its place.
        """
        try:
            folder.make()
            return cls({role: _kept(folder, f"{role}.token", renew) for role in Role})
        except PermissionError:
            return cls.new()

    def role(self, authorization: str) -> Role | None:
        """The role of the header `Authorization: Bearer TOKEN`; None if it has no known token."""
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer":
            return None
        given = token.strip().encode("utf-8", "replace")
        found = None
        for role, known in self.secrets.items():  # all of them: time tells nothing
            if hmac.compare_digest(given, known.encode()):
                found = role
        return found


def _kept(folder: Folder, name: str, renew: bool) -> str:
    if renew:
        folder.unlink(name)
    with contextlib.suppress(FileExistsError):
        _write(folder, name)
    with folder.open(name, "r", encoding="ascii", errors="replace") as file:
        facts, found = os.fstat(file.fileno()), str(file.read(1000)).strip()
    path = folder.path / name
    if stat.S_IMODE(facts.st_mode) & 0o077 or facts.st_uid != os.geteuid():
        raise UsageError(f"{path} may be read by others: give --new-tokens to make other ones")
    if not _TOKEN.fullmatch(found):
        raise UsageError(f"{path} holds no token: give --new-tokens to make other ones")
    return found


def _write(folder: Folder, name: str) -> None:
    """A new token in a new file, which is whole when it gets its name."""
    draft = f"{name}.{secrets.token_hex(4)}"
    with folder.descriptor() as place:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with os.fdopen(os.open(draft, flags, 0o600, dir_fd=place), "w") as file:
            file.write(secrets.token_urlsafe(24) + "\n")
        try:
            os.link(draft, name, src_dir_fd=place, dst_dir_fd=place)  # fails if there is one
        finally:
            os.unlink(draft, dir_fd=place)
