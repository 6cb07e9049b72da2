"""The counts of scripts/readability.py."""

from __future__ import annotations

import ast

import pytest

from scripts import readability


def test_code_and_addresses_do_not_count() -> None:
    text = "If `where` is code:\n\n```python\nwhere = 1\n```\n\n[Where](where/what.md) that ends."
    found = readability.tally(text)
    assert found.counted == {"if": 1, "where": 1}
    assert found.rate("if") == pytest.approx(1000 / found.words)
    assert found.words == 7  # code counts as one word of its sentence


def test_the_median_sentence_leaves_out_tables_and_headings() -> None:
    text = "# A heading of many many words\n\nOne two three. One two three four five.\n\n| a | b |"
    assert readability.tally(text).sentences == [3, 5]
    assert readability.tally(text).sentence() == 4.0


def test_messages_are_read_without_the_docstrings() -> None:
    tree = ast.parse(
        'def f():\n    """A docstring of words."""\n    raise E("no such trial", "x")\n'
    )
    assert readability.messages(tree) == "no such trial"
    assert readability.docstrings(tree).strip() == "A docstring of words."


def test_comments_count() -> None:
    assert readability.comments('x = "# none"  # the bulk\n# of it\n') == "the bulk\n\nof it"


def test_private_words_count_in_texts_and_in_names() -> None:
    tree = ast.parse('def wish_list(bulk):\n    """The bulk. Trials told\n    nothing."""\n')
    names = readability.defined_names(tree)
    found = readability.tally(readability.docstrings(tree), "automl/a.py", names)
    assert found.private == {"wish": 1, "bulk": 2, "trials told": 1}


def test_a_word_of_plain_english_counts_as_a_whole_name_only() -> None:
    found = readability.tally("It was asked.", "automl/a.py", ("_asked", "cluster_head", "HEAD"))
    assert found.private == {"asked": 1, "head": 1}


def test_a_word_of_the_field_is_not_private_in_its_folder() -> None:
    assert readability.tally("", "automl/a.py", ["attention"]).private == {"attention": 1}
    assert readability.tally("", "workers/a.py", ["attention"]).private == {}


@pytest.mark.parametrize(
    ("text", "status", "said"),
    [
        ("If so, it is.", 0, ""),
        ("The value where so.", 1, "Write 'if'"),
        ("If so, it is a wish.", 1, "1 private words"),
    ],
)
def test_check_fails_if_a_limit_is_not_kept(
    text: str,
    status: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    page = readability.ROOT / "README.md"
    monkeypatch.setattr(readability, "files", lambda under: [page])
    monkeypatch.setattr(readability, "count_file", lambda path: readability.tally(text))
    assert readability.main(["--check"]) == status
    assert said in capsys.readouterr().out
