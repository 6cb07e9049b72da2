from __future__ import annotations

from pathlib import Path

import pytest

from search_spaces.errors import UsageError
from workers.artifacts.copies import read_location


@pytest.mark.parametrize(
    ("text", "location"),
    [
        ("", ""),
        ("none", "none"),
        ("/shared/sweeps/", "/shared/sweeps"),
        ("file:///shared/sweeps", "/shared/sweeps"),
        ("memory://bucket/a/", "memory://bucket/a"),
    ],
)
def test_a_location_has_one_form(text: str, location: str) -> None:
    assert read_location(text) == location


def test_a_relative_folder_is_one_of_the_folder_where_it_is_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert read_location("kept") == str(tmp_path / "kept")


def test_s3_is_read_if_its_package_is_installed() -> None:
    pytest.importorskip("s3fs", reason="needs automl-sweep[s3]")
    assert read_location("S3://Bucket/prefix//") == "s3://Bucket/prefix"


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
