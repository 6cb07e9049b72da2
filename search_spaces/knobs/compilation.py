"""What `torch.compile` compiles."""

from .base import Knob
from .option import COMPUTES_THE_SAME, Option
from .runtime import COMPILE

COMPILE_SCOPE = Option(
    "compile_scope",
    "compile the whole model, or each layer of its plan by itself",
    "model",
    ("model", "layers"),
    affects=COMPUTES_THE_SAME,
)
_MODES = tuple(mode for mode in (*COMPILE.choices, *COMPILE.on_request) if mode != "off")


class CompilationKnob(Knob):
    """The whole model at once, or layer by layer.

    Layers that are alike share their code, so that compilation takes less time; what lies between
    them is not compiled.
    """

    name = "compilation"
    summary = "what is compiled"
    options = (COMPILE_SCOPE,)
    conditions = {"compile_scope": {"compile": _MODES}}
