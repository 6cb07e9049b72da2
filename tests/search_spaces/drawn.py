"""Hypothesis strategies for spaces of every kind."""

from __future__ import annotations

from hypothesis import strategies as st

from search_spaces import Choice, Float, Int, Parameter, Space

AFFECTS = st.sets(st.sampled_from(["quality", "speed", "memory"]), min_size=1)
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 3), st.floats(-2, 2), st.text("abc", max_size=2)
)
LITERALS = SCALARS | st.lists(SCALARS, max_size=2).map(tuple)


@st.composite
def floats(draw: st.DrawFn, name: str, **common: object) -> Float:
    log = draw(st.booleans())
    numbers = st.floats(1e-300, 1e300) if log else st.floats(-1e308, 1e308)
    low, high = sorted(number + 0.0 for number in draw(st.tuples(numbers, numbers)))  # no -0.0
    if not log and draw(st.booleans()):
        whole = draw(st.integers(-1000, 1000)) / draw(st.sampled_from([1, 10, 64]))
        step = draw(st.sampled_from([0.1, 0.25, 0.3, 1.0, 7.0]))
        wide = Float(name, whole, whole + draw(st.floats(0, 100)), step=step)
        default = draw(st.none() | st.sampled_from(wide.values()))
        return Float(name, wide.low, wide.high, step=step, default=default, **common)  # type: ignore[arg-type]
    default = draw(st.none() | st.floats(low, high))
    return Float(name, low, high, log=log, default=default, **common)  # type: ignore[arg-type]


@st.composite
def ints(draw: st.DrawFn, name: str, **common: object) -> Int:
    log = draw(st.booleans())
    numbers = st.one_of(
        st.integers(1 if log else -20, 20), st.integers(1 if log else -(2**52), 2**52)
    )
    low, high = sorted(draw(st.tuples(numbers, numbers)))
    step = 1 if log else draw(st.sampled_from([1, 1, 2, 5, 2**40]))
    cells = st.integers(0, (high - low) // step)
    default = draw(st.none() | cells.map(lambda cell: low + step * cell))
    return Int(name, low, high, log=log, step=step, default=default, **common)  # type: ignore[arg-type]


@st.composite
def choices(draw: st.DrawFn, name: str, **common: object) -> Choice:
    values = draw(st.lists(LITERALS, min_size=1, max_size=5, unique_by=lambda v: v))
    default = draw(st.none() | st.sampled_from(values))
    return Choice(name, values, ordered=draw(st.booleans()), default=default, **common)  # type: ignore[arg-type]


def parameters(name: str, **common: object) -> st.SearchStrategy[Parameter]:
    return st.one_of(floats(name, **common), ints(name, **common), choices(name, **common))


@st.composite
def spaces(draw: st.DrawFn, max_size: int = 6) -> Space:
    """Parameters of every kind with nested conditions, in any order, without constraints."""
    found: list[Parameter] = []
    for i in range(draw(st.integers(1, max_size))):
        when = {}
        parents = [p for p in found if not isinstance(p, Float)]
        for parent in (
            draw(st.lists(st.sampled_from(parents), max_size=2, unique_by=id)) if parents else []
        ):
            units = draw(st.lists(st.floats(0, 1), min_size=1, max_size=3))
            when[parent.name] = [parent.from_unit(unit) for unit in units]
        found.append(draw(parameters(f"p{i}", when=when, affects=draw(AFFECTS))))
    return Space(*draw(st.permutations(found)))
