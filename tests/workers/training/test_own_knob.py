"""A knob in one file is tuned, fixed and applied, without a change anywhere else."""

from __future__ import annotations

import importlib

from automl.config.resolution import Tunable
from search_spaces.hardware import detect
from workers.workloads import WORKLOADS

KNOB = '''
from contextlib import contextmanager

import search_spaces.knobs as knobs

__all__ = ["DenormalsKnob"]

FLUSH = knobs.Option("flush_denormals", "set tiny numbers to 0", False, (False, True))
applied = []


class DenormalsKnob(knobs.Knob):
    """Tiny numbers."""

    name = "denormals"
    summary = "tiny numbers"
    options = (FLUSH,)
    automatic = True

    @contextmanager
    def applied(self, values):
        applied.append(FLUSH.value(values))
        yield
        applied.append("restored")
'''


def test_a_knob_is_one_file(tmp_path, monkeypatch, runner):
    (tmp_path / "denormals_knob.py").write_text(KNOB)
    (tmp_path / "denormals-1.dist-info").mkdir()
    (tmp_path / "denormals-1.dist-info" / "entry_points.txt").write_text(
        "[search_spaces.knobs]\ndenormals = denormals_knob:DenormalsKnob\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("translation", "sentiment", "image_classification"):
        declaration = Tunable.of(WORKLOADS.get(name), detect)
        assert declaration.parameters["flush_denormals"].default is False
        assert declaration.refuse_fixed("flush_denormals", True) is None
        assert declaration.refuse_fixed("flush_denormals", "maybe") is not None
    assert "flush_denormals" not in WORKLOADS.get("graph_embedding").space(detect()).parameters
    assert runner(max_updates=1, flush_denormals=True).failure is None
    assert runner(max_updates=1).failure is None
    applied = importlib.import_module("denormals_knob").applied
    assert applied == [True, "restored", False, "restored"]
