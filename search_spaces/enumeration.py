"""Enumeration of every legal configuration of a small discrete space."""

from typing import Final

from .definition import Config, SpaceDefinition
from .expressions import Expression
from .parameters import Parameter

Weighted = list[tuple[Config, float]]

MAX_ENUMERATED: Final = 20_000


def enumerate_legal(space: SpaceDefinition) -> Weighted | None:
    """Every legal configuration with its volume in the unit cube.

    Built parameter by parameter; a configuration is dropped as soon as a constraint fails.

    Returns:
        None if there are more than `MAX_ENUMERATED` configurations, or infinitely many.
    """
    order = {name: j for j, name in enumerate(space.parameters)}
    decided_by: dict[str, list[Expression]] = {name: [] for name in order}
    for constraint in space.constraints:
        decided_by[max(constraint.names, key=order.__getitem__)].append(constraint)
    found: Weighted | None = [({}, 1.0)]
    for name, parameter in space.parameters.items():
        if found is None or parameter.size is None or parameter.size > MAX_ENUMERATED:
            return None
        found = _longer(space, found, parameter, decided_by[name])
    return found


def _longer(
    space: SpaceDefinition, found: Weighted, parameter: Parameter, constraints: list[Expression]
) -> Weighted | None:
    values = parameter.values()
    weighted = list(zip(values, parameter.weights(values).tolist(), strict=True))
    longer: Weighted = []
    for params, weight in found:
        if any(
            parent not in params or params[parent] not in allowed
            for parent, allowed in parameter.when.items()
        ):
            longer.append((params, weight))
            continue
        for value, width in weighted:
            candidate = {**params, parameter.name: value}
            if all(space.holds(constraint, candidate) for constraint in constraints):
                longer.append((candidate, weight * width))
        if len(longer) > MAX_ENUMERATED:
            return None
    return longer
