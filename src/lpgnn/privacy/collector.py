"""The collector: reports in, a collection out, and a reason for each report that is refused."""

import errno
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import numpy as np

from lpgnn.archive import Array
from lpgnn.client import (
    CHECKSUM_BYTES,
    HEADER_BYTES,
    MAGIC,
    ClientError,
    Task,
    decode,
    encode,
    from_json,
)
from lpgnn.errors import InputError
from lpgnn.privacy.collection import Collection
from lpgnn.privacy.payloads import header, intact, read_payloads, split_rows
from lpgnn.privacy.public_graph import PublicGraph

_SMALLEST_BLOCK, _LARGEST_BLOCK = 2**8, 2**16  # reports that are looked at together
_CHUNK_BYTES = 2**22
_LONGEST_PIECE = 2**20  # of bytes without a report among them
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"

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
        # A report as a line of JSON has at most this many bytes.
        self._longest_piece = max(_LONGEST_PIECE, 32 * self.task.num_samples)

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
            if not path.is_file():  # a pipe would keep us waiting
                raise OSError(errno.EINVAL, "not a file")
            with path.open("rb") as stream:
                self.add_stream(stream, name)
        except OSError as error:
            reason = error.strerror or str(error)
            self._refuse((name, 0), f"unreadable: {reason}; how many reports it has is unknown")

    def add_stream(self, stream: BinaryIO, name: str) -> None:
        """Reports one after another, as bytes or as lines of JSON, and what else is there."""
        chunk = stream.read(_CHUNK_BYTES)
        if len(chunk) == self.task.report_bytes:
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

    def _add_text(self, name: str, offset: int, text: bytes) -> None:
        """What stands between reports in bytes: lines of JSON, and damage."""
        damage = b""
        for line in text.splitlines(keepends=True):
            if _is_json(line):
                self._refuse_piece((name, offset - len(damage)), damage)
                damage = b""
                try:
                    self._add_one((name, offset), encode(self.task, from_json(self.task, line)))
                except ClientError as error:
                    self._refuse((name, offset), str(error))
            else:
                damage += line
            offset += len(line)
        self._refuse_piece((name, offset - len(damage)), damage)

    def _refuse_piece(self, place: Place, piece: bytes) -> None:
        """Bytes that are no report of this task, and may be many of another."""
        name, offset = place
        for part in _foreign_reports(piece) if piece.strip() else ():
            reason = self._reason(part)
            if len(part) > self.task.report_bytes and not part.startswith(MAGIC):
                reason += f"; how many reports these {len(part):,} bytes were is unknown"
            self._refuse((name, offset), reason)
            offset += len(part)

    def _add_bytes(self, stream: BinaryIO, name: str, start: bytes) -> None:
        """A stream of reports of one size; after damage it goes on at the next header."""
        self._flush()  # the first report of a node counts, and these came later
        data, at, offset, rows, ended = start, 0, 0, _LARGEST_BLOCK, False
        size = self.task.report_bytes
        while at < len(data):
            while not ended and len(data) - at < max(size * rows, 2 * self._longest_piece):
                more = stream.read(_CHUNK_BYTES)
                data, at, offset, ended = data[at:] + more, 0, offset + at, not more
            whole = min((len(data) - at) // size, rows)
            block = np.frombuffer(data, np.uint8, whole * size, at).reshape(whole, size)
            good = intact(self.task, block)
            length, aligned = self._refuse_broken(data, at, good, (name, offset), at_end=ended)
            kept = np.flatnonzero(good[: -(-length // size)])
            places = (offset + at + kept * size).tolist()
            self._accept(block[kept], [(name, place) for place in places])
            at += length
            # A stream in shreds is looked at in small blocks, not a large one for each shred.
            rows = min(2 * rows, _LARGEST_BLOCK) if aligned else _SMALLEST_BLOCK

    def _refuse_broken(
        self, data: bytes, at: int, good: Array, origin: Place, *, at_end: bool
    ) -> tuple[int, bool]:
        """Refuse what is not a report; returns how many bytes from ``at`` on are dealt with.

        The second value says whether the next report is where it should be.
        """
        size, mark = self.task.report_bytes, header(self.task)
        name, offset = origin
        broken = np.flatnonzero(~good).tolist()
        if at_end and 0 < len(data) - at - len(good) * size < size:
            broken.append(len(good))  # the last bytes are too few
        for i in broken:
            start = at + i * size
            following = data.find(mark, start + 1)
            if following < 0 and at_end:
                following = len(data)
            elif following < 0 and len(data) - start > self._longest_piece:
                # Up to the last report of another task, to the end of a line, or to where a header
                # may have begun.
                last, other = len(data) - len(mark) + 1, data[start : start + len(mark)]
                following = data.rfind(other, start + 1) if other.startswith(MAGIC) else -1
                if following < 0:
                    following = data.rfind(b"\n", start, last) + 1 or last
            elif following < 0:
                return start - at, True  # the rest is still to be read
            piece = data[start:following]
            if b"{" in piece and any(map(_is_json, piece.splitlines())):
                if start > at:
                    return start - at, False  # what comes before it is taken first
                self._add_text(name, offset + start, piece)
                self._flush()
                return following - at, False
            self._refuse_piece((name, offset + start), piece)
            if following != start + size:
                return following - at, False
        return len(good) * size, True

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
    """What lies below a folder; links to folders are not followed, since they may go round."""
    try:
        entries = sorted(folder.iterdir())
    except OSError as error:
        raise InputError("reports", folder, f"cannot be read ({error.strerror or error})") from None
    for path in entries:
        if path.name.startswith("."):
            continue
        if path.is_dir() and not path.is_symlink():
            yield from _files(path)
        else:
            yield path


def _foreign_reports(piece: bytes) -> Iterator[bytes]:
    """Cut bytes where another report of some other task begins; its length is not known here.

    That is where the bytes before are a whole report by their checksum, or where the header that
    they begin with comes again.
    """
    start = summed = crc = 0
    for found in re.finditer(MAGIC, piece):
        here = found.start()
        end = here - CHECKSUM_BYTES
        if end <= start + HEADER_BYTES:
            continue
        crc, summed = zlib.crc32(piece[summed:end], crc), end
        whole = crc == int.from_bytes(piece[end:here], "big")
        if whole or piece.startswith(piece[start : start + HEADER_BYTES - 4], here):
            yield piece[start:here]
            start, summed, crc = here, here, 0
    yield piece[start:]


def _is_json(line: bytes) -> bool:
    return line.lstrip().removeprefix(_BYTE_ORDER_MARK)[:1] == b"{"
