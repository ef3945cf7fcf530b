"""`Dealer`: the chief's thread that deals out the batches of one pipeline among the workers (`share="dynamic"`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from absl import logging

from staging_tf1._tf import tf
from staging_tf1.background import Background
from staging_tf1.cluster.connection import Connection
from staging_tf1.cluster.dealing import Dealing, Names
from staging_tf1.cluster.layout import Layout
from staging_tf1.cluster.member import Member
from staging_tf1.graph.acked import Acked

# A worker asks for about a second of work ahead, so it does not wait for a round.
_ROUND_SECS = 0.1


class Dealer:
    """Deals while the run lasts. What it knows is in the ledger and in the variable, so a restarted chief continues."""

    def __init__(self, member: Member, pipeline: str, variable: str, num_batches: int | None) -> None:
        self._member, self._run_id = member, member.run_id
        self._names = Names(pipeline)
        self._workers = {str(task): task for task in member.layout.workers}
        per_worker = (self._names.ask, self._names.fence)
        self._read = ["run", *(name(worker) for name in per_worker for worker in self._workers)]
        self._variable = _Variable(member.layout, variable)
        self._num_batches = num_batches
        # None before the first round, and after an error: what is written is then uncertain, and is read again.
        self._dealing: Dealing | None = None
        self._thread = Background(f"cluster:deal:{pipeline}", self._deal)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End and join the thread. May be called again."""
        self._thread.stop()
        self._variable.close()

    def _deal(self) -> Iterator[float]:
        failure = ""
        while True:
            yield _ROUND_SECS
            try:
                if failure:
                    self._write_state("failed", failure)
                if failure or self._round():
                    return
            except tf.errors.OpError as error:
                logging.vlog(1, "%s: the parameter server does not answer: %s", self._thread.name, error)
                self._dealing = None
            except Exception as error:
                if self._thread.stopping.is_set:
                    return
                logging.exception("%s failed", self._thread.name)
                failure = f"{type(error).__name__}: {error}"

    def _round(self) -> bool:
        """Deal once. Return whether there is nothing left to deal."""
        member, ledger = self._member, self._member.ledger
        # All entries only at first: the signs of life are not looked at more often for it.
        entries = member.read() if self._dealing is None else ledger.read(self._read)
        if not member.leads(entries, self._run_id):
            self._dealing = None
            return False
        if self._dealing is None:
            self._dealing = Dealing(self._names, self._workers, entries, self._variable.read(), self._num_batches)
        dealing = self._dealing
        others = {worker: task for worker, task in self._workers.items() if task != member.task}
        silent = [worker for worker, task in others.items() if member.signs.is_gone(task)]
        for worker in dealing.leaving(entries, silent):
            logging.warning(
                "%s. The other workers get the batches that it has not consumed.",
                member.signs.described(self._workers[worker]),
            )
            ledger.remove([self._names.fence(worker)])
            del entries[self._names.fence(worker)]
        dealing.note(self._variable.acked(dealing.held))
        written = dealing.round(entries)
        if written:
            ledger.write(written)
        if dealing.over:
            self._write_state("over")
        return dealing.over

    def _write_state(self, state: str, why: str = "") -> None:
        self._member.ledger.write({self._names.deal: {"run": self._run_id, "state": state, "why": why}})


class _Variable:
    """The variable that holds which batches are acknowledged, read past the session of the steps."""

    def __init__(self, layout: Layout, name: str) -> None:
        server = layout.servers[0]
        self._connection = Connection(f"grpc://{layout.address(server)}", server.device)
        with self._connection.building():
            handle = tf.raw_ops.VarHandleOp(
                dtype=tf.int64, shape=tf.TensorShape([None]), shared_name=name, container=""
            )
            self._all = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.int64)
            self._cells = tf.placeholder(tf.int64, [None])
            self._some = tf.raw_ops.ResourceGather(resource=handle, indices=self._cells, dtype=tf.int64)
        self._window = 0

    def read(self) -> Acked:
        """Return all of it."""
        acked = Acked(self._connection.run(self._all))
        self._window = int(acked.cells.size)
        return acked

    def acked(self, batches: Sequence[int]) -> list[int]:
        """Return those of `batches` that are acknowledged. Call `read` before."""
        if not batches:
            return []
        firsts = self._connection.run(self._some, {self._cells: [batch % self._window for batch in batches]})
        return [batch for batch, first in zip(batches, firsts, strict=True) if first > batch]

    def close(self) -> None:
        """Disconnect."""
        self._connection.close()
