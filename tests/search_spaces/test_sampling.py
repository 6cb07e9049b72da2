from __future__ import annotations

import numpy as np
import pytest
from drawn import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from search_spaces import Choice, Float, Int, Space, SpaceError

TIGHT = {
    "a corner": Space(
        *[Float(f"x{i}", 0, 1) for i in range(10)],
        constraints=["+".join(f"x{i}" for i in range(10)) + "<= 0.5"],
    ),
    "shares": Space(*[Float(n, 0, 1) for n in "abc"], constraints=["a + b + c == 1"]),
    "discrete and real": Space(
        Int("n", 1, 64),
        Int("m", 1, 64),
        Float("x", 0, 1),
        constraints=["n * m == 64", "x * n < 0.1"],
    ),
    "an equation": Space(*[Int(n, 0, 1000) for n in "abc"], constraints=["a + b + c == 1500"]),
    "a line": Space(Int("a", 0, 10**6), Int("b", 0, 10**6), constraints=["a == 2 * b + 1"]),
    "a product": Space(
        *[Choice(f"c{i}", [1, 2, 4, 8, 16, 32], ordered=True) for i in range(6)],
        constraints=["*".join(f"c{i}" for i in range(6)) + "== 64"],
    ),
    "one point": Space(
        *[Choice(n, list(range(9))) for n in "abcdef"],
        constraints=["a * b * c * d * e * f == 8 ** 6"],
    ),
    "strings": Space(
        Choice("p", list("abcdefgh")),
        Choice("q", list("hgfedcba")),
        Int("n", 1, 999),
        constraints=["p == q", "p in ('a', 'b')", "not (n % 100 != 0 or p == 'a')"],
    ),
    "many pairs": Space(
        *[Float(f"x{i}", 0, 1) for i in range(40)],
        constraints=[f"x{2 * i} < x{2 * i + 1} / 3" for i in range(20)],
    ),
    "a deep child": Space(
        Choice("p", ["x"]),
        Choice("q", [0, 1], when={"p": "x"}),
        Float("a", 0, 1, when={"q": 1}),
        Float("b", 0, 1),
        constraints=["a < b / 1000", "q == 1 or b > 2"],
    ),
    "a strict edge": Space(
        Float("a", 0, 1), Float("b", 1e-6, 1, log=True), constraints=["a > 0.999", "b < 1.5e-6"]
    ),
    "alternatives": Space(
        Float("a", 0, 1),
        Float("b", 0, 1),
        constraints=["a < 1e-3 and b > 0.999 or a > 0.999 and b < 1e-3"],
    ),
}


@pytest.mark.parametrize("name", TIGHT)
def test_tight_constraints_are_met(name: str) -> None:
    """By samples, which depend on the generator alone, by neighbours, and by what is repaired."""
    space, fresh = TIGHT[name], Space.from_dict(TIGHT[name].to_dict())
    configurations = space.sample(np.random.default_rng(1), 200)
    fresh.sample(np.random.default_rng(7), 3)
    assert fresh.sample(np.random.default_rng(1), 200) == configurations
    keys = {space.key(params) for params in configurations}
    assert len(keys) > {"one point": 0, "strings": 5}.get(name, 100)
    params, rng = configurations[0], np.random.default_rng(2)
    near = space.neighbours(params, rng, 20)
    assert {"one point": 0, "strings": 1}.get(name, 5) <= len(near) <= 20
    assert len({space.key(other) for other in (params, *near)}) == len(near) + 1
    assert space.repair(params, rng) == params
    decoded = space.decode(rng.random((3, len(space))))
    for legal in [*configurations, *near, *(space.repair(other, rng) for other in decoded)]:
        space.accept(legal)


def test_without_constraints_neighbours_change_one_or_two_parameters() -> None:
    space = Space(
        Float("x0", 0, 1),
        *[Float(f"x{i}", 1e-5, 1, log=True) for i in (1, 2)],
        *[Choice(f"c{i}", ["a", "b", "c"]) for i in range(3)],
    )
    rng = np.random.default_rng(0)
    params = space.sample(rng)[0]
    found = space.neighbours(params, rng, 200)
    changes = [sum(other[name] != params[name] for name in params) for other in found]
    assert len(found) == 200
    assert set(changes) == {1, 2}
    steps = [abs(other["x0"] - params["x0"]) for other in found if other["x0"] != params["x0"]]
    assert 0 < np.median(steps) < 0.2


def test_neighbours_across_a_condition_draw_the_subtree() -> None:
    space = Space(
        Choice("kind", ["a", "b"]),
        Float("x", 0, 1, when={"kind": "b"}),
        Int("n", 1, 9, when={"kind": "b"}),
    )
    found = space.neighbours({"kind": "a"}, np.random.default_rng(0), 30)
    assert len(found) == 30
    assert {params["kind"] for params in found} == {"b"}
    assert len({params["n"] for params in found}) > 4


@pytest.mark.parametrize(
    "space",
    [
        Space(Choice("a", [1, 2]), Choice("b", [1, 2]), constraints=["a + b == 7"]),
        Space(Float("a", 0, 1), Float("b", 0, 1), constraints=["a + b > 7"]),
        Space(Float("a", 0, 1), constraints=["1 / (a - a) > 0"]),
        Space(Float("x", 0, 1), Int("n", 0, 10**9), constraints=["n * n == 2"]),
    ],
)
def test_contradictions_are_said(space: Space) -> None:
    with pytest.raises(SpaceError, match=r"no configuration.* satisf.*; relax one"):
        space.sample(np.random.default_rng(0))


@pytest.mark.parametrize(("count", "most"), [(2, 1.0), (4, 0.2)])
def test_samples_are_uniform_on_the_legal_part(count: int, most: float) -> None:
    """By rejection, and if it is small, by slices."""
    names = "abcd"[:count]
    space = Space(*[Float(n, 0, 1) for n in names], constraints=[f"{'+'.join(names)} <= {most}"])
    points = np.array([[*p.values()] for p in space.sample(np.random.default_rng(0), 4000)])
    expected = np.full(count, most / (count + 1))
    assert points.mean(axis=0) == pytest.approx(expected, abs=0.02 * most)


def test_enumeration_weighs_by_volume() -> None:
    digits = [Choice(n, list(range(10))) for n in "abc"]
    space = Space(
        *digits, Int("n", 1, 100, log=True), constraints=["a == b == c == 3", "n <= 10 and a > 0"]
    )
    drawn = [params["n"] for params in space.sample(np.random.default_rng(0), 4000)]
    expected = np.log(1.5 / 0.5) / np.log(10.5 / 0.5)
    assert drawn.count(1) / 4000 == pytest.approx(expected, abs=0.03)


COMPARISONS = st.sampled_from(["<", "<=", ">", ">=", "==", "!="])


@st.composite
def constrained(draw: st.DrawFn) -> Space:
    """A space with one to three constraints, which may contradict each other."""
    plain = draw(spaces(max_size=5))
    numeric = [
        n
        for n, p in plain.parameters.items()
        if not isinstance(p, Choice) or all(isinstance(c, bool | int | float) for c in p.choices)
    ]
    texts = []
    for _ in range(draw(st.integers(1, 3)) if numeric else 0):
        a, b = draw(st.sampled_from(numeric)), draw(st.sampled_from(numeric))
        op, number = draw(COMPARISONS), draw(st.integers(-5, 5))
        form = draw(
            st.sampled_from(
                [
                    "{a} {op} {b}",
                    "{a} + {b} {op} {n}",
                    "not {a} * {b} {op} {n} or {a} < 1",
                    "{a} % 3 {op} {n}",
                ]
            )
        )
        texts.append(form.format(a=a, b=b, op=op, n=number))
    return Space(*plain.parameters.values(), constraints=texts)


@settings(max_examples=60, deadline=None)
@given(constrained(), st.integers(0, 99))
def test_constrained_samples_are_legal_or_refused(space: Space, seed: int) -> None:
    rng = np.random.default_rng(seed)
    try:
        configurations = space.sample(rng, 10)
    except SpaceError:
        with pytest.raises(SpaceError, match="relax one"):
            space.sample(rng, 10)
        return
    for params in configurations + space.neighbours(configurations[0], rng, 5):
        space.accept(params)
