"""The files over which a job reports and is stopped, if it runs in a launcher of somebody else."""

import logging
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Final

from workers.command.metrics import Collector
from workers.command.sources import ReportFile
from workers.context import Context
from workers.protocol import StopRequest

LOOK_SECONDS: Final = 0.05
REPORTS: Final = "reports.jsonl"
STOP: Final = "stop"
_LOG: Final = logging.getLogger(__name__)


class JobFiles:
    """Passes the reports of a job on while it runs, and a request to stop to the job.

    The job sees the environment variables of docs/guides/script.md, and `automl.client`
    speaks for it.

    Args:
        trial: of the objective that launches the job.
    """

    def __init__(self, trial: Context) -> None:
        self._trial = trial
        self._files = trial.files / "job"
        self._files.remove()
        self._files.make()
        self._collector = Collector(self._report, _LOG.warning)
        self._reports = ReportFile(self._files, REPORTS, self._collector)
        self._request: StopRequest | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="automl-job", daemon=True)

    @property
    def variables(self) -> Mapping[str, str]:
        """The environment variables of the job."""
        trial, folder = self._trial, self._files.path
        resumes = {"AUTOML_RESUME": "1"} if trial.resumed else {}
        return {
            "AUTOML_REPORTS": str(folder / REPORTS),
            "AUTOML_STOP": str(folder / STOP),
            "AUTOML_CHECKPOINT_DIR": str(trial.checkpoint_dir),
            "AUTOML_TRIAL": str(trial.number),
            "AUTOML_SEED": str(trial.seed),
            **resumes,
        }

    @property
    def result(self) -> Mapping[str, float]:
        """What the job has reported as its result."""
        return self._collector.result

    def __enter__(self) -> "JobFiles":
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()
        while self._reports.read(last=True):
            pass
        request = self._request
        if request is StopRequest.PAUSE and not any(self._trial.checkpoint_dir.iterdir()):
            request = StopRequest.STOP  # it has left nothing to go on from
        self._trial.accept_stop(request)
        self._files.remove()

    def _report(self, step: int, metrics: Mapping[str, float]) -> None:
        self._trial.report(step, **metrics)

    def _watch(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            while self._reports.read():
                pass
            if self._request is None and (request := self._trial.stop_requested()) is not None:
                self._files.open(STOP, "w").close()
                self._request = request
