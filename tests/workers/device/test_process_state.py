"""Nothing crosses from a trial to the next one in the same process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from sources import ROOT

from workers.context import Context
from workers.device.process_state import ProcessState, _values
from workers.protocol import Assignment
from workers.run import run

CHANGES: dict[str, Any] = {
    "cudnn.allow_tf32": lambda: setattr(torch.backends.cudnn, "allow_tf32", False),
    "tf32": lambda: setattr(torch.backends, "fp32_precision", "tf32"),
    "float32_matmul_precision": lambda: torch.set_float32_matmul_precision("medium"),
    "cudnn.benchmark": lambda: setattr(torch.backends.cudnn, "benchmark", True),
    "default dtype": lambda: torch.set_default_dtype(torch.float64),
    "default device": lambda: torch.set_default_device("meta"),
    "deterministic": lambda: torch.use_deterministic_algorithms(True),
    "flash": lambda: torch.backends.cuda.enable_flash_sdp(False),
    "order of attention": lambda: torch._C._set_sdp_priority_order([2, 1, 0, 3, 4]),
    "threads": lambda: torch.set_num_threads(3),
    "gradients": lambda: torch.set_grad_enabled(False),
    "autocast": lambda: torch.set_autocast_enabled("cpu", True),
    "hook": lambda: torch.nn.modules.module.register_module_forward_hook(lambda *given: None),
    "environment": lambda: os.environ.update(NEW="1", PATH=""),
    "deleted variable": lambda: os.environ.pop("PATH"),
    "working folder": lambda: os.chdir("/"),
    "umask": lambda: os.umask(0o123),
    "sys.path": lambda: sys.path.append("/nowhere"),
    "signal": lambda: signal.signal(signal.SIGUSR1, lambda *given: None),
}


def attempt(folder: Any, objective: Any) -> Any:
    return run(Context(Assignment("s", 0, 1, {}, None, str(folder), seed=3)), objective)


def test_what_a_trial_changes_is_put_back(tmp_path, capsys):
    seen = []

    def objective(trial):
        seen.append(_values())
        now = seen[-1]
        for name, change in CHANGES.items():
            change()
            assert now != (now := _values()), f"{name} is noticed"

    for _ in range(3):  # in the first one torch imports modules, which set a variable
        outcome = attempt(tmp_path, objective)
        assert (outcome.failure, outcome.worker_spent) == (None, False), outcome.message
    assert seen[2] == seen[1]
    assert "is raised" not in str(seen[2].values()), "torch refuses formats that contradict"
    assert seen[0].items() <= seen[1].items()
    assert "put back after the trial" in capsys.readouterr().err


def test_a_thread_that_stays_ends_the_worker(tmp_path, capsys):
    end = threading.Event()

    def objective(trial):
        threading.Thread(target=end.wait, name="stays", daemon=True).start()

    outcome = attempt(tmp_path, objective)
    end.set()
    assert outcome.failure is None
    assert outcome.worker_spent
    assert outcome.details["left_behind"] == ["thread 'stays'"]
    assert "its worker process ends: thread 'stays'" in capsys.readouterr().err
    assert not attempt(tmp_path, lambda trial: None).worker_spent


def test_an_executor_without_work_may_stay(tmp_path):
    with ThreadPoolExecutor(1) as pool:
        outcome = attempt(tmp_path, lambda trial: pool.submit(int).result() and None)
        assert not outcome.worker_spent, outcome.details


def test_a_setting_that_cannot_be_put_back_ends_the_worker(tmp_path):
    def objective(trial):
        mode.__enter__()

    mode = torch.inference_mode()
    outcome = attempt(tmp_path, objective)
    mode.__exit__(None, None, None)
    assert outcome.worker_spent
    assert outcome.details["left_behind"] == ["torch.is_inference_mode_enabled"]


def test_a_working_folder_that_is_gone_is_no_failure(tmp_path):
    (tmp_path / "gone").mkdir()

    def objective(trial):
        os.chdir(tmp_path / "gone")
        (tmp_path / "gone").rmdir()

    before = Path.cwd()
    assert attempt(tmp_path / "trial", objective).failure is None
    assert Path.cwd() == before


def test_torch_may_be_imported_by_the_trial():
    code = (
        "import sys\nfrom workers.device.process_state import ProcessState\n"
        "state = ProcessState()\nassert 'torch' not in sys.modules\n"
        "import torch\nstate.learn()\n"
        "torch.set_default_dtype(torch.float64)\n"
        "import signal\nsignal.alarm(1000)\n"
        "assert state.put_back() == (['timer', 'torch.get_default_dtype'], [])\n"
        "assert signal.alarm(0) == 0\n"
        "assert torch.get_default_dtype() is torch.float32\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr


def test_a_setting_of_the_compiler_is_put_back_even_if_the_trial_loads_the_compiler():
    code = (
        "import torch, sys\nfrom workers.device.process_state import ProcessState\n"
        "state = ProcessState()\nassert 'torch._dynamo' not in sys.modules\n"
        "import torch._dynamo.config, torch._inductor.config\nstate.put_back()\n"
        "assert ProcessState().put_back() == state.put_back() == ([], [])\n"
        "torch._dynamo.config.recompile_limit = 3\n"
        "torch._functorch.config.activation_memory_budget = 0.5\n"
        "torch._inductor.config.triton.cudagraphs = True\n"
        "names = ['_dynamo', '_functorch', '_inductor']\n"
        "assert state.put_back() == ([f'torch.{name}.config' for name in names], [])\n"
        "assert torch._dynamo.config.recompile_limit == 8\n"
        "assert torch._functorch.config.activation_memory_budget == 1.0\n"
        "assert torch._inductor.config.triton.cudagraphs is False\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr


def test_a_process_in_which_nothing_changed_is_the_same():
    assert ProcessState().put_back() == ([], [])
