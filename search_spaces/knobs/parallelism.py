"""How a model is spread over ranks, as far as the hardware and the workload allow it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, is_dataclass
from typing import Any, Final, cast

from search_spaces.errors import SpaceError
from search_spaces.expressions import Expression
from search_spaces.hardware import Hardware
from search_spaces.parameters import Parameter, Value, parameter_from_dict

from .base import COMPUTES_THE_SAME, ON_REQUEST, DroppedValue, Knob, KnobSpace, Option, present

PARALLELISM = Option(
    "parallelism",
    "strategy that spreads the model over ranks",
    "single",
    needed=True,
    affects=COMPUTES_THE_SAME,
)
RANKS = Option(
    "ranks",
    "processes of a trial; 1 under single",
    2,
    ordered=True,
    affects=COMPUTES_THE_SAME,
)
BUILT_IN: Final[Mapping[str, Mapping[str, Any]]] = {
    "single": {"min_ranks": 1},
    "ddp": {"backends": ()},
}


@dataclass(frozen=True)
class StrategyNeeds:
    """When a strategy can be used.

    Args:
        summary: what the strategy does, in a line.
        min_ranks, max_ranks: how many ranks it can use; at most 1 for a strategy of one process.
        devices: "cpu", "cuda" or both.
        backends: of `torch.distributed`, at least one of which must be there; empty for any.
        plan: fields of the workload's `ParallelPlan` that must not be empty.
        constraints: expressions over parameters, such as "num_heads % ranks == 0", that hold if the
            strategy is chosen.
        parameters: the strategy's own, as `Parameter.to_dict` writes them; active if it is chosen.
        on_request: further values of these, by name, that are tuned only if a configuration names
            them.
        rpc: whether torch must have been built with RPC.
    """

    summary: str = ""
    min_ranks: int = 2
    max_ranks: int | None = None
    devices: tuple[str, ...] = ("cpu", "cuda")
    backends: tuple[str, ...] = ("gloo", "nccl", "mpi")
    plan: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    parameters: tuple[Mapping[str, Any], ...] = ()
    on_request: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    rpc: bool = False

    @classmethod
    def of(cls, name: str, data: Any) -> StrategyNeeds:
        """The needs from a mapping or a data class with some of these fields.

        Raises:
            SpaceError: `data` is neither, or has an unknown field.
        """
        plain = asdict(data) if is_dataclass(data) and not isinstance(data, type) else data
        if not isinstance(plain, Mapping):
            raise SpaceError(
                f"strategy {name!r} is declared by a mapping or a data class, got {plain!r}"
            )
        for key in plain:
            if key not in cls.__dataclass_fields__:
                known = ", ".join(cls.__dataclass_fields__)
                raise SpaceError(f"strategy {name!r} declares {key!r}; known: {known}")
        fields: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in plain.items()
        }
        return cls(**fields)


class ParallelismKnob(Knob):
    """The strategy, the number of ranks, and the strategies' own parameters.

    All strategies compute the same function. By default, `ranks` has the powers of two up to the
    slots, and the slots.

    Adjustments:
        strategies: name to `StrategyNeeds` (mappings or data classes); single and ddp by default.
        plan: what the workload declares: names, or a mapping or data class whose non-empty fields
            count.
        values: values of options that the workload does not tune, such as {"num_heads": 8}, for the
            constraints; every other name in a constraint must be a parameter of the space.
        slots: worker slots; by default those of the hardware.
    """

    name = "parallelism"
    summary = "parallelism strategy and number of ranks"
    options = (PARALLELISM, RANKS)
    keys = ("strategies", "plan", "values", "slots")

    def declare(self, hardware: Hardware, adjustments: Mapping[str, Any]) -> KnobSpace:
        """See `Knob.declare`."""
        strategies = {
            name: StrategyNeeds.of(name, data)
            for name, data in adjustments.get("strategies", BUILT_IN).items()
        }
        machine, too_many = _machine(hardware, adjustments)
        wanted = _wanted(adjustments, strategies)
        assessed = {name: machine.assess(name, strategies[name]) for name in wanted}
        reasons = {name: one.lacks for name, one in assessed.items() if one.lacks}
        kept, dropped = PARALLELISM.split(wanted, reasons)
        default = "single" if "single" in kept else kept[0]
        parallelism = PARALLELISM.build(adjustments, kept, default=default)
        if parallelism is None:
            return KnobSpace()
        usable = [assessed[str(name)] for name in kept]
        parameters = [parallelism, *_ranks(adjustments, usable), *_own(usable)]
        named = {
            DroppedValue(name, value, ON_REQUEST): None
            for strategy in usable
            for name, values in strategy.needs.on_request.items()
            for value in values
        }
        return KnobSpace(parameters, [*dropped, *too_many, *named], _constraints(usable))


@dataclass(frozen=True)
class _Strategy:
    """One strategy on this machine: the numbers of ranks that it can use, or why there is none."""

    name: str
    needs: StrategyNeeds
    constraints: tuple[Expression, ...] = ()
    ranks: tuple[int, ...] = ()
    lacks: str = ""


@dataclass
class _Machine:
    """The hardware, the slots and the workload on which strategies are to run."""

    hardware: Hardware
    slots: int
    ranks: tuple[int, ...]
    plan: frozenset[str]
    values: Mapping[str, Value] = field(default_factory=dict)

    def assess(self, name: str, needs: StrategyNeeds) -> _Strategy:
        """Whether the strategy can run here, and on how many ranks."""
        bound = tuple(Expression(text).bind(self.values) for text in needs.constraints)
        lacks = self._lacks(needs)
        if lacks:
            return _Strategy(name, needs, lacks=lacks)
        if needs.max_ranks == 1 or needs.min_ranks <= 1:
            return _Strategy(name, needs, bound)
        counts = [n for n in self.ranks if needs.min_ranks <= n <= (needs.max_ranks or n)]
        for constraint in bound:
            if set(constraint.names) <= {"ranks"}:
                counts = [n for n in counts if constraint.evaluate({"ranks": n})]
                if not counts:
                    lacks = f"needs {constraint}, which no number of ranks here satisfies"
                    return _Strategy(name, needs, lacks=lacks)
        if not counts:
            return _Strategy(name, needs, lacks=self._too_few_slots(needs))
        unbound = tuple(c for c in bound if not set(c.names) <= {"ranks"})
        return _Strategy(name, needs, unbound, tuple(counts))

    def _lacks(self, needs: StrategyNeeds) -> str:
        hardware = self.hardware
        if hardware.device not in needs.devices:
            devices = " or ".join(needs.devices)
            return f"runs on {devices}, this machine trains on {hardware.device}"
        missing = [item for item in needs.plan if item not in self.plan]
        if missing:
            return f"needs a workload that declares {' and '.join(missing)}"
        if needs.min_ranks > self.slots:
            return self._too_few_slots(needs)
        has_backend = not needs.backends or set(needs.backends) & set(hardware.backends)
        if needs.min_ranks > 1 and not has_backend:
            return "; ".join(str(hardware.lacks_backend(backend)) for backend in needs.backends)
        if needs.rpc and not hardware.rpc:
            return "needs torch built with RPC"
        return ""

    def _too_few_slots(self, needs: StrategyNeeds) -> str:
        return f"needs at least {needs.min_ranks} ranks; there are {self.slots} slots"


def _wanted(adjustments: Mapping[str, Any], strategies: Mapping[str, StrategyNeeds]) -> list[str]:
    wanted: list[Any] = PARALLELISM.wanted(adjustments, list(strategies))
    for name in wanted:
        if name not in strategies:
            raise SpaceError(f"parallelism is one of {', '.join(strategies)}; got {name!r}")
    return sorted(wanted, key=lambda name: name != "single")


def _machine(
    hardware: Hardware, adjustments: Mapping[str, Any]
) -> tuple[_Machine, list[DroppedValue]]:
    slots = int(adjustments.get("slots") or hardware.num_slots)
    counts: list[Any] = RANKS.wanted(adjustments, _powers_of_two(slots))
    reasons = {n: f"there are {slots} slots" for n in counts if n > slots}
    ranks, dropped = RANKS.split(counts, reasons)
    plan = _declared(adjustments.get("plan", ()))
    values = adjustments.get("values", {})
    return _Machine(hardware, slots, tuple(cast(list[int], ranks)), plan, values), dropped


def _powers_of_two(slots: int) -> list[int]:
    powers = {2**i for i in range(1, slots.bit_length())}
    return sorted(powers | {slots} if slots > 1 else powers)


def _declared(plan: Any) -> frozenset[str]:
    if is_dataclass(plan) and not isinstance(plan, type):
        plan = asdict(plan)
    if isinstance(plan, Mapping):
        return frozenset(key for key, value in plan.items() if value)
    return frozenset(plan if isinstance(plan, Iterable) else ())


def _ranks(adjustments: Mapping[str, Any], usable: list[_Strategy]) -> list[Parameter]:
    counts: list[Any] = sorted({n for strategy in usable for n in strategy.ranks})
    if not counts:
        return []
    when = {PARALLELISM.name: [strategy.name for strategy in usable if strategy.ranks]}
    return present([RANKS.build(adjustments, counts, default=counts[0], when=when)])


def _own(usable: list[_Strategy]) -> list[Parameter]:
    """The strategies' own parameters; one that several declare alike is active under each."""
    declared: dict[str, dict[str, Any]] = {}
    for strategy in usable:
        for data in strategy.needs.parameters:
            entry = {"affects": sorted(COMPUTES_THE_SAME), **data}
            when = dict(entry.pop("when", None) or {})
            seen = declared.setdefault(
                entry["name"], {**entry, "when": {**when, PARALLELISM.name: []}}
            )
            if {key: value for key, value in seen.items() if key != "when"} != entry:
                raise SpaceError(
                    f"strategies declare {entry['name']!r} differently; "
                    f"{strategy.name!r} says {data!r}"
                )
            seen["when"][PARALLELISM.name].append(strategy.name)
    return [parameter_from_dict(data) for data in declared.values()]


def _constraints(usable: list[_Strategy]) -> list[str]:
    counts = {n for strategy in usable for n in strategy.ranks}
    texts = []
    for strategy in usable:
        other = f"parallelism != {strategy.name!r}"
        if strategy.ranks and set(strategy.ranks) != counts:
            texts.append(f"{other} or ranks in ({', '.join(map(str, strategy.ranks))},)")
        texts += [f"{other} or ({constraint})" for constraint in strategy.constraints]
    return texts
