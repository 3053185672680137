"""The collector: reports in, what is valid out, and a reason for each report that is refused."""

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
    Published,
    Question,
    decode,
    encode,
    from_json,
)
from lpgnn.errors import InputError
from lpgnn.privacy.payloads import header, intact, read_payloads, split_rows

_LARGEST_BLOCK = 2**16  # reports that are looked at together
_BLOCK_BYTES = 2**24  # of such reports, should they be long
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
    """Takes reports as they come and keeps the first valid one of each node.

    They are of one task, and the nodes that are asked send a label; or answers to one question.
    """

    task: Published
    asked: Array  # [N] bool: who is asked for a label, or the question
    on_refusal: Callable[[Refusal], None] = lambda refusal: None
    refused: Counter[str] = field(default_factory=Counter)  # by kind
    examples: dict[str, Refusal] = field(default_factory=dict)
    num_accepted: int = 0

    def __post_init__(self) -> None:
        n = self.task.num_nodes
        self._received = np.zeros(n, dtype=np.bool_)
        self._payloads = np.zeros((n, self.task.payload_bytes), dtype=np.uint8)
        self._pending: list[tuple[Place, bytes]] = []
        # A report as a line of JSON has at most this many bytes.
        self._longest_piece = max(_LONGEST_PIECE, 32 * self.task.num_samples)

    def received(self) -> tuple[Array, Array]:
        """Whose reports have come so far, and their payloads.  -> [N] bool, [N, n] uint8"""
        self._flush()
        return self._received.copy(), self._payloads.copy()

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

    def _read_text(self, name: str, offset: int, text: bytes) -> Iterator[tuple[int, bytes]]:
        """What stands between reports in bytes: lines of JSON, and damage, which is refused.

        Yields the offset and the bytes of every report.
        """
        at = damaged = 0  # what lies between the two is no JSON
        for line in text.splitlines(keepends=True):
            here, at = at, at + len(line)
            if _is_json(line):
                self._refuse_piece((name, offset + damaged), text[damaged:here])
                damaged = at
                try:
                    yield offset + here, encode(self.task, from_json(self.task, line))
                except ClientError as error:
                    self._refuse((name, offset + here), str(error))
        self._refuse_piece((name, offset + damaged), text[damaged:])

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
        data, offset, ended = start, 0, False
        while data or not ended:
            parts, length = [data], len(data)
            while not ended and length < max(_CHUNK_BYTES, 2 * self._longest_piece):
                more = stream.read(_CHUNK_BYTES)
                parts.append(more)
                length, ended = length + len(more), not more
            data = b"".join(parts)
            done = self._add_part(data, (name, offset), at_end=ended)
            data, offset = data[done:], offset + done

    def _add_part(self, data: bytes, origin: Place, *, at_end: bool) -> int:
        """Take the reports in a part of a stream; returns how many bytes are dealt with."""
        name, offset = origin
        size = self.task.report_bytes
        heads = _places(header(self.task), data)
        starts = _apart(self._intact_at(data, heads), size)
        outside = heads[~_covered(heads, starts, size)]  # headers of what is not intact
        end = len(data) if at_end else self._settled(data, starts, outside)
        # A piece that is no report goes on to the next header, intact or not.
        edges = np.sort(np.concatenate([starts, outside]), kind="stable")
        begins = np.append(0, edges + size * _covered(edges, starts, size))
        ends = np.minimum(np.append(edges, end), end)
        pieces = np.stack([begins, ends], axis=1)[begins < ends].tolist()
        found: list[tuple[int, bytes]] = []
        for a, b in pieces:
            piece = data[a:b]
            if b"{" in piece and any(map(_is_json, piece.splitlines())):
                found += self._read_text(name, offset + a, piece)
            else:
                self._refuse_piece((name, offset + a), piece)
        block = _windows(data, size)[starts]
        places = starts + offset
        if found:  # in the order in which they came, whatever their form
            rows = np.frombuffer(b"".join(wire for _, wire in found), np.uint8).reshape(-1, size)
            places = np.append(places, [place for place, _ in found])
            order = places.argsort()
            block, places = np.concatenate([block, rows])[order], places[order]
        for first in range(0, len(block), _LARGEST_BLOCK):
            part = slice(first, first + _LARGEST_BLOCK)
            self._accept(block[part], [(name, place) for place in places[part].tolist()])
        return end

    def _intact_at(self, data: bytes, heads: Array) -> Array:
        """Those of the headers which an intact report starts with."""
        size = self.task.report_bytes
        heads = heads[heads + size <= len(data)]
        rows = min(_LARGEST_BLOCK, max(1, _BLOCK_BYTES // size))
        parts = [heads[first : first + rows] for first in range(0, len(heads), rows)]
        windows = _windows(data, size)
        return np.concatenate(
            [heads[:0], *(part[intact(self.task, windows[part])] for part in parts)]
        )

    def _settled(self, data: bytes, starts: Array, outside: Array) -> int:
        """Up to where it is clear what the bytes are, whatever follows them."""
        size, mark = self.task.report_bytes, header(self.task)
        start = int(starts[-1]) + size if len(starts) else 0
        cut_off = outside[(outside + size > len(data)) & (outside >= start)]
        if len(cut_off):
            start = int(cut_off[0])
        elif len(outside):
            start = max(start, int(outside[-1]))
        if len(data) - start <= self._longest_piece:
            return start
        # Up to the last report of another task, to the end of a line, or to where a header may
        # have begun.
        last, other = len(data) - len(mark) + 1, data[start : start + len(mark)]
        end = data.rfind(other, start + 1) if other.startswith(MAGIC) else -1
        return end if end >= 0 else data.rfind(b"\n", start, last) + 1 or last

    def _accept(self, block: Array, places: Sequence[Place]) -> None:
        """Keep intact reports that are valid and the first of their node.  [k, size] uint8"""
        nodes, payloads = split_rows(block)
        read = read_payloads(self.task, payloads)
        valid = read.valid & (nodes < self.task.num_nodes)
        for i in np.flatnonzero(~valid).tolist():
            self._refuse(places[i], self._reason(block[i].tobytes()))
        known = np.where(valid, nodes, 0)
        expected = (read.labels >= 0) == self.asked[known]
        what = "answer" if isinstance(self.task, Question) else "label"
        for i in np.flatnonzero(valid & ~expected).tolist():
            wrong = "is missing" if self.asked[nodes[i]] else "was not asked for"
            self._refuse(places[i], f"{what} of node {nodes[i]}: {wrong}")
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


def _places(mark: bytes, data: bytes) -> Array:
    """Where a mark is found, overlapping ones too."""
    found, at = [], data.find(mark)
    while at >= 0:
        found.append(at)
        at = data.find(mark, at + 1)
    return np.array(found, dtype=np.int64)


def _windows(data: bytes, size: int) -> Array:
    """The bytes from every place on, without a copy.  -> [places, size] uint8"""
    if len(data) < size:
        return np.zeros((0, size), dtype=np.uint8)
    return np.lib.stride_tricks.sliding_window_view(np.frombuffer(data, np.uint8), size)


def _apart(starts: Array, size: int) -> Array:
    """Of reports that overlap, which a sender may contrive, the first one."""
    if (np.diff(starts) >= size).all():
        return starts
    kept: list[int] = []
    for start in starts.tolist():
        if not kept or start >= kept[-1] + size:
            kept.append(start)
    return np.array(kept, dtype=np.int64)


def _covered(places: Array, starts: Array, size: int) -> Array:
    """Which places lie within reports that begin at the starts."""
    if not len(starts):
        return np.zeros(len(places), dtype=np.bool_)
    before = np.searchsorted(starts, places, side="right") - 1
    found: Array = (before >= 0) & (places < starts[before] + size)
    return found


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
