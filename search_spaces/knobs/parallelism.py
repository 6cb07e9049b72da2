"""How a model is spread over ranks: only what the hardware has room for and what the workload can be split into."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, is_dataclass
from typing import Any, Final

from search_spaces.errors import SpaceError
from search_spaces.expressions import Expression
from search_spaces.hardware import Hardware
from search_spaces.parameters import Parameter, Value, parameter_from_dict

from ._build import COMPUTES_THE_SAME, build, part
from .base import Declared, Dropped, Knob

BUILT_IN: Final[Mapping[str, Mapping[str, Any]]] = {
    "single": {"min_ranks": 1},
    "ddp": {"min_ranks": 2},
}


@dataclass(frozen=True)
class Needs:
    """What one strategy declares: the keys of an entry of `strategies`, all optional.

    Args:
        summary: what it does, in a line.
        min_ranks, max_ranks: how many ranks it can use; at most 1 for a strategy of one process.
        devices: "cpu", "cuda" or both; backends: of which one must be there; rpc: whether torch needs RPC.
        plan: what the workload must declare, such as "tensor" or "stages".
        constraints: expressions that hold wherever the strategy is chosen, such as "num_heads % ranks == 0".
        parameters: of the strategy's own, as `Parameter.to_dict` writes them; active when it is chosen.
    """

    summary: str = ""
    min_ranks: int = 2
    max_ranks: int | None = None
    devices: tuple[str, ...] = ("cpu", "cuda")
    backends: tuple[str, ...] = ()
    plan: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    parameters: tuple[Mapping[str, Any], ...] = ()
    rpc: bool = False

    @classmethod
    def of(cls, name: str, data: Any) -> Needs:
        """From a mapping or a data class with (some of) these fields; SpaceError where one is unknown."""
        plain = asdict(data) if is_dataclass(data) and not isinstance(data, type) else data
        if not isinstance(plain, Mapping):
            raise SpaceError(
                f"strategy {name!r} is declared by a mapping or a data class, got {plain!r}"
            )
        for key in plain:
            if key not in cls.__dataclass_fields__:
                raise SpaceError(
                    f"strategy {name!r} declares {key!r}; known: {', '.join(cls.__dataclass_fields__)}"
                )
        fields: dict[str, Any] = {
            key: tuple(v) if isinstance(v, list) else v for key, v in plain.items()
        }
        return cls(**fields)


@dataclass(frozen=True)
class _Strategy:
    """One strategy on this machine: the numbers of ranks that it can use, or why there is none."""

    name: str
    needs: Needs
    constraints: tuple[Expression, ...] = ()
    ranks: tuple[int, ...] = ()
    lacks: str = ""


@dataclass
class _Machine:
    """What the strategies are held against."""

    hardware: Hardware
    slots: int
    ranks: tuple[int, ...]
    plan: frozenset[str]
    values: Mapping[str, Value] = field(default_factory=dict)

    def judge(self, name: str, needs: Needs) -> _Strategy:
        bound = tuple(Expression(text).bind(self.values) for text in needs.constraints)
        lacks = self._lacks(needs)
        if lacks:
            return _Strategy(name, needs, lacks=lacks)
        if needs.max_ranks == 1 or needs.min_ranks <= 1:
            return _Strategy(name, needs, bound)
        counts = [n for n in self.ranks if needs.min_ranks <= n <= (needs.max_ranks or n)]
        for constraint in bound:
            if set(constraint.names) <= {"ranks"}:
                kept = [n for n in counts if constraint.evaluate({"ranks": n})]
                if not kept:
                    return _Strategy(
                        name,
                        needs,
                        lacks=f"needs {constraint}, which no number of ranks here satisfies",
                    )
                counts = kept
        if not counts:
            return _Strategy(
                name,
                needs,
                lacks=f"needs at least {needs.min_ranks} ranks; there are {self.slots} slots",
            )
        open_constraints = tuple(c for c in bound if not set(c.names) <= {"ranks"})
        return _Strategy(name, needs, open_constraints, tuple(counts))

    def _lacks(self, needs: Needs) -> str:
        device = self.hardware.device
        if device not in needs.devices:
            return f"runs on {' or '.join(needs.devices)}, this machine trains on {device}"
        missing = [item for item in needs.plan if item not in self.plan]
        if missing:
            return f"needs a workload that declares {' and '.join(missing)}"
        if needs.min_ranks > self.slots:
            return f"needs at least {needs.min_ranks} ranks; there are {self.slots} slots"
        if (
            needs.min_ranks > 1
            and needs.backends
            and not set(needs.backends) & set(self.hardware.backends)
        ):
            return "; ".join(
                str(self.hardware.lacks_backend(backend)) for backend in needs.backends
            )
        if needs.rpc and not self.hardware.rpc:
            return "needs torch built with RPC"
        return ""


class Parallelism(Knob):
    """`parallelism` (a strategy's name), `ranks` (how many processes; not under single), and the strategies' own
    parameters. All strategies compute the same function.

    Options:
        strategies: name to what it needs, see `Needs` (mappings or data classes); single and ddp where it is absent.
        plan: what the workload declares: names, or a mapping or data class whose non-empty fields count.
        values: values of what the workload does not tune, such as {"num_heads": 8}, put into constraints; every
            other name in a constraint must be a parameter of the space.
        slots: worker slots, by default those of the hardware.
        parallelism, ranks: adjust these parameters (see `Knob`); numbers of ranks are by default the powers of two
            up to the slots, and the slots.
    """

    name = "parallelism"
    summary = "parallelism strategy and number of ranks"
    keys = ("strategies", "plan", "values", "slots", "parallelism", "ranks")

    def declare(self, hardware: Hardware, options: Mapping[str, Any]) -> Declared:
        """See `Knob.declare`."""
        strategies = {
            name: Needs.of(name, data) for name, data in options.get("strategies", BUILT_IN).items()
        }
        machine, dropped = _machine(hardware, options)
        wanted = _wanted(options, strategies)
        judged = {name: machine.judge(name, strategies[name]) for name in wanted}
        reasons: dict[Value, str] = {name: s.lacks for name, s in judged.items() if s.lacks}
        kept, gone = part(self.name, "parallelism", list(wanted), reasons)
        usable = [judged[str(name)] for name in kept]
        parallelism = build(
            "parallelism",
            _with_choices(options, "parallelism", kept),
            choices=kept,
            default="single" if "single" in kept else kept[0],
            affects=COMPUTES_THE_SAME,
        )
        if parallelism is None:
            return Declared()
        parameters = [parallelism, *_ranks(options, usable), *_own(usable)]
        return Declared(parameters, [*gone, *dropped], _constraints(usable))


def _wanted(options: Mapping[str, Any], strategies: Mapping[str, Needs]) -> list[str]:
    given = options.get("parallelism", True)
    given = given.get("choices", True) if isinstance(given, Mapping) else given
    wanted = list(given) if isinstance(given, list | tuple) else list(strategies)
    for name in wanted:
        if name not in strategies:
            raise SpaceError(f"parallelism is one of {', '.join(strategies)}; got {name!r}")
    # `single` first, so that it is the plain end of every list.
    return sorted(wanted, key=lambda name: name != "single")


def _machine(hardware: Hardware, options: Mapping[str, Any]) -> tuple[_Machine, list[Dropped]]:
    slots = int(options.get("slots") or hardware.num_slots)
    given = options.get("ranks", True)
    given = given.get("choices", True) if isinstance(given, Mapping) else given
    counts = list(given) if isinstance(given, list | tuple) else _powers_of_two(slots)
    dropped = [Dropped("ranks", n, f"there are {slots} slots") for n in counts if n > slots]
    ranks = tuple(n for n in counts if n <= slots)
    return _Machine(
        hardware, slots, ranks, _offers(options.get("plan", ())), options.get("values", {})
    ), dropped


def _powers_of_two(slots: int) -> list[int]:
    return sorted(
        {
            *(2**i for i in range(1, slots.bit_length()) if 2**i <= slots),
            *([slots] if slots > 1 else []),
        }
    )


def _offers(plan: Any) -> frozenset[str]:
    if is_dataclass(plan) and not isinstance(plan, type):
        plan = asdict(plan)
    if isinstance(plan, Mapping):
        return frozenset(key for key, value in plan.items() if value)
    return frozenset(plan if isinstance(plan, Iterable) else ())


def _with_choices(options: Mapping[str, Any], name: str, kept: list[Value]) -> dict[str, Any]:
    given = options.get(name, True)
    if given is False or given is None:
        return {name: False}
    return {name: {**(given if isinstance(given, Mapping) else {}), "choices": kept}}


def _ranks(options: Mapping[str, Any], usable: list[_Strategy]) -> list[Parameter]:
    parallel = [s.name for s in usable if s.ranks]
    counts: list[Value] = sorted({n for s in usable for n in s.ranks})
    if not counts or options.get("ranks", True) in (False, None):
        return []
    adjusted = _with_choices(options, "ranks", counts)
    when = {"parallelism": parallel}
    ranks = build(
        "ranks",
        adjusted,
        choices=counts,
        ordered=True,
        default=counts[0],
        when=when,
        affects=COMPUTES_THE_SAME,
    )
    return [ranks] if ranks is not None else []


def _own(usable: list[_Strategy]) -> list[Parameter]:
    """The strategies' own parameters; one that several declare alike is active under each of them."""
    declared: dict[str, dict[str, Any]] = {}
    for strategy in usable:
        for data in strategy.needs.parameters:
            entry = {"affects": sorted(COMPUTES_THE_SAME), **data}
            when = dict(entry.pop("when", None) or {})
            seen = declared.setdefault(
                entry["name"], {**entry, "when": {**when, "parallelism": []}}
            )
            if {k: v for k, v in seen.items() if k != "when"} != entry:
                raise SpaceError(
                    f"strategies declare {entry['name']!r} differently; {strategy.name!r} says {data!r}"
                )
            seen["when"]["parallelism"].append(strategy.name)
    return [parameter_from_dict(data) for data in declared.values()]


def _constraints(usable: list[_Strategy]) -> list[str]:
    counts = {n for s in usable for n in s.ranks}
    texts = []
    for strategy in usable:
        if strategy.ranks and set(strategy.ranks) != counts:
            texts.append(
                f"parallelism != {strategy.name!r} or ranks in ({', '.join(map(str, strategy.ranks))},)"
            )
        texts += [
            f"parallelism != {strategy.name!r} or ({constraint})"
            for constraint in strategy.constraints
        ]
    return texts


__all__ = ["Parallelism"]
