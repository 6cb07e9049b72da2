from __future__ import annotations

import ast
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search_spaces import Int, Space, SpaceError
from search_spaces.expressions import Expression, quoted

PARAMS = {"a": 3, "b": 2.5, "s": "adam", "t": True, "zero": 0}


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("a + b == 5.5", True),
        ("a - b * 2 < 0", True),
        ("7 // a == 2 and 7 % a == 1 and 7 / 2 == 3.5", True),
        ("2 ** a <= 8", True),
        ("-a < +b", True),
        ("1 <= a <= 3 < 4", True),
        ("1 < a < 3", False),
        ("not a == 3 or t", True),
        ("s == 'adam'", True),
        ("s in ('sgd', 'adam') and a not in [1, 2]", True),
        ("s in {'sgd'}", False),
        ("min(a, b, 1) == 1 and max(a, b) == 3 and abs(-a) == 3", True),
        ("t", True),
        ("not t", False),
        ("(a > 1) + (b > 2) <= 1", False),
        ("s != 'sgd' or b >= 9", True),
        # No result: does not hold, whichever way it is asked.
        ("1 / zero > 0", False),
        ("not 1 / zero > 0", False),
        ("a % zero == 0", False),
        ("s < 3", False),
        ("s * a == 'adamadamadam'", False),
        ("s % a == ''", False),
        ("s + s == 'adamadam'", False),
        ("(0 - a) ** 0.5 >= 0", False),
        ("10.0 ** 400 > 0", False),
        ("zero == 0 or 1 / zero > 0", True),
        # Real numbers are the same up to their rounding, and whole ones are exact.
        ("0.7 + 0.2 + 0.1 == 1 and 0.1 + 0.2 <= 0.3", True),
        ("0.1 * a > 0.3 or b + 0.1 * a < 2.8 or 0.1 * a != 0.3", False),
        ("b + 1e-11 == b or 0.1 + 0.2 == 0.3 + 1e-12", False),
        ("2 ** 52 + zero < 2 ** 52 + 1 and 2 ** 52 != 2 ** 52 - 1", True),
        ("s == '`adam`' or s == 'a-b `c`'", False),
    ],
)
def test_values(text: str, holds: bool) -> None:
    assert Expression(text).evaluate(PARAMS) is holds


NAMES: dict[str, tuple[Any, ...]] = {
    "i": (-3, 0, 1, 2, 7),
    "x": (-1.5, 0.0, 0.25, 3.0),
    "s": ("adam", "sgd", ""),
    "t": (True, False),
    "n": (None, 0, 2, "a"),
}
NUMBERS = ("i", "x", "t", "0", "1", "2.5", "-3")


def some_number(rng: random.Random, depth: int) -> str:
    if depth == 0:
        return rng.choice(NUMBERS)
    a, b = some_number(rng, depth - 1), some_number(rng, rng.randrange(depth))
    operation = rng.choice(["+", "-", "*", "/", "//", "%"])
    forms = (f"({a} {operation} {b})", f"-{a}", f"min({a}, {b})", f"max({a}, {b}, 1)", f"abs({a})")
    return rng.choice((*forms, f"abs({a}) ** 2", f"((i > 1 or not t) + {a})"))


def comparison(rng: random.Random) -> str:
    sides = [some_number(rng, rng.randrange(3)) for _ in range(2)]
    op = rng.choice(("<", "<=", ">", ">=", "==", "!="))
    name, word = rng.choice("sn"), rng.choice(("'adam'", "'a'", "None", "2", "s", "n", "i"))
    return rng.choice((f"{sides[0]} {op} {sides[1]}", f"{name} {op} {word}", "t", "i"))


def condition(rng: random.Random, depth: int) -> str:
    if depth == 0:
        return f"({comparison(rng)})"
    parts = [condition(rng, rng.randrange(depth)) for _ in range(rng.choice((2, 2, 3)))]
    return rng.choice((f"(not {parts[0]})", f"({rng.choice((' and ', ' or ')).join(parts)})"))


def python_says(node: ast.expr, params: dict[str, Any]) -> bool | None:
    """The truth of a condition whose comparisons Python evaluates; None if there is no result."""
    match node:
        case ast.BoolOp(op=op, values=values):
            found = [python_says(value, params) for value in values]
            decisive = isinstance(op, ast.Or)
            if decisive in found:
                return decisive
            return None if None in found else not decisive
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            truth = python_says(operand, params)
            return None if truth is None else not truth
    try:
        expression = ast.fix_missing_locations(ast.Expression(node))
        return bool(eval(compile(expression, "", "eval"), dict(params)))
    except (ZeroDivisionError, TypeError):
        return None


@pytest.mark.parametrize("seed", range(5))
def test_a_condition_is_what_python_says(seed: int) -> None:
    rng = random.Random(seed)
    seen = set()
    for _ in range(150):
        text = condition(rng, rng.randrange(4))
        params = {name: rng.choice(values) for name, values in NAMES.items()}
        said = python_says(ast.parse(text, mode="eval").body, params)
        seen.add(said)
        assert Expression(text).evaluate(params) is (said is True), (text, params)
        opposite = Expression(f"not {text}").evaluate(params)
        assert opposite is (said is False), (text, params)
    assert seen == {True, False, None}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "a <",
        "a = 3",
        "a <= 3; b",
        "a if b else c",
        "lambda: 1",
        "[a for a in b]",
        "a().real > 0",
        "'text'.lower == 0",
        "a[0] > 0",
        "__import__('os').system('true')",
        "print(a) == 1",
        "min(*a) > 0",
        "min(a, key=b) > 0",
        "min(a) > 0",
        "abs(a, b) > 0",
        "abs() > 0",
        "a is b",
        "a << 100 > 0",
        "a & b",
        "a @ b > 0",
        "~a > 0",
        "(a := 3) > 0",
        "f'{a}' == '3'",
        "b'a' == a",
        "... == a",
        "1j * a == 0",
        "1e999 > a",
        "a in b",
        "a in 'abc'",
        "a in (1, 2) in (3,)",
        "await a",
        "yield",
        "a + b",
        "3",
        "'text'",
        "s == 'adam' or 'sgd'",
        "not a + b",
        "min(a, b)",
        "a > 0 \x00",
        "(1, 2) == a",
        "a" * 5000 + " > 0",
        "(" * 300 + "a" + ")" * 300 + " > 0",
        "-" * 900 + "a > 0",
        "not " * 900 + "a",
        "a" + " + a" * 900 + " > 0",
        "a<" * 1100 + "a",
        "9" * 3900 + " > a",
        "[" * 150 + "]" * 150 + " == a",
    ],
)
@pytest.mark.timeout(30)
def test_what_is_no_condition_is_refused_quickly(text: str) -> None:
    with pytest.raises(SpaceError) as error:
        Expression(text)
    assert len(str(error.value)) < 400 or len(text) < 1000


@pytest.mark.parametrize(
    "text",
    [
        "9 ** 9 ** 9 ** 9 > a",
        "((a ** 999) ** 999) ** 999 > a",
        "'x' * 10 ** 12 == 'x'",
        "'%1000000000d' % a == 'x'",
        " * ".join(["(9 ** 300)"] * 90) + " > a",
        "2 ** (0 - 10 ** 300) > a",
    ],
)
@pytest.mark.timeout(30)
def test_huge_numbers_have_no_result_and_end_quickly(text: str) -> None:
    assert Expression(text).evaluate({"a": 7}) in (True, False)


@given(st.text("ab01.+-*/%<>=!()[]{}',\"# \n\\&|^~:@andorinifelse_", max_size=40))
def test_any_text_is_either_refused_or_evaluated(text: str) -> None:
    try:
        expression = Expression(text)
    except SpaceError:
        return
    assert expression.evaluate(dict.fromkeys(expression.names, 3)) in (True, False)
    assert Expression(str(expression)).names == expression.names


def test_bind_keeps_precedence() -> None:
    bound = Expression("a ** 2 == 9 and s == 'x' and b > 0").bind({"a": -3, "s": "x", "unknown": 1})
    assert bound.names == ("b",)
    assert bound.evaluate({"b": 1})
    assert bound.evaluate({}), "a condition without one of its values does not apply"
    assert Expression("max(max, 1) == 5").bind({"max": 5}).evaluate({})


def test_names_with_hyphens() -> None:
    for text, names, written in (
        ("batch-size >= 8 - x", ["batch-size", "x"], "`batch-size` >= 8 - x"),
        ("a-b-c < a-b", ["a-b", "a-b-c"], "`a-b-c` < `a-b`"),
        ("kind == 'a-b'", ["a-b"], "kind == 'a-b'"),
        ("a-b < 3", ["a", "b"], "a-b < 3"),
        (
            "s in ('x a-b y', \"a-b's\") or a-b > 2",
            ["a-b"],
            "s in ('x a-b y', \"a-b's\") or `a-b` > 2",
        ),
        ("lambda + m.class <= 1", ["lambda", "m.class", "m"], "`lambda` + `m.class` <= 1"),
        ("x in (1, 2) and not y", ["in", "not", "x", "y"], "x in (1, 2) and not y"),
    ):
        assert quoted(text, names) == written
    expression = Expression("`batch-size` * steps <= 64 and `model.n-layers.if` > 1")
    assert expression.names == ("batch-size", "steps", "model.n-layers.if")
    assert expression.evaluate({"batch-size": 8, "steps": 8, "model.n-layers.if": 2})
    assert expression.bind({"steps": 2}).evaluate({"batch-size": 32, "model.n-layers.if": 2})
    space = Space(Int("batch-size", 1, 64), Int("lambda", 1, 8), constraints="batch-size >= lambda")
    assert space.constraints[0].names == ("batch-size", "lambda")
    assert Space.from_dict(space.to_dict()).constraints == space.constraints
    for name in ("-a", "a-", "a.-b", "1-a"):
        with pytest.raises(SpaceError, match="with hyphens between them"):
            Int(name, 1, 2)
