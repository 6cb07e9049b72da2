"""The location of artifacts as people write it: a folder, or a URL of an object store."""

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from search_spaces.errors import UsageError

NONE: Final = "none"  # a person's word for: use no location
# Protocols of fsspec that hold files for good, with the package that each needs.
PACKAGES: Final = {
    "s3": "s3fs",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "az": "adlfs",
    "abfs": "adlfs",
    "abfss": "adlfs",
    "hdfs": "pyarrow",
    "sftp": "paramiko",
    "memory": "fsspec",
}
_PROTOCOL: Final = re.compile(r"([a-z][a-z0-9+.-]*)://", re.IGNORECASE)


def read_location(text: str) -> str:
    """A location in its one form: an absolute folder, or a URL without a slash at its end.

    Args:
        text: such as "s3://bucket/prefix", "/shared/sweeps" or "none"; "" for none.

    Returns:
        The location; "" if there is none, "none" if the person says so.

    Raises:
        UsageError: it names no place that can keep files, holds a password, or its package is not
            installed. The message never holds the password.
    """
    if text in ("", NONE):
        return text
    if any(not character.isprintable() for character in text):
        raise UsageError(f"artifacts: a folder or a URL is needed, got {text!r:.200}")
    found = _PROTOCOL.match(text)
    if "://" in text and (found is None or "::" in text):
        raise UsageError("artifacts: a URL is PROTOCOL://BUCKET/PREFIX, without another one in it")
    if found is None or found[1].lower() == "file":
        path = text[found.end() :] if found else text
        return str(Path(path).expanduser().absolute())
    protocol = found[1].lower()
    if protocol not in PACKAGES:
        known = ", ".join(f"{name}://" for name in ("s3", "gs", "az", "hdfs", "sftp"))
        raise UsageError(
            f"artifacts: {protocol}:// keeps no files; a folder or one of {known} is needed"
        )
    url = urlsplit(text)
    account, _, place = url.netloc.rpartition("@")
    if url.query or url.fragment or (":" in account and protocol != "abfs"):
        raise UsageError(
            f"artifacts: a password or an option in the URL of {protocol}://{place} would show in "
            "the ledger and in `ps`: leave it out, and set the credentials in the environment or "
            "in the configuration of fsspec on every node"
        )
    if not url.netloc:
        raise UsageError(f"artifacts: {text!r} names no bucket, as in {protocol}://bucket/prefix")
    if ".." in url.path.split("/"):
        raise UsageError(f"artifacts: {text!r} has '..' in its path: write the place itself")
    if find_spec(PACKAGES[protocol]) is None:
        extra = f"'automl-sweep[{protocol}]'" if protocol == "s3" else PACKAGES[protocol]
        raise UsageError(
            f"artifacts: {protocol}:// needs the package {PACKAGES[protocol]} on this machine and "
            f"on every node: pip install {extra}"
        )
    return f"{protocol}://{text[found.end() :].rstrip('/')}"
