"""The collector: reports in, a collection out, and a reason for each report that is refused."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np

from lpgnn.archive import Array
from lpgnn.client import ClientError, Task, decode, encode, from_json
from lpgnn.errors import InputError
from lpgnn.privacy.collection import Collection
from lpgnn.privacy.payloads import header, intact, read_payloads, split_rows
from lpgnn.privacy.public_graph import PublicGraph

_SMALLEST_BLOCK, _LARGEST_BLOCK = 2**8, 2**16  # reports that are looked at together
_CHUNK_BYTES = 2**22
_LONGEST_PIECE = 2**20  # of bytes without a report among them
_LONGEST_LINE = 2**20

Place = tuple[str, int]  # the name of a file or stream, and the offset in it


@dataclass(frozen=True)
class Refusal:
    """A report, or bytes in the place of one, that did not count."""

    source: str
    offset: int
    reason: str

    @property
    def kind(self) -> str:
        """The reason without its particulars."""
        return self.reason.split(maxsplit=1)[0].rstrip(":")


@dataclass
class Collector:
    """Takes reports of one task as they come and keeps the first valid one of each node."""

    task: Task
    graph: PublicGraph
    on_refusal: Callable[[Refusal], None] = lambda refusal: None
    refused: Counter[str] = field(default_factory=Counter)  # by kind
    examples: dict[str, Refusal] = field(default_factory=dict)
    num_accepted: int = 0

    def __post_init__(self) -> None:
        n = self.graph.num_nodes
        self._received = np.zeros(n, dtype=np.bool_)
        self._payloads = np.zeros((n, self.task.payload_bytes), dtype=np.uint8)
        self._asked = self.graph.asked.numpy()
        self._pending: list[tuple[Place, bytes]] = []

    def collection(self) -> Collection:
        """What has been received so far."""
        self._flush()
        return Collection(self.task, self.graph, self._received.copy(), self._payloads.copy())

    def add_folder(self, folder: Path) -> None:
        """Every file below a folder, in the order of their names; hidden ones are left out."""
        for path in _files(folder):
            self.add_file(path, str(path.relative_to(folder)))

    def add_file(self, path: Path, name: str) -> None:
        try:
            with path.open("rb") as stream:
                self.add_stream(stream, name)
        except OSError as error:
            self._refuse((name, 0), f"unreadable: {error.strerror or error}")

    def add_stream(self, stream: BinaryIO, name: str) -> None:
        """Reports one after another: bytes, or lines of JSON."""
        chunk = stream.read(_CHUNK_BYTES)
        if chunk.lstrip()[:1] == b"{":
            self._add_lines(stream, name, chunk)
        elif len(chunk) == self.task.report_bytes:
            self._add_one((name, 0), chunk)
        elif not chunk:
            self._refuse((name, 0), "empty: no report in it")
        else:
            self._add_bytes(stream, name, chunk)

    def _add_one(self, place: Place, wire: bytes) -> None:
        """One report: kept until there are enough to look at them together."""
        self._pending.append((place, wire))
        if len(self._pending) >= _LARGEST_BLOCK:
            self._flush()

    def _flush(self) -> None:
        places, wires = [p for p, _ in self._pending], [w for _, w in self._pending]
        self._pending = []
        if not wires:
            return
        block = np.frombuffer(b"".join(wires), np.uint8).reshape(len(wires), -1)
        good = intact(self.task, block)
        for i in np.flatnonzero(~good).tolist():
            self._refuse(places[i], self._reason(wires[i]))
        kept = np.flatnonzero(good)
        self._accept(block[kept], [places[i] for i in kept])

    def _add_lines(self, stream: BinaryIO, name: str, start: bytes) -> None:
        offset = 0
        for line in _lines(stream, start):
            if line.strip():
                try:
                    self._add_one((name, offset), encode(self.task, from_json(self.task, line)))
                except ClientError as error:
                    self._refuse((name, offset), str(error))
            offset += len(line)

    def _add_bytes(self, stream: BinaryIO, name: str, start: bytes) -> None:
        """A stream of reports of one size; after damage it goes on at the next header."""
        self._flush()  # the first report of a node counts, and these came later
        data, offset, rows, ended = start, 0, _LARGEST_BLOCK, False
        size = self.task.report_bytes
        while data:
            while not ended and len(data) < max(size * rows, 2 * _LONGEST_PIECE):
                more = stream.read(_CHUNK_BYTES)
                data, ended = data + more, not more
            whole = min(len(data) // size, rows)
            block = np.frombuffer(data, np.uint8, count=whole * size).reshape(whole, size)
            good = intact(self.task, block)
            end, aligned = self._refuse_broken(data, good, name, offset, at_end=ended)
            kept = np.flatnonzero(good[: -(-end // size)])
            places = (offset + kept * size).tolist()
            self._accept(block[kept], [(name, place) for place in places])
            data, offset = data[end:], offset + end
            # A stream in shreds is looked at in small blocks, not a large one for each shred.
            rows = min(2 * rows, _LARGEST_BLOCK) if aligned else _SMALLEST_BLOCK

    def _refuse_broken(
        self, data: bytes, good: Array, name: str, offset: int, *, at_end: bool
    ) -> tuple[int, bool]:
        """Refuse what is not a report; returns how far the data is dealt with.

        The second value says whether the next report is where it should be.
        """
        size, mark = self.task.report_bytes, header(self.task)
        for i in np.flatnonzero(~good).tolist():
            start = i * size
            following = data.find(mark, start + 1)
            if following < 0 and at_end:
                following = len(data)
            elif following < 0 and len(data) - start > _LONGEST_PIECE:
                following = len(data) - len(mark) + 1  # a header may have begun
            elif following < 0:
                return start, True  # the rest is still to be read
            self._refuse((name, offset + start), self._reason(data[start:following]))
            if following != start + size:
                return following, False
        end = len(good) * size
        if at_end and len(data) - end < size:
            if len(data) > end:
                self._refuse((name, offset + end), self._reason(data[end:]))
            return len(data), True
        return end, True

    def _accept(self, block: Array, places: Sequence[Place]) -> None:
        """Keep intact reports that are valid and the first of their node.  [k, size] uint8"""
        nodes, payloads = split_rows(block)
        read = read_payloads(self.task, payloads)
        valid = read.valid & (nodes < self.task.num_nodes)
        for i in np.flatnonzero(~valid).tolist():
            self._refuse(places[i], self._reason(block[i].tobytes()))
        known = np.where(valid, nodes, 0)
        expected = (read.labels >= 0) == self._asked[known]
        for i in np.flatnonzero(valid & ~expected).tolist():
            wrong = "is missing" if self._asked[nodes[i]] else "was not asked for"
            self._refuse(places[i], f"label of node {nodes[i]}: {wrong}")
        valid &= expected
        order = np.flatnonzero(valid)
        _, at = np.unique(nodes[order], return_index=True)
        first = np.zeros(len(block), dtype=np.bool_)
        first[order[at]] = True
        first &= ~self._received[known]
        self._received[nodes[first]] = True
        self._payloads[nodes[first]] = payloads[first]
        self.num_accepted += int(first.sum())
        for i in np.flatnonzero(valid & ~first).tolist():
            same = np.array_equal(self._payloads[nodes[i]], payloads[i])
            what = "the same report again" if same else "another report is here already"
            self._refuse(places[i], f"replay of node {nodes[i]}: {what}")

    def _reason(self, wire: bytes) -> str:
        try:
            decode(self.task, wire)
        except ClientError as error:
            return str(error)
        raise AssertionError("a valid report was refused")

    def _refuse(self, place: Place, reason: str) -> None:
        refusal = Refusal(*place, reason)
        self.refused[refusal.kind] += 1
        self.examples.setdefault(refusal.kind, refusal)
        self.on_refusal(refusal)


def _files(folder: Path) -> Iterator[Path]:
    try:
        entries = sorted(folder.iterdir())
    except OSError as error:
        raise InputError("reports", folder, f"cannot be read ({error.strerror})") from None
    for path in entries:
        if path.name.startswith("."):
            continue
        if path.is_dir():
            yield from _files(path)
        else:
            yield path


def _lines(stream: BinaryIO, start: bytes) -> Iterable[bytes]:
    """The lines of a stream whose first bytes were read; a line without an end comes in parts."""
    rest = start
    while rest:
        *whole, rest = rest.split(b"\n")
        yield from (line + b"\n" for line in whole)
        more = stream.read(_CHUNK_BYTES)
        if (not more or len(rest) > _LONGEST_LINE) and rest:
            yield rest
            rest = b""
        rest += more
