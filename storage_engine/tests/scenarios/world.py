"""What a scenario can do with a simulated cluster, and what it can look at.

Each command is a method that takes the words behind its name and returns the lines that the
scenario expects below it. All brokers are real ones, over a simulated network, disk and ZooKeeper.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

from simulation.tests.world.simulated_producer import SimulatedProducer
from simulation.world.broker import SESSION_TIMEOUT_MS
from simulation.world.cluster import SimulatedCluster
from simulation.world.disk import SimulatedDisk
from storage_engine.broker.replicas.hosted_partition import HostedPartition
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import TransportError
from storage_engine.core.transactions.transaction_state import member_transactional_id
from storage_engine.protocol.apis import commit_batch, join_batch
from storage_engine.protocol.records.control_record import read_marker
from storage_engine.protocol.records.record_batch import HEADER_BYTES, BatchHeader, iter_headers

ANSWER_MS = 60_000
SINK, QUERY = "sink", "query"
MAX_BYTES = 1 << 20


class Attempt(SimulatedProducer):
    """A task attempt of a micro-batch."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        super().__init__(cluster, member_transactional_id(SINK))

    def join(self, batch: int) -> None:
        """Become a member of the micro-batch; KafkaError when it can't."""
        request = join_batch.JoinBatchRequest(
            sink=SINK, query=QUERY, batch=batch, timeout_ms=self.timeout_ms, nonce=UUID(int=1)
        )
        answer = self.ask_coordinator(join_batch.API, 0, request, lambda a: [a.error_code])
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch


class World:
    """A cluster and its clients."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._attempts: dict[str, Attempt] = {}
        self._cluster: SimulatedCluster | None = None

    @property
    def cluster(self) -> SimulatedCluster:
        if self._cluster is None:
            raise ValueError("a scenario begins with 'brokers'")
        return self._cluster

    def close(self) -> None:
        if self._cluster is not None:
            self._cluster.close()

    def run(self, command: str, words: list[str]) -> list[str]:
        method = getattr(self, f"do_{command.replace('-', '_')}", None)
        if method is None:
            raise ValueError(f"there is no command {command!r}")
        lines: list[str] = method(*words) or []
        return lines

    # --- the cluster ---

    def do_brokers(self, count: str, *settings: str) -> None:
        """`brokers N [setting=value]…`"""
        given = dict(setting.split("=", 1) for setting in settings)
        self._cluster = SimulatedCluster(
            self._folder,
            int(count),
            disk=lambda broker: SimulatedDisk(self._folder / f"broker{broker}"),
            **{key.replace(".", "_"): value for key, value in given.items()},
        )

    def do_topic(self, name: str, *settings: str) -> None:
        """`topic NAME [setting=value]…`: one partition, a replica on every broker, all in sync."""
        given = dict(setting.split("=", 1) for setting in settings)
        answer = self.cluster.create_topic(
            name, **{key.replace(".", "_"): value for key, value in given.items()}
        )
        assert answer.error_code == 0, answer
        tp = _partition(name)
        self.cluster.wait_in_sync(tp, *(b.id for b in self.cluster.brokers))
        self.cluster.loop.run_until(lambda: self._led(tp) is not None)

    def do_kill(self, who: str) -> None:
        """`kill N|coordinator`: SIGKILL."""
        self.cluster[self._broker(who)].kill()

    def do_power_loss(self, who: str) -> None:
        """`power-loss N`: killed, and what was not flushed is lost."""
        broker = self.cluster[self._broker(who)]
        broker.kill()
        assert isinstance(broker.disk, SimulatedDisk)
        broker.disk.lose_power()

    def do_start(self, who: str) -> None:
        """`start N`"""
        self.cluster[int(who)].start()

    def do_isolate(self, who: str) -> None:
        """`isolate N`: nothing reaches the broker or leaves it, ZooKeeper apart."""
        self.cluster.network.isolate(int(who))

    def do_no_zookeeper(self, who: str) -> None:
        """`no-zookeeper N`: the broker can't reach ZooKeeper any more."""
        self.cluster[int(who)].session.cut_off()

    def do_heal(self) -> None:
        """`heal`: the network is whole again."""
        self.cluster.network.heal()

    def do_no_markers(self) -> None:
        """`no-markers`: the sink's coordinator sends no markers any more."""
        broker = self.cluster[self._coordinator()]
        for runner in broker.parts.coordinators.transactions._runners.values():
            carrier: Any = runner._carrier
            carrier.sender.send = lambda order: None

    # --- time ---

    def do_pass(self, milliseconds: str) -> None:
        """`pass N`: so many milliseconds go by."""
        self.cluster.loop.run_for(int(milliseconds))

    def do_wait(self, what: str, topic: str, *ids: str) -> None:
        """`wait leader TOPIC N…` (-1: none), `wait in-sync TOPIC N…`, `wait stable TOPIC`"""
        tp = _partition(topic)
        wanted = {int(each) for each in ids}
        conditions: dict[str, Callable[[], bool]] = {
            "leader": lambda: (
                self.cluster.state(tp).leader in wanted
                and (wanted == {-1} or self._led(tp) is not None)
            ),
            "in-sync": lambda: set(self.cluster.state(tp).isr) == wanted,
            "stable": lambda: self._is_stable(tp),
        }
        self.cluster.loop.run_until(conditions[what], limit_ms=20 * SESSION_TIMEOUT_MS)

    # --- clients ---

    def do_write(self, topic: str, payload: str, *options: str) -> list[str]:
        """`write TOPIC PAYLOAD [acks=N] [to=BROKER]`: one record; its offset, or the error."""
        given = dict(option.split("=") for option in options)
        tp = _partition(topic)
        broker = int(given.get("to", self.cluster.state(tp).leader))
        acks = -1 if given.get("acks", "all") == "all" else int(given["acks"])
        answer = self.cluster.answer(
            self.cluster.produce(broker, tp, payload.encode(), acks=acks), limit_ms=ANSWER_MS
        )
        if isinstance(answer, TransportError):
            return ["no answer"]
        row = answer.partitions[0]
        return [_outcome(row.error_code, f"offset {row.base_offset}")]

    def do_show(self, topic: str) -> list[str]:
        """`show TOPIC`: the partition's state, and each replica with its records as
        payload@leader-epoch."""
        tp = _partition(topic)
        state = self.cluster.state(tp)
        isr = ",".join(map(str, state.isr))
        lines = [f"leader {state.leader}  epoch {state.leader_epoch}  isr {isr}"]
        for broker in self.cluster.brokers:
            if not broker.serving:
                lines.append(f"broker {broker.id}  down")
                continue
            hosted = self._hosted(broker.id, tp)
            if hosted is None:
                lines.append(f"broker {broker.id}  no replica")
                continue
            role = "leader  " if hosted.leader is not None else "follower"
            log = broker.logs.logs[tp]
            records = " ".join(
                f"{_text(header, data)}@{header.partition_leader_epoch}"
                for header, data in self._batches(broker.id, tp)
            )
            lines.append(
                f"broker {broker.id}  {role}  high watermark {hosted.high_watermark}"
                f"  end {log.log_end_offset}  {records}".rstrip()
            )
        return lines

    def do_committed(self, topic: str) -> list[str]:
        """`committed TOPIC`: what a reader of committed records sees."""
        tp = _partition(topic)
        led = self._led(tp)
        assert led is not None, "nobody leads"
        open_rows: dict[int, list[tuple[int, str]]] = {}
        seen: list[tuple[int, str]] = []
        for header, data in self._batches(self.cluster.state(tp).leader, tp):
            if header.base_offset >= led.last_stable_offset:
                break
            marker = read_marker(data) if header.is_control else None
            if marker is not None:
                rows = open_rows.pop(header.producer_id, [])
                seen += rows if marker.commits else []
            elif header.is_transactional:
                rows = open_rows.setdefault(header.producer_id, [])
                rows.append((header.base_offset, _text(header, data)))
            else:
                seen.append((header.base_offset, _text(header, data)))
        return [" ".join(text for _, text in sorted(seen)) or "nothing"]

    # --- the exactly-once sink ---

    def do_join(self, name: str, batch: str) -> list[str]:
        """`join ATTEMPT batch=N`: a task attempt becomes a member of micro-batch N."""
        attempt = self._attempts[name] = Attempt(self.cluster)
        return [_told(lambda: attempt.join(int(batch.removeprefix("batch="))), "joined")]

    def do_task(self, name: str, topic: str, *payloads: str) -> list[str]:
        """`task ATTEMPT TOPIC PAYLOAD…`: the attempt writes rows."""
        attempt, tp = self._attempts[name], _partition(topic)

        def write() -> None:
            attempt.add(tp)
            for payload in payloads:
                attempt.write(tp, payload.encode())

        return [_told(write, "written")]

    def do_commit(self, batch: str, *names: str) -> list[str]:
        """`commit batch=N ATTEMPT…`: the driver names the attempts that count."""
        request = commit_batch.CommitBatchRequest(
            sink=SINK,
            query=QUERY,
            batch=int(batch.removeprefix("batch=")),
            members=frozenset(
                (self._attempts[name].producer_id, self._attempts[name].epoch) for name in names
            ),
        )
        driver = Attempt(self.cluster)
        ask = commit_batch.API, 0, request, lambda a: [a.error_code]
        return [_told(lambda: driver.ask_coordinator(*ask), "committed")]

    # --- looking ---

    def _broker(self, who: str) -> int:
        return self._coordinator() if who == "coordinator" else int(who)

    def _coordinator(self) -> int:
        return Attempt(self.cluster).coordinator()

    def _hosted(self, broker: int, tp: TopicPartition) -> HostedPartition | None:
        return self.cluster[broker].replicas.get(tp)

    def _led(self, tp: TopicPartition) -> HostedPartition | None:
        """The leader's replica, once it knows that it leads."""
        leader = self.cluster.state(tp).leader
        if leader == -1 or not self.cluster[leader].serving:
            return None
        hosted = self._hosted(leader, tp)
        return hosted if hosted is not None and hosted.leader is not None else None

    def _is_stable(self, tp: TopicPartition) -> bool:
        led = self._led(tp)
        return led is not None and led.last_stable_offset == led.log.log_end_offset

    def _batches(self, broker: int, tp: TopicPartition) -> Iterator[tuple[BatchHeader, bytes]]:
        log = self.cluster[broker].logs.logs[tp]
        offset = log.log_start_offset
        while (piece := log.reads.read(offset, max_bytes=MAX_BYTES)) is not None:
            data = bytes(piece.view())
            for position, header in iter_headers(data):
                yield header, data[position : position + header.size_in_bytes]
                offset = header.next_offset


def _partition(topic: str) -> TopicPartition:
    return TopicPartition(topic, 0)


def _text(header: BatchHeader, data: bytes) -> str:
    if header.is_control:
        marker = read_marker(data)
        return "?" if marker is None else "COMMIT" if marker.commits else "ABORT"
    return data[HEADER_BYTES:].decode()


def _outcome(code: int, done: str) -> str:
    return done if code == 0 else ErrorCode.of(code).name


def _told(act: Callable[[], object], done: str) -> str:
    try:
        act()
    except KafkaError as refused:
        return refused.code.name
    return done
