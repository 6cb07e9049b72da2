"""How many workers a sweep has on a cluster: more while trials wait, fewer if they are idle."""

import logging
import time
from collections import Counter
from collections.abc import Sequence

from automl.core import Resources
from automl.core.worker_range import WorkerRange
from automl.dispatch.base import GangShape
from automl.errors import UsageError

from . import timeouts
from .pool import WorkerPool
from .reservation import Reservation, choose, free_room, needs

_LOG = logging.getLogger(__name__)


class PoolSize:
    """Asks for room and gives it back. Slots that run an attempt are never taken away.

    Args:
        pool: the workers.
        resources: of a worker.
        workers: how many there are; of a range, the least are asked for at once.

    Raises:
        UsageError: their number is fixed, and the cluster has no room for them.

    Attributes:
        workers: how many there may be.
    """

    def __init__(self, pool: WorkerPool, resources: Resources, workers: WorkerRange) -> None:
        self._pool = pool
        self._resources = resources
        self.workers = workers
        self._waiting: Sequence[GangShape] = ()
        self._more = 0
        self._idle_since: dict[str, float] = {}  # by reservation
        self._unfit_since: float | None = None  # when the next gang began to lack nodes
        for _ in range(workers.min):
            pool.request(GangShape(1))
        if not workers.elastic:
            self._wait_for_room()

    def demand(self, waiting: Sequence[GangShape], more: int) -> None:
        """See `Dispatcher.demand`."""
        self._waiting = waiting
        self._more = more

    def scale(self, workers: WorkerRange) -> None:
        """Have another number of workers; busy ones that are too many end after their attempts.

        Nothing is given back before `adjust`: a trial may be committed that gets its slots next.
        """
        self.workers = workers

    def adjust(self, busy: set[int]) -> None:
        """Ask for room that trials need, give back what is lost, too much or idle; call it often.

        Args:
            busy: slots that run an attempt.
        """
        self._pool.look()
        self._shrink(busy)
        self._gather(busy)
        unit, needed = next(iter(self._waiting), GangShape(1)), self._needed(busy)
        while (missing := needed - self._total()) > 0:
            self._pool.request(unit if unit.ranks <= missing else GangShape(1))

    def num_free(self, busy: set[int]) -> int:
        """How many of the free slots may begin an attempt."""
        return max(0, min(len(self._pool.free), self.workers.max - len(busy)))

    def _total(self) -> int:
        return len(self._pool.workers)

    def _needed(self, busy: set[int]) -> int:
        """How many slots the sweep can use now."""
        wanted = len(busy) + sum(shape.ranks for shape in self._waiting) + self._more
        return min(max(wanted, self.workers.min), self.workers.max)

    # ------------------------------------------------------------------ give back

    def _shrink(self, busy: set[int]) -> None:
        for reservation in self._pool.reservations[:]:
            if reservation.draining and busy.isdisjoint(reservation.slots):
                self._pool.drop(reservation)
        while self._total() > self.workers.max and (idle := self._idle(busy)):
            self._pool.drop(idle[0])
        if self.workers.elastic:
            self._drop_unneeded(busy)

    def _drop_unneeded(self, busy: set[int]) -> None:
        now, idle = time.monotonic(), self._idle(busy)
        self._idle_since = {one.id: self._idle_since.get(one.id, now) for one in idle}
        for reservation in idle:
            rest = self._total() - len(reservation.slots)
            if rest < self._needed(busy):
                continue
            if now - self._idle_since[reservation.id] > timeouts.IDLE_SECONDS:
                self._pool.drop(reservation)

    def _idle(self, busy: set[int]) -> list[Reservation]:
        """Reservations without an attempt: first the pending ones, then those on emptier nodes."""
        nodes = Counter(self._pool.placed().values())
        broken = self._pool.health.quarantined.keys()
        found = [one for one in self._pool.reservations if not (busy | broken) & set(one.slots)]
        return sorted(found, key=lambda one: (one.granted, max(nodes[node] for node in one.nodes)))

    # ------------------------------------------------------------------ gangs

    def _gather(self, busy: set[int]) -> None:
        """Ask for room for the whole next gang if the slots that there are can never hold it.

        A gang that gets its slots one by one could wait for ever for one that waits for it, and
        ranks that must be together could be on several nodes.
        """
        pool, shape = self._pool, next(iter(self._waiting), None)
        if shape is None or shape.ranks == 1 or choose(pool.placed(), shape) is not None:
            self._unfit_since = None
            return
        if any(not one.granted and one.shape == shape for one in pool.reservations):
            return
        now = time.monotonic()
        if self._unfit_since is None:
            self._unfit_since = now
        surplus = self._total() + shape.ranks - self.workers.max
        if surplus > 0:
            idle = self._idle(busy)
            if sum(len(one.slots) for one in idle) < surplus:
                return  # it waits for attempts to end
            pending = all(not one.granted for one in idle)
            late = now - self._unfit_since > timeouts.REGROUP_SECONDS
            if not (pending or self._fits_elsewhere(shape, idle) or (late and not busy)):
                return  # others may use the idle slots meanwhile
            while self._total() + shape.ranks > self.workers.max:
                pool.drop(self._idle(busy)[0])
        pool.request(shape)

    def _fits_elsewhere(self, shape: GangShape, idle: Sequence[Reservation]) -> bool:
        """Whether the cluster has room for a gang once these reservations are given back."""
        rooms = free_room(self._resources)
        rooms.update(node for one in idle for node in one.nodes if node)
        places: dict[int, str] = {}
        for node, room in rooms.items():
            places |= {len(places) + number: node for number in range(room)}
        return choose(places, shape) is not None

    # ------------------------------------------------------------------ the start

    def _wait_for_room(self) -> None:
        begun, warned = time.monotonic(), False
        pool = self._pool
        pool.look(at_once=True)
        while (
            len(pool.free) < self._total()
            and (waited := time.monotonic() - begun) < timeouts.PLACEMENT_SECONDS
        ):
            if not warned and waited > timeouts.ROOM_SECONDS:
                warned = True
                _LOG.warning(
                    "waits at most %.0f s for room on the Ray cluster: it has room for %d of %d "
                    "workers of %s%s",
                    *(timeouts.PLACEMENT_SECONDS, len(pool.free), self._total()),
                    *(needs(self._resources), pool.others()),
                )
            time.sleep(0.01)
            pool.look(at_once=True)
        found, wanted = len(pool.free), self._total()
        if found < wanted:
            pool.close()
            raise UsageError(
                f"Ray has no room for {wanted} workers of {needs(self._resources)}, only for "
                f"{found}. Ask for fewer workers or for `{{min: 1, max: {wanted}}}`, or wait until "
                "other programs are done"
            )
