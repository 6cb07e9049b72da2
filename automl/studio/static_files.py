"""The scripts, styles and icons of the studio, read at the start: a page asks for many of them."""

from __future__ import annotations

import hashlib
import mimetypes
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

FOLDER: Final = "automl.report", "assets"


class StaticFiles:
    """Answers `/static/{path:path}` from memory."""

    def __init__(self) -> None:
        self._files: dict[str, tuple[bytes, str, str]] = {}  # content, media type, ETag
        package, folder = FOLDER
        self._read(files(package) / folder, "")

    def _read(self, folder: Traversable, path: str) -> None:
        for entry in folder.iterdir():
            if entry.is_dir():
                self._read(entry, f"{path}{entry.name}/")
                continue
            content = entry.read_bytes()
            kind = mimetypes.guess_type(entry.name)[0] or "application/octet-stream"
            etag = f'"{hashlib.sha256(content).hexdigest()}"'
            self._files[f"{path}{entry.name}"] = content, kind, etag

    async def answer(self, request: Request) -> Response:
        """A file, or that the browser has it already.

        Raises:
            HTTPException: there is no such file.
        """
        return self.file(request.path_params["path"], request.headers.get("if-none-match", ""))

    def file(self, path: str, known: str = "", status: int = 200) -> Response:
        """A file; status 304 without content if `known` is its ETag.

        Raises:
            HTTPException: there is no such file.
        """
        if path not in self._files:
            raise HTTPException(404)
        content, kind, etag = self._files[path]
        if etag == known:
            return Response(status_code=304, headers={"ETag": etag})
        return Response(content, status, {"ETag": etag}, kind)
