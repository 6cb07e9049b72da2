"""Cutting a row of layers into stages of balanced cost."""

from collections.abc import Sequence

from search_spaces.errors import UsageError


def balanced(costs: Sequence[float], num_stages: int) -> list[range]:
    """The contiguous parts, none empty, whose largest cost is as small as possible.

    Args:
        costs: of each layer, in order of execution, such as its number of parameters.
        num_stages: the number of parts.

    Raises:
        UsageError: there are fewer layers than stages.
    """
    if not 1 <= num_stages <= len(costs):
        raise UsageError(f"{len(costs)} layers cannot be cut into {num_stages} stages")
    # best[k, n]: (largest cost, first layer of the last part) of the first n layers in k parts
    best = {(1, n): (sum(costs[:n]), 0) for n in range(1, len(costs) + 1)}
    for parts in range(2, num_stages + 1):
        for n in range(parts, len(costs) + 1):
            cuts = (
                (max(best[parts - 1, cut][0], sum(costs[cut:n])), cut)
                for cut in range(parts - 1, n)
            )
            best[parts, n] = min(cuts)
    stages: list[range] = []
    end = len(costs)
    for parts in range(num_stages, 0, -1):
        begin = best[parts, end][1]
        stages.insert(0, range(begin, end))
        end = begin
    return stages
