"""How a model is spread over ranks, as far as the hardware and the workload allow it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from search_spaces.expressions import Expression
from search_spaces.hardware import Hardware
from search_spaces.parameters import Parameter, Value, parameter_from_dict
from search_spaces.values import check

from .base import COMPUTES_THE_SAME, ON_REQUEST, DroppedValue, Knob, KnobSpace, Option

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
    backends: tuple[str, ...] = ("gloo", "nccl", "mpi")
    plan: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    parameters: tuple[Mapping[str, Any], ...] = ()
    on_request: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    rpc: bool = False


class ParallelismKnob(Knob):
    """The strategy, the number of ranks, and the strategies' own parameters.

    All strategies compute the same function. By default, `ranks` has the powers of two up to the
    slots, and the slots.

    Adjustments:
        strategies: name to the fields of `StrategyNeeds`; single and ddp by default.
        plan: names of what the workload declares.
        values: values of options that the workload does not tune, such as {"num_heads": 8}, for the
            constraints; every other name in a constraint must be a parameter of the space.
        slots: worker slots; by default those of the hardware.
    """

    name = "parallelism"
    summary = "parallelism strategy and number of ranks"
    options = (PARALLELISM, RANKS)
    keys = ("strategies", "plan", "values", "slots")

    def declare(self, hardware: Hardware, adjustments: Mapping[str, Any]) -> KnobSpace:
        given = adjustments.get("strategies", BUILT_IN)
        known = {name: _Strategy(name, StrategyNeeds(**needs)) for name, needs in given.items()}
        slots = int(adjustments.get("slots") or hardware.num_slots)
        strategy = replace(PARALLELISM, choices=tuple(known)).adjusted(adjustments)
        if strategy is None:
            return KnobSpace()
        powers = {2**i for i in range(1, slots.bit_length())}
        counts = replace(RANKS, choices=tuple(sorted({*powers, slots} - {1})))
        count = counts.adjusted(adjustments) or counts
        too_many = {n: f"there are {slots} slots" for n in count.choices if n > slots}
        ranks, dropped = count.split(too_many)
        single_first = sorted(strategy.choices, key=lambda name: name != "single")
        strategy = replace(strategy, choices=tuple(single_first))
        reasons: dict[Any, str] = {}
        for name in strategy.choices:
            check(name in known, f"parallelism is one of {', '.join(known)}; got {name!r}")
            lacks = known[name].lacks(hardware, slots, adjustments.get("plan", ()))
            lacks = lacks or known[name].fit(ranks, slots, adjustments.get("values", {}))
            reasons |= {name: lacks} if lacks else {}
        kept, unusable = strategy.split(reasons)
        usable = [known[name] for name in kept]
        parameters = [replace(strategy, choices=kept).build(), *_own(usable)]
        shared = tuple(sorted({n for one in usable for n in one.ranks}))
        if shared and adjustments.get(RANKS.name, True):
            when = {PARALLELISM.name: [one.name for one in usable if one.ranks]}
            parameters.insert(1, replace(count, choices=shared).build(when))
        named = {
            DroppedValue(name, value, ON_REQUEST): None
            for strategy in usable
            for name, values in strategy.needs.on_request.items()
            for value in values
        }
        return KnobSpace(parameters, [*unusable, *dropped, *named], _constraints(usable))


@dataclass
class _Strategy:
    """A strategy, the numbers of ranks that it can use here, and the constraints that are left."""

    name: str
    needs: StrategyNeeds
    ranks: list[Any] = field(default_factory=list)
    constraints: list[Expression] = field(default_factory=list)

    def lacks(self, hardware: Hardware, slots: int, plan: Collection[str]) -> str:
        """What the hardware or the workload lacks for the strategy; "" if nothing."""
        needs = self.needs
        if missing := [item for item in needs.plan if item not in plan]:
            return f"needs a workload that declares {' and '.join(missing)}"
        has_backend = not needs.backends or set(needs.backends) & set(hardware.backends)
        if slots >= needs.min_ranks > 1 and not has_backend:
            return "; ".join(map(hardware.lacks, needs.backends))
        return "needs torch built with RPC" if needs.rpc and not hardware.rpc else ""

    def fit(self, ranks: Sequence[Any], slots: int, values: Mapping[str, Value]) -> str:
        """Find `ranks` and `constraints`; returns why no number of ranks is possible, or ""."""
        low, high = self.needs.min_ranks, self.needs.max_ranks
        self.constraints = [Expression(text).bind(values) for text in self.needs.constraints]
        if high == 1 or low <= 1:
            return ""
        self.ranks = [n for n in ranks if low <= n <= (high or n)]
        if not self.ranks:
            return f"needs at least {low} ranks; there are {slots} slots"
        for rule in [c for c in self.constraints if set(c.names) <= {"ranks"}]:
            self.constraints.remove(rule)
            self.ranks = [n for n in self.ranks if rule.evaluate({"ranks": n})]
            if not self.ranks:
                return f"needs {rule}, which no number of ranks here satisfies"
        return ""


def _own(usable: list[_Strategy]) -> list[Parameter]:
    """The strategies' own parameters; one that several declare is active under each."""
    declared: dict[str, dict[str, Any]] = {}
    for strategy in usable:
        for data in strategy.needs.parameters:
            entry = declared.setdefault(
                data["name"],
                {"affects": COMPUTES_THE_SAME, **data, "when": {**data.get("when", {})}},
            )
            entry["when"].setdefault(PARALLELISM.name, []).append(strategy.name)
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
