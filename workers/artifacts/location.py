"""The location of artifacts as people write it: a folder, or a URL of an object store."""

from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from search_spaces.errors import UsageError

NONE: Final = "none"  # a person's word for: use no location


def read_location(text: str) -> str:
    """A location in its one form: an absolute folder, or a URL without a slash at its end.

    Args:
        text: such as "s3://bucket/prefix", "/shared/sweeps" or "none"; "" for none.

    Returns:
        The location; "" if there is none, "none" if the person says so.

    Raises:
        UsageError: it holds a password, an option or another URL. The message never holds these.
    """
    if text in ("", NONE):
        return text
    if "://" not in text or text.startswith("file://"):
        return str(Path(text.removeprefix("file://")).expanduser().absolute())
    url = urlsplit(text)
    account, _, place = url.netloc.rpartition("@")
    if url.query or url.fragment or ":" in account or "::" in text:
        raise UsageError(
            f"artifacts: a password or an option in the URL of {url.scheme}://{place} would show "
            "in the ledger and in `ps`: leave it out, and set the credentials in the environment "
            "or in the configuration of fsspec on every node"
        )
    return f"{url.scheme}://{text.partition('://')[2].rstrip('/')}"
