"""The search space: its definition, and sampling, neighbours and repair of configurations."""

from functools import cached_property
from typing import NoReturn

import numpy as np

from .definition import Config, SpaceDefinition
from .other_tools import no_attribute
from .parameters import Params
from .sampling import Sampler, connected_parts, neighbours, repaired

__all__ = ["Config", "Space"]


class Space(SpaceDefinition):
    """A search space. Immutable; can be pickled, compared and written as JSON.

    Args:
        parameters: in any order; a parent may come after its children.
        constraints: texts (or `Expression`s) that a configuration must satisfy. A constraint does
            not apply if one of its parameters is inactive.

    Raises:
        SpaceError: two names are equal, a condition uses an unknown parent or an illegal value,
            conditions form a cycle, or a constraint is malformed or names an unknown parameter.

    Attributes:
        parameters: by name, parents before children, otherwise in the given order; column j of the
            coordinates is parameter j.
        constraints: parsed; `str(constraint)` is the text.
        names: of all parameters, as a set.

    Example:
        >>> space = Space(
        ...     Choice("optimizer", ["sgd", "adam"]),
        ...     Float("momentum", 0.0, 0.99, when={"optimizer": "sgd"}),
        ... )
        >>> space.active({"optimizer": "adam"})
        ('optimizer',)
    """

    def __getattr__(self, name: str) -> NoReturn:
        no_attribute(self, name)

    def sample(self, rng: np.random.Generator, count: int = 1) -> list[Config]:
        """`count` legal configurations, uniform in the unit cube given conditions and constraints.

        Points that rejection misses are enumerated, or found near a corner and then moved by slice
        sampling; then neighbours in the list may be similar.

        Raises:
            SpaceError: no configuration that satisfies the constraints was found.
        """
        units = rng.random((count, len(self)))
        for sampler in self._samplers:
            units[:, sampler.columns] = sampler.draw(rng, count)
        return self.decode(units)

    @cached_property
    def _samplers(self) -> list[Sampler]:
        return [Sampler(self, part) for part in connected_parts(self)]

    def neighbours(self, params: Params, rng: np.random.Generator, count: int = 1) -> list[Config]:
        """Up to `count` different legal configurations, one or two changes away from a legal one.

        A change swaps a discrete value, moves a number, or, for a parent, draws the parameters that
        it activates. If constraints prevent that, further parameters change until they hold. The
        list is shorter than `count` only if few neighbours were found.
        """
        return neighbours(self, self._samplers, dict(params), rng, count)

    def repair(self, params: Params, rng: np.random.Generator) -> Config:
        """A legal configuration near one that may violate constraints.

        Inactive parameters are removed; missing active ones get their default or middle.

        Raises:
            SpaceError: a value is illegal, or no configuration satisfies the constraints.
        """
        given = {n: p.accept(params[n]) for n, p in self.parameters.items() if n in params}
        found = self.complete(given)
        if self.satisfied(found):
            return found
        return repaired(self, self._samplers, found, rng) or self.sample(rng)[0]
