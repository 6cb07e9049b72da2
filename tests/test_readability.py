"""The counts of scripts/readability.py."""

from __future__ import annotations

import ast

import pytest

from scripts import readability


def test_code_and_addresses_do_not_count() -> None:
    text = "If `where` is code:\n\n```python\nwhere = 1\n```\n\n[Where](where/what.md) it ends."
    found = readability.tally(text)
    assert found.words == 6
    assert found.counted == {"if": 1, "where": 1}
    assert found.rate("if") == pytest.approx(1000 / 6)


def test_private_words_count_in_text_and_in_names() -> None:
    tree = ast.parse('def was_told(bulk):\n    """Asked for bulk."""\n    self.numAsked = 1\n')
    names = readability.defined_names(tree)
    found = readability.tally(readability.docstrings(tree), "automl", names)
    assert found.private == {"told": 1, "asked": 2, "bulk": 2}


def test_a_word_of_the_field_is_not_private_in_its_folder() -> None:
    assert readability.tally("attention heads", "automl").private == {"attention": 1}
    assert readability.tally("attention heads", "workers").private == {}


@pytest.mark.parametrize(("text", "status"), [("If so, it is.", 0), ("The value where so.", 1)])
def test_check_fails_if_a_limit_is_not_kept(
    text: str, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = readability.ROOT / "README.md"
    monkeypatch.setattr(readability, "files", lambda under: [page])
    monkeypatch.setattr(readability, "count_file", lambda path: readability.tally(text))
    assert readability.main(["--check"]) == status
    assert ("Write 'if'" in capsys.readouterr().out) == bool(status)
