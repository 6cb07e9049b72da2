"""A studio that serves a store in this process, and a client without a browser."""

import http.client
import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from automl.core import Begun, Ended, Proposed, TrialState
from automl.ledger import Hold, Ledger
from automl.studio.server import StudioServer
from workers.protocol import Ending, Outcome, Report

PARAMS = {"lr": 1e-3, "batch_size": 32, "optimizer": "adam", "layout": "separate"}


class Client:
    """Asks a studio, with its token."""

    def __init__(self, server: StudioServer) -> None:
        self.server = server

    def ask(
        self, path: str, method: str = "GET", body: bytes | None = None, **headers: str
    ) -> tuple[int, bytes, dict[str, str]]:
        """Status, body and headers of the answer."""
        sent = {"Authorization": f"Bearer {self.server.token}"}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
        with closing(connection):
            connection.request(method, path, body, sent)
            answer = connection.getresponse()
            return answer.status, answer.read(), dict(answer.getheaders())

    def post(self, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        """Status and JSON of the answer to an action; a body of bytes is sent as it is."""
        content = body if isinstance(body, bytes) else json.dumps(body or {}).encode()
        status, found, _ = self.ask(f"/api/sweeps/{path}", "POST", content, **headers)
        return status, json.loads(found)

    def get(self, path: str) -> Any:
        """The JSON of an answer."""
        status, body, _ = self.ask(path)
        assert status == 200, body
        return json.loads(body)


@contextmanager
def serving(store: str) -> Iterator[Client]:
    """A studio of a store until the block ends."""
    ledger = Ledger.open(store, readonly=True)
    with closing(ledger), StudioServer(ledger, store=store).in_thread() as server:
        yield Client(server)


@contextmanager
def controller(store: str, sweep: str = "toy") -> Iterator[Hold]:
    """The writing side of a sweep, in this process."""
    with closing(Ledger.open(store)) as ledger:
        yield ledger.hold(sweep)


def run_trial(recorder: Hold, loss: float, seconds: float = 100.0) -> int:
    """One more trial, which completes; its number."""
    number = begin_trial(recorder, seconds)
    outcome = Outcome(number, 1, Ending.COMPLETED, {"loss": loss}, seconds=1.0)
    recorder.state.apply(Ended(outcome, TrialState.COMPLETED, at=seconds + 1))
    recorder.commit(seconds + 1)
    return number


def begin_trial(recorder: Hold, seconds: float = 100.0, **metrics: float) -> int:
    """One more trial, which goes on; it reports the metrics at step 1."""
    number = len(recorder.state.trials)
    recorder.state.apply(Proposed(number, PARAMS, "bayes", seconds))
    recorder.state.apply(Begun(number, 1, seconds))
    if metrics:
        recorder.state.apply(Report(number, 1, 0, 1, metrics, 1.0))
    recorder.commit(seconds)
    return number
