"""The promises of every knob.

A plugin runs them with `pytest --automl-conformance`: each knob of an entry point is tested on
three kinds of hardware.
"""

from __future__ import annotations

import numpy as np
import pytest

from search_spaces import Space, SpaceError
from search_spaces.hardware import Gpu, Hardware
from search_spaces.knobs import KNOBS, Knob
from search_spaces.parameters import parameter_from_dict

CPU = Hardware(2, 2**33, precisions=("fp32", "bf16", "fp16"), slow={"fp16": "emulated"})
OLD = Hardware(8, 2**34, (Gpu("T4", 2**34, (7, 5), False),), ("fp32", "fp16"), ("gloo", "nccl"))
NEW = Hardware(
    64,
    2**38,
    (Gpu("H200", 2**37, (9, 0), True),) * 4,
    ("fp32", "tf32", "bf16", "fp16"),
    ("gloo", "nccl"),
    rpc=False,
)


def one_space(hardware: Hardware, *names: str) -> Space:
    """The space of some knobs; conditions name what their parents can be, as in a configuration."""
    declared = [KNOBS.get(name)().resolve(hardware) for name in names]
    found = {p.name: p for one in declared for p in one.parameters}
    parameters = []
    for parameter in found.values():
        left = {
            parent: [value for value in values if found[parent].legal(value)]
            for parent, values in parameter.when.items()
        }
        if all(left.values()):
            parameters.append(parameter_from_dict({**parameter.to_dict(), "when": left}))
    return Space(*parameters, constraints=[text for one in declared for text in one.constraints])


@pytest.fixture(params=KNOBS.installed())
def name(request: pytest.FixtureRequest) -> str:
    """The name of the knob that is tested."""
    return str(request.param)


def parents(knob: Knob) -> set[str]:
    """The knobs whose options decide whether options of this one are active."""
    wanted = {parent for when in knob.conditions.values() for parent in when}
    owners = {option.name: name for name in KNOBS.names() for option in KNOBS.get(name).options}
    return {owners[parent] for parent in wanted if parent in owners} - {knob.name}


@pytest.mark.parametrize("hardware", [CPU, OLD, NEW], ids=["cpu", "old", "new"])
def test_every_knob(name: str, hardware: Hardware) -> None:
    """Its space has a legal default, and says why it leaves values out."""
    knob = KNOBS.get(name)()
    assert isinstance(knob, Knob)
    assert knob.name == name
    assert knob.summary
    found = knob.resolve(hardware)
    assert found == knob.resolve(hardware), "a knob is deterministic"
    with pytest.raises(SpaceError, match=f"knob '{name}' has no option 'no-such-option'"):
        knob.resolve(hardware, {"no-such-option": []})
    if not found.parameters:
        assert found.dropped
        return
    space = one_space(hardware, *sorted(parents(knob)), name)
    default = space.default()
    assert default is not None
    space.check(default)
    for params in space.sample(np.random.default_rng(0), 50):
        space.check(params)
    for dropped in found.dropped:
        assert dropped.reason
        parameter = space.parameters.get(dropped.parameter)
        assert parameter is None or not parameter.legal(dropped.value)


def test_its_options_are_its_own(name: str) -> None:
    """No other knob declares one of the same name; `on_request` are some of its options."""
    knob = KNOBS.get(name)
    mine = [option.name for option in knob.options]
    others = {o.name for other in KNOBS.names() if other != name for o in KNOBS.get(other).options}
    assert len(mine) == len(set(mine))
    assert not others & set(mine)
    assert set(knob.on_request) <= set(knob.options)
    assert all(option.help for option in knob.options)


def test_its_default_trains_and_leaves_nothing_behind(name: str) -> None:
    """Parameters keep names and shapes, and the settings of the process are put back."""
    import torch

    from workers.device.process_state import ProcessState

    knob = KNOBS.get(name)()
    values = {option.name: option.unset for option in knob.options}
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.LayerNorm(8), torch.nn.Linear(8, 1))
    before = {key: tensor.shape for key, tensor in model.state_dict().items()}
    knob.change(model, values)
    assert {key: tensor.shape for key, tensor in model.state_dict().items()} == before
    state = ProcessState()
    for _ in range(2):
        with knob.applied(values):
            model(torch.ones(2, 4)).sum().backward()
    assert state.put_back() == ([], [])
