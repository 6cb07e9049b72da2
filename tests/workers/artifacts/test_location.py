from __future__ import annotations

from pathlib import Path

import pytest

from search_spaces.errors import UsageError
from workers.artifacts.location import read_location


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
    ("text", "says"),
    [
        ("s3://key:hidden@bucket/a", "credentials in the environment"),
        ("sftp://me:hidden@host/a", "credentials in the environment"),
        ("s3://bucket/a?secret=hidden", "credentials in the environment"),
        ("simplecache::s3://bucket/a", "without another one"),
        ("memory://bucket/a::zip://hidden", "without another one"),
        ("https://host/a", "https:// keeps no files"),
        ("zip://a.zip", "zip:// keeps no files"),
        ("memory:///a", "names no bucket"),
        ("memory://bucket/../other", "'..'"),
        ("a\nb", "a folder or a URL"),
    ],
)
def test_what_keeps_no_files_or_shows_a_password_is_refused(text: str, says: str) -> None:
    with pytest.raises(UsageError) as error:
        read_location(text)
    assert says in str(error.value)
    assert "hidden" not in str(error.value)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.artifacts.location.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"s3:// needs the package s3fs .* 'automl-sweep\[s3\]'"):
        read_location("s3://bucket/a")
