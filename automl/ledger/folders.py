"""A sweep's folder holds what it writes: no symbolic link may lead its files elsewhere."""

from __future__ import annotations

from pathlib import Path

from automl.errors import StoreError


def refuse_links(folder: Path) -> None:
    """Raise StoreError where a sweep's folder, its parent, or a trial's folder in it is a symbolic link.

    The store itself may be one: whoever made it said where the files go.
    """
    inside = [folder.parent, folder, folder / "trials"]
    if inside[-1].is_dir() and not inside[-1].is_symlink():
        inside += list(inside[-1].iterdir())
    for path in inside:
        if path.is_symlink():
            raise StoreError(
                f"{path} is a symbolic link: the files of a sweep stay in its store. Remove the link"
            )
