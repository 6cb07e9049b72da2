"""The schemas of all releases. A file whose schema is another one is not read.

A view, a trigger, a generated column or an index over an expression would run SQL of whoever made
the file.
"""

import re
from collections.abc import Iterable
from functools import cache
from typing import Any, Final

from sqlalchemy.dialects import sqlite
from sqlalchemy.schema import CreateIndex, CreateTable, DDLElement

from automl.errors import StoreError

from .schema import METADATA

Parts = tuple[str, frozenset[str], str]  # beginning, columns and constraints, end
# Tables that a migration has dropped.
_FORMER: Final = (
    "CREATE TABLE attempts (sweep INTEGER NOT NULL, trial BIGINT NOT NULL, attempt BIGINT NOT NULL,"
    " begun DOUBLE NOT NULL, worker TEXT, ended DOUBLE, ending TEXT, failure TEXT, message TEXT,"
    " seconds DOUBLE, peak_memory_bytes BIGINT, PRIMARY KEY (sweep, trial, attempt),"
    " FOREIGN KEY(sweep) REFERENCES sweeps (id)) WITHOUT ROWID",
)
_STATEMENT: Final = re.compile(r"(create [^()]+?) ?\((.*)\)([^()]*)", re.DOTALL)
_COMMA: Final = re.compile(r", ?(?![^()]*\))")  # not in parentheses


def check_schema(name: str, found: Iterable[tuple[Any, ...]]) -> None:
    """Compare a schema with ours. An older one has fewer columns and tables.

    Args:
        name: of the file, for the message.
        found: kind, name, table and SQL of each row of `sqlite_master`.

    Raises:
        StoreError: there is something that no release has made.
    """
    for kind, item, table, sql in found:
        if kind == "index" and sql is None and item.startswith(f"sqlite_autoindex_{table}_"):
            continue  # of a primary key or of a unique column
        if not isinstance(sql, str) or not _is_ours(sql):
            raise StoreError(
                f"{name} is no ledger of automl, or was changed by another program: its "
                f"{kind!s:.20} {item!r:.60} is not ours. It was left as it is; do not trust it. "
                "If it is yours, `automl repair` keeps its sound records"
            )


@cache
def _ours() -> tuple[Parts, ...]:
    """Everything that a release has made."""
    tables = METADATA.sorted_tables
    dialect = sqlite.dialect()
    made: list[DDLElement] = [CreateTable(table) for table in tables]
    made += [CreateIndex(index) for table in tables for index in table.indexes]
    texts = [str(statement.compile(dialect=dialect)) for statement in made]
    return tuple(_parts(text) for text in (*texts, *_FORMER))


def _is_ours(sql: str) -> bool:
    begin, columns, end = _parts(sql)
    return any(
        begin == known and columns <= known_columns and end == known_end
        for known, known_columns, known_end in _ours()
    )


def _parts(sql: str) -> Parts:
    """A statement that creates something, in parts; their order and blanks do not matter."""
    text = " ".join(sql.replace('"', "").lower().split())
    found = _STATEMENT.fullmatch(text)
    if found is None:
        return text, frozenset(), ""
    columns = frozenset(part.strip() for part in _COMMA.split(found[2]))
    return found[1], columns, found[3].strip()
