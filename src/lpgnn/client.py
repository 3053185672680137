"""What runs on a user's device: private data in, one private report out.

One file, standard library only, to be read and ported.  A server publishes a *task*; the device
turns its feature vector and its label into a *report* under that task, once, and never again.

    task = Task.parse(Path("task.json").read_bytes())
    with Ledger("ledger.db", limit=2.0) as ledger:
        wire = ledger.report(task, node=17, features=[0.0, 1.0, 0.0], asked=True, label=2)

Privacy.  Features go through the multi-bit mechanism (paper Algorithm 1) and the label through
k-ary randomized response (paper Eq. rr).  All probabilities are whole multiples of 2^-64, computed
in whole numbers and rounded towards more privacy, and all draws come from ``secrets``: the ratio of
the probabilities of a report under any two inputs is at most e^x_eps times e^y_eps, exactly.

A task may leave the features to *questions*, which the server publishes when it has learnt from the
labels: then a report has the label alone, and the device answers one question in its life about
its features, at x_eps, whatever it asks.

    question = Question.parse(Path("question.json").read_bytes(), task)
    with Ledger("ledger.db") as ledger:
        wire = ledger.answer(task, question, node=17, features=[0.0, 1.0, 0.0])

The task is a JSON object of exactly these members; its hash is SHA-256 of the published bytes, cut
to 8 bytes, so that no client has to write numbers as another language does:

    lpgnn_task       1, the version of this format
    name, salt       text; a new salt makes a new task, which spends anew
    graph            text; the digest of the public graph, which the client does not look at
    num_nodes        N; nodes are numbered 0..N-1
    mechanism        "mb", or "questions": the features are asked about later
    x_eps            the budget of the whole feature vector, or of the one answer about it
    num_features     d
    num_samples      m, how many features a report speaks of; 0 with questions
    ranges           [[low, high]] for all features, or d such pairs; values outside are clamped
    missing          what NaN stands for, from 0 (low) to 1 (high)
    label_mechanism  "rr"
    y_eps            the budget of the label
    num_classes      c

A question is a JSON object, too.  All of its numbers are whole:

    lpgnn_question   1, the version of this format
    task             16 hex digits, the hash of its task
    nodes            the nodes that are asked, ascending
    kind             "vector": which of K public vectors does yours resemble?
                     "score": in which of k cells does your score lie?

    candidates       of a vector question: K, of which the answer names one
    near             t: the t candidates with the largest products count as near

    directions       of a score question: w, c lists of d numbers of at most 2^24
    places           they are multiples of 2^-places, which the client does not look at
    pairs            for each of the nodes its two classes [a, b]
    thresholds       [a, b, [the k - 1 cuts between cells, rising]] for each pair that is asked about

What is asked about is z = sqrt(x / sum x), with x the positions of the features in their ranges, in
whole numbers: X_i = floor(2^32 x_i + 1/2), z_i = floor(sqrt(floor(2^48 X_i / sum X))), in units of
2^-24.  The score is sum_i (w_a,i - w_b,i) z_i, and a cell begins above its cut.  Candidate k of a
node is G_0..G_d, with G_i the number of ones, less 16, among the bits of bytes 4i..4i+3 of
SHAKE-256 of "lpgnn candidate", the question's hash (8 bytes), the node and k (4 bytes each,
big-endian); its product is sum_i G_i z_i, or G_d where z is zero, and of equal ones the first
counts as larger.  The answer is the cell, or a near candidate, with a probability that is at most
e^x_eps times that of any other: k-ary randomized response, or subset selection among candidates
(modified minimal random coding; Shah, Chen, Balle, Kairouz and Theis, AISTATS 2022).  An answer is
sent as a report without features, under the hash of the question: its "label" is the answer.

A report is a fixed number of bytes, whatever it holds:

    0   2   "LP"
    2   1   version, 1
    3   8   hash of the task
    11  4   node, big-endian
    15  n   payload, bits from the most significant one on:
              m indices of ceil(log2 d) bits each, ascending (none if m = d: they are all)
              m bits: 1 for +1, 0 for -1
              the label in ceil(log2(c + 1)) bits; c means that it was not asked for
              zeros up to a whole byte
    15+n 4  CRC-32 of all bytes before it, big-endian

and, where bytes are in the way, one line of JSON:

    {"lpgnn_report": 1, "task": "<16 hex digits>", "node": 17, "indices": [3], "bits": [-1], "label": null}
"""  # noqa: E501 - a report in JSON is one line

import argparse
import hashlib
import heapq
import json
import math
import os
import secrets
import sqlite3
import struct
import sys
import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

VERSION = 1
MAGIC = b"LP"
HEADER_BYTES = 15
CHECKSUM_BYTES = 4
# Every probability is a whole multiple of 2^-PRECISION.
PRECISION = 64
_WORKING_BITS = 256  # of the fixed-point numbers behind e^x

# Positions in a range, and entries of z, are whole multiples of these powers of two.
_POSITION_PLACES, VECTOR_PLACES = 32, 24
# A candidate's entry is a binomial number of so many fair bits, less half of them.
CANDIDATE_BITS = 32
LARGEST_DIRECTION = 1 << 24
_LARGEST_THRESHOLD = 1 << 62
_MOST_CANDIDATES, _MOST_CELLS = 2**16, 64

_LARGEST_EPSILON = 10**6
_MOST_FEATURES, _MOST_CLASSES, _MOST_NODES = 2**24, 2**16, 2**32
_SIMULATION_ONLY = ("lp", "ag", "1b")

RandomBits = Callable[[int], int]  # k -> a uniform whole number of k bits
Features = Sequence[float | None] | Mapping[int, float | None]


class ClientError(ValueError):
    """A task, report or input that cannot be used, in one line."""


class Published:
    """What a server has made known, a task or a question, and the size of reports under it."""

    source: bytes  # as it was published
    num_nodes: int
    num_features: int
    num_samples: int
    num_classes: int  # or answers

    @cached_property
    def hash(self) -> bytes:
        return hashlib.sha256(self.source).digest()[:8]

    @property
    def index_bits(self) -> int:
        all_of_them = self.num_samples in (0, self.num_features)
        return 0 if all_of_them else (self.num_features - 1).bit_length()

    @property
    def label_bits(self) -> int:
        return self.num_classes.bit_length()  # c + 1 codes

    @property
    def payload_bits(self) -> int:
        return self.num_samples * (self.index_bits + 1) + self.label_bits

    @property
    def payload_bytes(self) -> int:
        return -(-self.payload_bits // 8)

    @property
    def report_bytes(self) -> int:
        return HEADER_BYTES + self.payload_bytes + CHECKSUM_BYTES


@dataclass(frozen=True)
class Task(Published):
    """A published task; ``parse`` is the way to make one, and checks everything."""

    name: str
    salt: str
    graph: str
    num_nodes: int
    x_eps: Fraction
    num_features: int
    num_samples: int
    ranges: tuple[tuple[Fraction, Fraction], ...] = field(repr=False)
    missing: Fraction
    y_eps: Fraction
    num_classes: int
    source: bytes = field(repr=False)  # as it was published

    @classmethod
    def parse(cls, source: bytes) -> "Task":
        """Read a published task; what is wrong with it is one line of a ClientError."""
        content = _object("task", source)
        version = content.get("lpgnn_task")
        if not _is_whole(version, VERSION, VERSION):
            raise ClientError(f"task: lpgnn_task={_shown(version)}: must be {VERSION}")
        _check_members("task", content, _TASK_MEMBERS)
        for name in ("name", "salt", "graph"):
            if not isinstance(content[name], str):
                raise ClientError(f"task: {name}={_shown(content[name])}: must be text")
        mechanism, labels = content["mechanism"], content["label_mechanism"]
        if mechanism in _SIMULATION_ONLY:
            instead = " with num_samples = num_features" if mechanism == "1b" else ""
            raise ClientError(
                f"task: mechanism={mechanism}: is for simulation only; devices send mb{instead}"
            )
        if mechanism not in ("mb", "questions"):
            raise ClientError(f"task: mechanism={_shown(mechanism)}: must be mb or questions")
        if labels != "rr":
            raise ClientError(f"task: label_mechanism={_shown(labels)}: must be rr")
        d = _whole("task", "num_features", content["num_features"], 1, _MOST_FEATURES)
        samples = (1, d) if mechanism == "mb" else (0, 0)
        return cls(
            name=content["name"],
            salt=content["salt"],
            graph=content["graph"],
            num_nodes=_whole("task", "num_nodes", content["num_nodes"], 1, _MOST_NODES),
            x_eps=_budget("x_eps", content["x_eps"]),
            num_features=d,
            num_samples=_whole("task", "num_samples", content["num_samples"], *samples),
            ranges=_ranges(content["ranges"], d),
            missing=_share("missing", content["missing"]),
            y_eps=_budget("y_eps", content["y_eps"]),
            num_classes=_whole("task", "num_classes", content["num_classes"], 2, _MOST_CLASSES),
            source=source,
        )._checked()

    def _checked(self) -> "Task":
        if 2 * self.lowest_weight() >= 1 << PRECISION:
            raise ClientError(f"task: x_eps={float(self.x_eps):g}: is too small to say anything")
        if self.flip_weight() >= self.keep_weight():
            raise ClientError(f"task: y_eps={float(self.y_eps):g}: is too small to say anything")
        return self

    @property
    def has_questions(self) -> bool:
        """Whether the features are asked about later, and a report has the label alone."""
        return self.num_samples == 0

    def cost(self, *, asked: bool) -> Fraction:
        """What a report spends, of a device that is asked for its label or is not."""
        features = Fraction(0) if self.has_questions else self.x_eps
        return features + (self.y_eps if asked else 0)

    def lowest_weight(self) -> int:
        """2^64 times the probability of a bit's less likely value, rounded up."""
        return _least_weight(self.x_eps / max(self.num_samples, 1), 1, PRECISION)

    def bit_weight(self, position: Fraction) -> int:
        """2^64 p(t = 1 | x) of Algorithm 1, line 4, for x at a position in [0, 1] of its range.

        Both it and its complement lie between the lowest weight and 2^64 less that, however the
        position is rounded: this alone keeps the budget.
        """
        lowest = self.lowest_weight()
        spread = (1 << PRECISION) - 2 * lowest
        return lowest + (2 * position.numerator * spread + position.denominator) // (
            2 * position.denominator
        )

    def flip_weight(self) -> int:
        """2^64 times the probability of one particular other class, rounded up."""
        return _least_weight(self.y_eps, self.num_classes - 1, PRECISION)

    def keep_weight(self) -> int:
        return (1 << PRECISION) - (self.num_classes - 1) * self.flip_weight()

    def position(self, feature: int, value: float | None) -> Fraction:
        """Where a value lies in its public range: clamped to [0, 1], NaN at a public place."""
        if value is None or value != value:
            return self.missing
        low, high = self.ranges[feature if len(self.ranges) > 1 else 0]
        if isinstance(value, float) and math.isinf(value):
            return Fraction(int(value > 0))
        return min(max((Fraction(value) - low) / (high - low), Fraction(0)), Fraction(1))


@dataclass(frozen=True)
class Question(Published):
    """A published question about the features; ``parse`` is the way to make one.

    Whatever it asks, the answer costs the x_eps of its task and is drawn by ``answer_weight``.
    """

    task: bytes  # the hash of its task
    kind: str  # "vector" or "score"
    nodes: tuple[int, ...] = field(repr=False)  # ascending
    near: int  # how many answers are likelier than all others: t, or the one cell
    num_classes: int  # how many answers there are: K or k
    directions: tuple[tuple[int, ...], ...] = field(repr=False)  # none of a vector question
    places: int
    pairs: tuple[tuple[int, int], ...] = field(repr=False)
    thresholds: Mapping[tuple[int, int], tuple[int, ...]] = field(repr=False)
    num_nodes: int
    num_features: int
    source: bytes = field(repr=False)
    num_samples: int = 0

    @classmethod
    def parse(cls, source: bytes, task: Task) -> "Question":
        """Read a question under its task; what is wrong is one line of a ClientError."""
        content = _object("question", source)
        version = content.get("lpgnn_question")
        if not _is_whole(version, VERSION, VERSION):
            raise ClientError(f"question: lpgnn_question={_shown(version)}: must be {VERSION}")
        kind = content.get("kind")
        if not isinstance(kind, str) or kind not in _QUESTION_MEMBERS:
            raise ClientError(f"question: kind={_shown(kind)}: must be vector or score")
        _check_members("question", content, _QUESTION_MEMBERS[kind])
        _check_task(content["task"], task)
        if not task.has_questions:
            raise ClientError("question: its task has no questions: features went with the report")
        nodes = _nodes(content["nodes"], task.num_nodes)
        directions: tuple[tuple[int, ...], ...] = ()
        pairs: tuple[tuple[int, int], ...] = ()
        thresholds: dict[tuple[int, int], tuple[int, ...]] = {}
        places = 0
        if kind == "vector":
            size = _whole("question", "candidates", content["candidates"], 2, _MOST_CANDIDATES)
            near = _whole("question", "near", content["near"], 1, size - 1)
        else:
            directions = _directions(content["directions"], task.num_classes, task.num_features)
            places = _whole("question", "places", content["places"], -1000, 1000)
            pairs = _pairs(content["pairs"], len(nodes), task.num_classes)
            thresholds = _thresholds(content["thresholds"], pairs, task.num_classes)
            near, size = 1, len(thresholds[pairs[0]]) + 1
        found = cls(
            task=task.hash,
            kind=kind,
            nodes=nodes,
            near=near,
            num_classes=size,
            directions=directions,
            places=places,
            pairs=pairs,
            thresholds=thresholds,
            num_nodes=task.num_nodes,
            num_features=task.num_features,
            source=source,
        )
        if found.answer_weight(task) * size >= 1 << PRECISION:
            eps = f"{float(task.x_eps):g}"
            raise ClientError(f"question: x_eps={eps}: is too small to say anything")
        return found

    def answer_weight(self, task: Task) -> int:
        """2^64 times the probability of one particular answer that is not near, rounded up.

        2^64 / (t e^x_eps + K - t): the near ones share the rest, which makes each of them at most
        e^x_eps times as likely.
        """
        return _least_weight(task.x_eps, self.num_classes - self.near, PRECISION, self.near)

    def cell(self, z: Mapping[int, int], node: int) -> int:
        """The honest answer to a score question, from a vector in whole numbers."""
        a, b = self.pairs[bisect_left(self.nodes, node)]
        one, other = self.directions[a], self.directions[b]
        score = sum((one[i] - other[i]) * entry for i, entry in z.items())
        return sum(score > cut for cut in self.thresholds[a, b])

    def nearest(self, z: Mapping[int, int], node: int) -> list[int]:
        """The near candidates of a vector question, ascending."""
        entries = z or {self.num_features: 1}
        words = struct.Struct(f">{self.num_features + 1}I")
        products = []
        for k in range(self.num_classes):
            # Less 16 for each entry it would be the product: that is the same for all candidates.
            ones = words.unpack(candidate(self, node, k))
            products.append((-sum(ones[i].bit_count() * entries[i] for i in entries), k))
        return sorted(k for _, k in heapq.nsmallest(self.near, products))

    def __contains__(self, node: int) -> bool:
        """Whether a node is asked."""
        place = bisect_left(self.nodes, node)
        return place < len(self.nodes) and self.nodes[place] == node


def candidate(question: Question, node: int, k: int) -> bytes:
    """The bytes of candidate k of a node, four for each of d + 1 entries."""
    numbers = node.to_bytes(4, "big") + k.to_bytes(4, "big")
    seed = b"lpgnn candidate" + question.hash + numbers
    return hashlib.shake_256(seed).digest(CANDIDATE_BITS // 8 * (question.num_features + 1))


def unit_vector(task: Task, features: Features) -> dict[int, int]:
    """z = sqrt(x / sum x) in units of 2^-24, its entries other than 0; empty where x is zero."""
    values = features if isinstance(features, Mapping) else dict(enumerate(features))
    shared, twice, x = len(task.ranges) == 1, 2 << _POSITION_PLACES, {}
    for i in range(task.num_features):
        value = values.get(i, 0.0)
        if value != 0 or task.ranges[0 if shared else i][0] < 0:  # else it is at or below its range
            x[i] = (twice * task.position(i, value) + 1) // 2
    total = sum(x.values())
    roots = {i: math.isqrt((own << 2 * VECTOR_PLACES) // total) for i, own in x.items() if own}
    return {i: root for i, root in sorted(roots.items()) if root}


@dataclass(frozen=True)
class Report:
    """What one user sends."""

    node: int
    indices: tuple[int, ...]  # ascending
    bits: tuple[int, ...]  # -1 or 1 for each index
    label: int | None  # None: not asked for


def write_task(
    *,
    name: str,
    graph: str,
    num_nodes: int,
    x_eps: float,
    num_features: int,
    num_samples: int,
    y_eps: float,
    num_classes: int,
    ranges: Sequence[tuple[float, float]] = ((0, 1),),
    missing: float = 0.5,
    salt: str | None = None,
) -> bytes:
    """A task as it is published, checked; of no samples: one that leaves features to questions."""
    members = {
        "lpgnn_task": VERSION,
        "name": name,
        "salt": secrets.token_hex(16) if salt is None else salt,
        "graph": graph,
        "num_nodes": num_nodes,
        "mechanism": "mb" if num_samples else "questions",
        "x_eps": x_eps,
        "num_features": num_features,
        "num_samples": num_samples,
        "ranges": [list(pair) for pair in ranges],
        "missing": missing,
        "label_mechanism": "rr",
        "y_eps": y_eps,
        "num_classes": num_classes,
    }
    source = (json.dumps(members, indent=1) + "\n").encode()
    Task.parse(source)
    return source


def perturb(
    task: Task,
    *,
    node: int,
    features: Features,
    asked: bool,
    label: int | None = None,
    random_bits: RandomBits = secrets.randbits,
) -> Report:
    """Draw a report.  A device calls ``Ledger.report``, which draws once and remembers.

    features: d numbers, or {feature: number} where absent ones are 0; None and NaN are missing.
    asked: whether the server asks this node for its label.  A node that is asked and has none
    reports a class at random, which costs no more than a label does.
    """
    _check_inputs(task, node, features, asked, label)
    indices = _sample(task.num_features, task.num_samples, random_bits)
    bits = []
    for i in indices:
        value = features.get(i, 0.0) if isinstance(features, Mapping) else features[i]
        weight = task.bit_weight(task.position(i, value))
        bits.append(1 if random_bits(PRECISION) < weight else -1)
    sent = None
    if asked and label is None:
        sent = _below(task.num_classes, random_bits)
    elif asked and label is not None:
        c = task.num_classes
        others = [(label + shift) % c for shift in range(1, c)]
        sent = _pick([label], others, task.flip_weight(), random_bits)
    return Report(node, tuple(indices), tuple(bits), sent)


def answer(
    task: Task,
    question: Question,
    *,
    node: int,
    features: Features,
    random_bits: RandomBits = secrets.randbits,
) -> Report:
    """Draw an answer.  A device calls ``Ledger.answer``, which draws once and remembers."""
    _check_question(task, question, node, features)
    z = unit_vector(task, features)
    near = question.nearest(z, node) if question.kind == "vector" else [question.cell(z, node)]
    others = sorted(set(range(question.num_classes)) - set(near))
    chosen = _pick(near, others, question.answer_weight(task), random_bits)
    return Report(node, (), (), chosen)


def encode(task: Published, report: Report) -> bytes:
    """A report as bytes, in the layout above."""
    _check_report(task, report)
    payload = 0
    if task.index_bits:
        for index in report.indices:
            payload = payload << task.index_bits | index
    for bit in report.bits:
        payload = payload << 1 | (bit == 1)
    code = task.num_classes if report.label is None else report.label
    payload = payload << task.label_bits | code
    payload <<= 8 * task.payload_bytes - task.payload_bits
    body = (
        MAGIC
        + bytes([VERSION])
        + task.hash
        + report.node.to_bytes(4, "big")
        + payload.to_bytes(task.payload_bytes, "big")
    )
    return body + zlib.crc32(body).to_bytes(CHECKSUM_BYTES, "big")


def decode(task: Published, wire: bytes) -> Report:
    """A report from its bytes; what is wrong with them is one line of a ClientError."""
    if wire[:2] != MAGIC:
        raise ClientError("not a report: it does not start with LP")
    if len(wire) > 2 and wire[2] != VERSION:
        raise ClientError(f"version {wire[2]}: must be {VERSION}")
    if len(wire) >= 11 and wire[3:11] != task.hash:
        raise ClientError(f"task {wire[3:11].hex()}: must be {task.hash.hex()}")
    if len(wire) != task.report_bytes:
        raise ClientError(f"length {len(wire)}: must be {task.report_bytes} bytes")
    if zlib.crc32(wire[:-CHECKSUM_BYTES]) != int.from_bytes(wire[-CHECKSUM_BYTES:], "big"):
        raise ClientError("damaged: the checksum does not match")
    payload = int.from_bytes(wire[HEADER_BYTES:-CHECKSUM_BYTES], "big")
    padding = 8 * task.payload_bytes - task.payload_bits
    if payload & ((1 << padding) - 1):
        raise ClientError("padding: must be zeros")
    payload >>= padding
    code = payload & ((1 << task.label_bits) - 1)
    payload >>= task.label_bits
    m = task.num_samples
    bits = tuple(2 * (payload >> (m - 1 - i) & 1) - 1 for i in range(m))
    payload >>= m
    width, mask = task.index_bits, (1 << task.index_bits) - 1
    indices = tuple(payload >> (m - 1 - i) * width & mask for i in range(m)) if width else range(m)
    label = None if code == task.num_classes else code
    report = Report(int.from_bytes(wire[11:15], "big"), tuple(indices), bits, label)
    _check_report(task, report)
    return report


def to_json(task: Published, report: Report) -> str:
    """A report as one line of JSON."""
    _check_report(task, report)
    members = {
        "lpgnn_report": VERSION,
        "task": task.hash.hex(),
        "node": report.node,
        "indices": list(report.indices),
        "bits": list(report.bits),
        "label": report.label,
    }
    return json.dumps(members)


def from_json(task: Published, line: bytes | str) -> Report:
    """A report from its line of JSON; what is wrong with it is one line of a ClientError."""
    content = _object("report", line.encode() if isinstance(line, str) else line)
    version = content.get("lpgnn_report")
    if not _is_whole(version, VERSION, VERSION):
        raise ClientError(f"version {_shown(version)}: must be {VERSION}")
    _check_members("report", content, _REPORT_MEMBERS)
    if content["task"] != task.hash.hex():
        raise ClientError(f"task {_shown(content['task'])}: must be {task.hash.hex()}")
    for name in ("indices", "bits"):
        if not isinstance(content[name], list):
            raise ClientError(f"{name} {_shown(content[name])}: must be a list")
    report = Report(
        content["node"], tuple(content["indices"]), tuple(content["bits"]), content["label"]
    )
    _check_report(task, report)
    return report


class Ledger:
    """What a user may spend and has spent, and the reports drawn for it; a file of SQLite.

    A task is answered once: asked again, the same report is sent again, since a second draw would
    spend the budget a second time.  Of all questions of a task one is answered, and no other is,
    since each costs the whole x_eps.  All tasks together may spend ``limit``.  It is the user's
    word, given when the ledger is first used and kept in it: no task can raise it, and to open a
    ledger with another limit is an error.  Only ``change_limit`` sets a new one.  The report is on
    disk before it is returned, so that a crash cannot lead to a second draw.

    A seal, SHA-256 over the limit and all reports, stands beside them: nothing is drawn from a
    ledger that does not match it, nor from a file that is there and empty.  A ledger that is
    deleted, or put back as it was, cannot be told from one that is right.
    """

    def __init__(self, path: str | Path, *, limit: float | Fraction | None = None) -> None:
        self.path = Path(path)
        wanted = None if limit is None else _limit_text(limit)
        if not os.path.lexists(self.path):
            self._create(wanted)
        with self._errors_named():
            self._database = _connect(self.path, "rw")
        try:
            with self._alone():
                self._agree(wanted)
        except BaseException:
            self._database.close()
            raise

    def __enter__(self) -> "Ledger":
        return self

    def __exit__(self, *error: object) -> None:
        self._database.close()

    @property
    def limit(self) -> Fraction | None:
        """What all tasks together may spend; None: as much as they ask for."""
        with self._alone():
            return self._content().limit

    def change_limit(self, limit: float | Fraction) -> None:
        """Replace the limit, on the word of the user and never on that of a task."""
        wanted = _limit_text(limit)
        with self._alone():
            self._keep(_Content(wanted, self._content().reports))

    def spent(self) -> Fraction:
        """The total budget of the reports drawn so far."""
        with self._alone():
            return self._content().spent

    def report(
        self,
        task: Task,
        *,
        node: int,
        features: Features,
        asked: bool,
        label: int | None = None,
    ) -> bytes:
        """The report of this device under a task: drawn now, or the one that was drawn before."""
        _check_inputs(task, node, features, asked, label)
        with self._alone():
            content = self._content()
            return _remembered(content, task, None, node) or self._drawn(
                content,
                (_name(task, None), node, task.cost(asked=asked)),
                lambda: encode(
                    task, perturb(task, node=node, features=features, asked=asked, label=label)
                ),
            )

    def answer(self, task: Task, question: Question, *, node: int, features: Features) -> bytes:
        """The answer of this device to a question: drawn now, or the one that was drawn before.

        Refused if it has answered another question of the same task.
        """
        _check_question(task, question, node, features)
        with self._alone():
            content = self._content()
            return _remembered(content, task, question, node) or self._drawn(
                content,
                (_name(task, question), node, task.x_eps),
                lambda: encode(question, answer(task, question, node=node, features=features)),
            )

    def _create(self, wanted: str | None) -> None:
        """Make the file under another name and link it into place when it is complete.

        Whoever is killed on the way leaves no ledger, and of two at once the first one's is kept.
        SQLite brings the name to disk with its journal, before the first report is sent.
        """
        if wanted is None:
            missing = "has no limit yet: set what all tasks together may spend (--limit)"
            raise ClientError(f"ledger {self.path}: {missing}")
        unfinished = self.path.with_name(f".{self.path.name}.{secrets.token_hex(8)}.new")
        content = _Content(wanted, ())
        try:
            with self._errors_named():
                database = _connect(unfinished, "rwc")
                try:
                    database.execute("BEGIN IMMEDIATE")
                    database.execute(
                        "CREATE TABLE reports (task TEXT, node INTEGER, spent TEXT, wire BLOB)"
                    )
                    database.execute("CREATE TABLE account (total TEXT, seal TEXT)")
                    account = (content.total, content.seal)
                    database.execute("INSERT INTO account VALUES (?, ?)", account)
                    database.execute("COMMIT")
                finally:
                    database.close()
            os.link(unfinished, self.path)
        except FileExistsError:
            pass
        except OSError as error:
            reason = error.strerror or error
            raise ClientError(f"ledger {self.path}: cannot be created ({reason})") from None
        finally:
            unfinished.unlink(missing_ok=True)

    def _agree(self, wanted: str | None) -> None:
        """A limit that is given must be the one that is kept."""
        kept = self._content().total
        if wanted not in (None, kept):
            found, own = (t if t == _NO_LIMIT else _shown(Fraction(t)) for t in (wanted, kept))
            allowed = f"the limit of ledger {self.path} is {own}; --change-limit replaces it"
            raise ClientError(f"limit={found}: {allowed}")

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Inside, no other process draws, and what fails leaves no trace."""
        with self._errors_named():
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._database.execute("COMMIT")
            except BaseException:
                if self._database.in_transaction:  # some errors end it themselves
                    self._database.execute("ROLLBACK")
                raise

    @contextmanager
    def _errors_named(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
            if code in _NOT_DAMAGE:
                raise ClientError(f"ledger {self.path}: cannot be used ({error})") from None
            raise self._damaged(error) from None
        except UnicodeDecodeError as error:  # SQLite quotes a damaged name in its message
            raise self._damaged(error) from None

    def _damaged(self, reason: object) -> ClientError:
        shown = " ".join(str(reason).split())
        return ClientError(f"damaged ledger {self.path}: {shown}; nothing is drawn from it")

    def _content(self) -> "_Content":
        """All that the ledger holds, if it is as it was written."""
        try:
            accounts = self._database.execute("SELECT total, seal FROM account").fetchall()
            query = "SELECT task, node, spent, wire FROM reports"
            reports = tuple(self._database.execute(query).fetchall())
        except sqlite3.Error:
            raise
        except Exception as error:  # whatever damage makes of a row, it is damage
            raise self._damaged(error) from None
        if len(accounts) != 1:
            raise self._damaged(f"it has {len(accounts)} limits")
        content = _Content(accounts[0][0], reports)
        if accounts[0][1] != content.seal:
            raise self._damaged("its content does not match its seal")
        return content

    def _keep(self, content: "_Content") -> None:
        """Write what is new, and read it again: damage may be where there was nothing to read."""
        known = self._database.execute("SELECT COUNT(*) FROM reports").fetchone()[0]
        for row in content.reports[known:]:
            self._database.execute("INSERT INTO reports VALUES (?, ?, ?, ?)", row)
        account = (content.total, content.seal)
        self._database.execute("UPDATE account SET total = ?, seal = ?", account)
        if self._content() != content:
            raise self._damaged("it does not keep what is written")

    def _drawn(
        self, content: "_Content", entry: tuple[str, int, Fraction], draw: Callable[[], bytes]
    ) -> bytes:
        """Draw what costs no more than is left, and write it down.  entry: name, node, cost"""
        name, node, cost = entry
        spent, limit = content.spent, content.limit
        if limit is not None and spent + cost > limit:
            left = f"{float(spent):g} of {float(limit):g} is spent"
            what = "question" if "/" in name else "task"
            raise ClientError(f"budget: this {what} costs {float(cost):g}, and {left}")
        wire = draw()
        self._keep(_Content(content.total, (*content.reports, (name, node, str(cost), wire))))
        return wire


@dataclass(frozen=True)
class _Content:
    """What a ledger holds, as SQLite gives it; only what matches its seal may be looked into."""

    total: str
    reports: tuple[tuple[str, int, str, bytes], ...]  # name, node, cost, report

    @property
    def seal(self) -> str:
        # Of a damaged row any type may come: ascii() writes them all, and all differently.
        text = ascii(("lpgnn ledger 1", self.total, self.reports))
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def limit(self) -> Fraction | None:
        return None if self.total == _NO_LIMIT else Fraction(self.total)

    @property
    def spent(self) -> Fraction:
        return sum((Fraction(cost) for _, _, cost, _ in self.reports), Fraction(0))


def _name(task: Task, question: Question | None) -> str:
    """What a ledger calls a report: the hash of its task, and after a slash that of a question."""
    return task.hash.hex() if question is None else f"{task.hash.hex()}/{question.hash.hex()}"


def _remembered(
    content: _Content, task: Task, question: Question | None, node: int
) -> bytes | None:
    wanted = _name(task, question)
    for name, drawn_for, _, wire in content.reports:
        of_task, _, of_question = name.partition("/")
        if of_task != task.hash.hex():
            continue
        if drawn_for != node:
            drawn = f"was drawn for node {drawn_for}; one device is one node"
            raise ClientError(f"node={node}: the report for this task {drawn}")
        if name == wanted:
            return wire
        if question is not None and of_question:
            answered = f"another question of its task is answered, {of_question}"
            raise ClientError(f"question: {answered}: its x_eps is spent")
    return None


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    """Open a database; only with the mode "rwc" is one made that is not there."""
    address = f"{path.absolute().as_uri()}?mode={mode}"
    database = sqlite3.connect(address, uri=True, timeout=60, isolation_level=None)
    try:
        database.execute("PRAGMA synchronous = FULL")
    except BaseException:
        database.close()
        raise
    return database


# What the file's surroundings are to blame for; any other error of SQLite is damage.
_NOT_DAMAGE = {
    *(sqlite3.SQLITE_PERM, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_NOMEM),
    *(sqlite3.SQLITE_READONLY, sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_IOERR),
    *(sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN),
}
_NO_LIMIT = "inf"


def _limit_text(limit: Any) -> str:
    """A limit as a ledger keeps it, without rounding: 0.3 is meant as 3/10, as it is in a task."""
    if not _is_number(limit) or not limit > 0:
        raise ClientError(f"limit={_shown(limit)}: must be a number above 0")
    return _NO_LIMIT if limit == math.inf else str(Fraction(str(limit)))


def _exp_below(x: Fraction) -> int:
    """2^256 e^x for x >= 0, rounded down: Taylor's series of x / 2^7, squared seven times."""
    x = min(x, Fraction(64))  # beyond it every weight is 1, and a lower bound is all that counts
    step = (x.numerator << _WORKING_BITS) // (x.denominator << 7)
    total = term = 1 << _WORKING_BITS
    n = 1
    while term:
        term = (term * step >> _WORKING_BITS) // n
        total += term
        n += 1
    for _ in range(7):
        total = total * total >> _WORKING_BITS
    return total


@lru_cache(maxsize=64)
def _least_weight(epsilon: Fraction, others: int, precision: int, near: int = 1) -> int:
    """2^precision / (near e^epsilon + others), rounded up: rare outcomes are made no rarer."""
    whole = near * _exp_below(epsilon) + (others << _WORKING_BITS)
    return -(-(1 << precision + _WORKING_BITS) // whole)


def _below(n: int, random_bits: RandomBits) -> int:
    """A uniform number of 0..n-1: draws of ceil(log2 n) bits until one is small enough."""
    while (draw := random_bits((n - 1).bit_length())) >= n:
        pass
    return draw


def _pick(near: Sequence[int], others: Sequence[int], weight: int, random_bits: RandomBits) -> int:
    """One of the others with a probability of weight / 2^64 each, else any of the near ones."""
    draw = random_bits(PRECISION)
    if draw < len(others) * weight:
        return others[draw // weight]
    return near[_below(len(near), random_bits) if len(near) > 1 else 0]


def _sample(d: int, m: int, random_bits: RandomBits) -> list[int]:
    """A uniform m-subset of range(d), ascending: draws until m are distinct.

    Where m is more than half of d, the features to leave out are drawn instead.
    """
    drawn: set[int] = set()
    while len(drawn) < min(m, d - m):
        drawn.add(_below(d, random_bits))
    return sorted(drawn if 2 * m <= d else set(range(d)) - drawn)


_TASK_MEMBERS = (
    *("lpgnn_task", "name", "salt", "graph", "num_nodes", "mechanism", "x_eps", "num_features"),
    *("num_samples", "ranges", "missing", "label_mechanism", "y_eps", "num_classes"),
)
_ANY_QUESTION = ("lpgnn_question", "task", "nodes", "kind")
_QUESTION_MEMBERS = {
    "vector": (*_ANY_QUESTION, "candidates", "near"),
    "score": (*_ANY_QUESTION, "directions", "places", "pairs", "thresholds"),
}
_REPORT_MEMBERS = ("lpgnn_report", "task", "node", "indices", "bits", "label")


def _object(what: str, source: bytes) -> dict[str, Any]:
    """A JSON object with exact numbers, no NaN and no member twice."""

    def refuse(text: str) -> Any:
        raise ValueError(f"{text} is no JSON number")

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise ValueError("a member is there twice")
        return found

    def number(text: str) -> Fraction:
        value = float(text)  # Fraction("1e-999999999") would fill the memory
        if not math.isfinite(value):
            refuse(text)
        return Fraction(text) if value else Fraction(0)

    try:
        content = json.loads(
            source, parse_float=number, parse_constant=refuse, object_pairs_hook=members
        )
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError is a ValueError
        raise ClientError(f"{what}: not JSON ({' '.join(str(error).split())})") from None
    if not isinstance(content, dict):
        raise ClientError(f"{what}: must be a JSON object")
    return content


def _check_members(what: str, content: Mapping[str, Any], wanted: Sequence[str]) -> None:
    for name in wanted:
        if name not in content:
            raise ClientError(f"{what}: {name} is missing")
    for name in content:
        if name not in wanted:
            raise ClientError(f"{what}: {_shown(name)} is unknown; known: {', '.join(wanted)}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | Fraction) and not isinstance(value, bool)


def _is_whole(value: Any, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _whole(what: str, name: str, value: Any, low: int, high: int) -> int:
    if not _is_whole(value, low, high):
        raise ClientError(
            f"{what}: {name}={_shown(value)}: must be a whole number in {low}..{high}"
        )
    return int(value)


def _budget(name: str, value: Any) -> Fraction:
    if not _is_number(value) or not 0 < value <= _LARGEST_EPSILON:
        allowed = f"must be a number above 0 and at most {_LARGEST_EPSILON}"
        raise ClientError(f"task: {name}={_shown(value)}: {allowed}")
    return Fraction(value)


def _share(name: str, value: Any) -> Fraction:
    if not _is_number(value) or not 0 <= value <= 1:
        raise ClientError(f"task: {name}={_shown(value)}: must be a number in [0, 1]")
    return Fraction(value)


def _ranges(value: Any, d: int) -> tuple[tuple[Fraction, Fraction], ...]:
    if not isinstance(value, list) or len(value) not in (1, d):
        raise ClientError(f"task: ranges={_shown(value)}: must be one pair [low, high], or {d}")
    found = []
    for pair in value:
        fits = isinstance(pair, list) and len(pair) == 2 and all(map(_is_number, pair))
        if not fits or not pair[0] < pair[1]:
            raise ClientError(f"task: ranges: {_shown(pair)}: must be [low, high] with low < high")
        found.append((Fraction(pair[0]), Fraction(pair[1])))
    return tuple(found)


def _check_task(found: Any, task: Task) -> None:
    if found != task.hash.hex():
        allowed = f"must be that of the task, {task.hash.hex()}"
        raise ClientError(f"question: task={_shown(found)}: {allowed}")


def _nodes(value: Any, num_nodes: int) -> tuple[int, ...]:
    allowed = f"must be whole numbers in 0..{num_nodes - 1}, ascending, at least one"
    if not isinstance(value, list) or not value:
        raise ClientError(f"question: nodes={_shown(value)}: {allowed}")
    for before, node in pairwise([-1, *value]):
        if not _is_whole(node, before + 1, num_nodes - 1):
            raise ClientError(f"question: nodes: {_shown(node)}: {allowed}")
    return tuple(value)


def _directions(value: Any, c: int, d: int) -> tuple[tuple[int, ...], ...]:
    if not isinstance(value, list) or len(value) != c:
        raise ClientError(f"question: directions={_shown(value)}: must be {c} lists")
    for one in value:
        if not isinstance(one, list) or len(one) != d:
            raise ClientError(f"question: directions: {_shown(one)}: must be {d} numbers")
        for entry in one:
            if not _is_whole(entry, -LARGEST_DIRECTION, LARGEST_DIRECTION):
                allowed = f"must be whole numbers of at most {LARGEST_DIRECTION}"
                raise ClientError(f"question: directions: {_shown(entry)}: {allowed}")
    return tuple(map(tuple, value))


def _pair(name: str, a: Any, b: Any, c: int) -> tuple[int, int]:
    if not _is_whole(a, 0, c - 1) or not _is_whole(b, 0, c - 1) or a == b:
        allowed = f"must be two different classes in 0..{c - 1}"
        raise ClientError(f"question: {name}: {_shown([a, b])}: {allowed}")
    return (a, b)


def _pairs(value: Any, count: int, c: int) -> tuple[tuple[int, int], ...]:
    if not isinstance(value, list) or len(value) != count:
        raise ClientError(f"question: pairs={_shown(value)}: must be one for each of {count} nodes")
    for pair in value:
        if not isinstance(pair, list) or len(pair) != 2:
            raise ClientError(f"question: pairs: {_shown(pair)}: must be [a, b]")
    return tuple(_pair("pairs", a, b, c) for a, b in value)


def _thresholds(
    value: Any, pairs: Sequence[tuple[int, int]], c: int
) -> dict[tuple[int, int], tuple[int, ...]]:
    if not isinstance(value, list):
        raise ClientError(f"question: thresholds={_shown(value)}: must be a list")
    found: dict[tuple[int, int], tuple[int, ...]] = {}
    for item in value:
        if not isinstance(item, list) or len(item) != 3 or not isinstance(item[2], list):
            raise ClientError(f"question: thresholds: {_shown(item)}: must be [a, b, [cuts]]")
        pair, cuts = _pair("thresholds", item[0], item[1], c), tuple(item[2])
        if pair in found:
            raise ClientError(f"question: thresholds: {_shown(list(pair))}: is there twice")
        count = len(next(iter(found.values()))) if found else len(cuts)
        if len(cuts) != count or not 1 <= count < _MOST_CELLS:
            allowed = f"must be 1..{_MOST_CELLS - 1}, and as many for every pair"
            raise ClientError(f"question: thresholds: {len(cuts)} cuts: {allowed}")
        for before, cut in pairwise([-_LARGEST_THRESHOLD, *cuts]):
            if not _is_whole(cut, before, _LARGEST_THRESHOLD):
                allowed = f"must be whole numbers of at most {_LARGEST_THRESHOLD}, rising"
                raise ClientError(f"question: thresholds: {_shown(cut)}: {allowed}")
        found[pair] = cuts
    for pair in pairs:
        if pair not in found:
            raise ClientError(f"question: thresholds: none for the pair {_shown(list(pair))}")
    return found


def _shown(value: Any) -> str:
    """A foreign value in a message: short, and on one line."""
    try:
        text = repr(float(value) if isinstance(value, Fraction) else value)
    except ValueError:  # Python writes no number of more than 4300 digits
        text = "a huge number"
    return text if len(text) <= 60 else f"{text[:57]}..."


def _check_inputs(
    task: Task, node: int, features: Features, asked: bool, label: int | None
) -> None:
    """Look at all of the input before anything is drawn: a failure must not depend on draws."""
    _check_node_and_features(task, node, features)
    if task.has_questions and not asked:
        raise ClientError("asked: this task asks for labels only, and not for that of this node")
    if label is not None and not asked:
        raise ClientError(f"label={_shown(label)}: this node is not asked for its label")
    if label is not None and not _is_whole(label, 0, task.num_classes - 1):
        allowed = f"must be a whole number in 0..{task.num_classes - 1}, or missing"
        raise ClientError(f"label={_shown(label)}: {allowed}")


def _check_question(task: Task, question: Question, node: int, features: Features) -> None:
    _check_task(question.task.hex(), task)
    _check_node_and_features(task, node, features)
    if node not in question:
        raise ClientError(f"node={node}: is not asked this question")


def _check_node_and_features(task: Task, node: int, features: Features) -> None:
    d = task.num_features
    if not _is_whole(node, 0, task.num_nodes - 1):
        raise ClientError(f"node={_shown(node)}: must be a whole number in 0..{task.num_nodes - 1}")
    if isinstance(features, Mapping):
        for i in features:
            if not _is_whole(i, 0, d - 1):
                raise ClientError(f"features: {_shown(i)}: must be a number in 0..{d - 1}")
        values = list(features.values())
    else:
        if isinstance(features, str | bytes) or not hasattr(features, "__getitem__"):
            raise ClientError(f"features: {_shown(features)}: must be {d} numbers, or by feature")
        values = list(features)
        if len(values) != d:
            raise ClientError(f"features: {len(values)} of them: must be {d}")
    for value in values:
        if value is not None and not isinstance(value, int | float):
            raise ClientError(f"features: {_shown(value)}: must be numbers, NaN or None")


def _check_report(task: Published, report: Report) -> None:
    n, d, m, c = task.num_nodes, task.num_features, task.num_samples, task.num_classes
    if not _is_whole(report.node, 0, n - 1):
        raise ClientError(f"node {_shown(report.node)}: unknown; nodes are 0..{n - 1}")
    if len(report.indices) != m or len(report.bits) != m:
        found = f"{len(report.indices)} indices and {len(report.bits)} bits"
        raise ClientError(f"{found}: must be {m} of both")
    for index in report.indices:
        if not _is_whole(index, 0, d - 1):
            raise ClientError(f"index {_shown(index)}: must be a whole number in 0..{d - 1}")
    if any(a >= b for a, b in pairwise(report.indices)):
        raise ClientError(f"indices {_shown(report.indices)}: must be ascending, none twice")
    for bit in report.bits:
        if not _is_whole(bit, -1, 1) or bit == 0:
            raise ClientError(f"bit {_shown(bit)}: must be -1 or 1")
    if report.label is not None and not _is_whole(report.label, 0, c - 1):
        raise ClientError(f"label {_shown(report.label)}: must be a whole number in 0..{c - 1}")


class _OneLineParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        print(f"error: {message} ({self.prog} --help says more)", file=sys.stderr)
        sys.exit(2)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _OneLineParser(
        prog="python -m lpgnn.client",
        description="Turn a user's features and label into a private report or answer.",
        epilog="Exit codes: 0 done, 2 bad input or budget spent.",
    )
    parser.add_argument("task", type=Path, help="the published task, a JSON file")
    parser.add_argument("--node", type=int, required=True, help="the number of this node")
    parser.add_argument(
        "--question",
        type=Path,
        help="answer this question of the task, a published JSON file, instead of reporting",
    )
    parser.add_argument(
        "--features",
        type=Path,
        help="a JSON file: a list of d numbers (null: missing), or an object {feature: number} of "
        "others than 0; a task with questions needs none for the label",
    )
    parser.add_argument("--asked", action="store_true", help="the server asks for the label")
    parser.add_argument("--label", type=int, help="the label, if there is one")
    parser.add_argument("--ledger", type=Path, required=True, help="the file of what is spent")
    limits = parser.add_mutually_exclusive_group()
    limits.add_argument(
        "--limit",
        type=float,
        help="what all tasks together may spend; required once, and kept in the ledger",
    )
    limits.add_argument("--change-limit", type=float, help="replace the limit of the ledger")
    parser.add_argument("--json", action="store_true", help="write JSON instead of bytes")
    parser.add_argument("--out", type=Path, help="where to write the report (default: stdout)")
    options = parser.parse_args(arguments)
    try:
        return _send(options)
    except ClientError as error:
        reason = str(error)
    except OSError as error:
        reason = f"{error.filename or 'standard output'}: {error.strerror or error}"
        if error.filename is None:  # what is left of it must not be written as Python ends
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    print(f"error: {reason}", file=sys.stderr)
    return 2


def _send(options: argparse.Namespace) -> int:
    task = Task.parse(options.task.read_bytes())
    question = None
    if options.question is not None:
        question = Question.parse(options.question.read_bytes(), task)
        if options.asked or options.label is not None:
            raise ClientError("label: a question is about features only")
    needs_features = question is not None or not task.has_questions
    if needs_features and options.features is None:
        raise ClientError("features: missing (--features FILE)")
    features = _read_features(options.features) if needs_features else {}
    with Ledger(options.ledger, limit=options.limit) as ledger:
        if options.change_limit is not None:
            ledger.change_limit(options.change_limit)
        if question is not None:
            wire = ledger.answer(task, question, node=options.node, features=features)
        else:
            wire = ledger.report(
                task,
                node=options.node,
                features=features,
                asked=options.asked or options.label is not None,
                label=options.label,
            )
    if options.json:
        published = question or task
        wire = (to_json(published, decode(published, wire)) + "\n").encode()
    if options.out is None:
        sys.stdout.buffer.write(wire)
        sys.stdout.buffer.flush()
    else:
        options.out.write_bytes(wire)
    return 0


def _read_features(path: Path) -> Features:
    def members(pairs: list[tuple[str, Any]]) -> dict[int, Any]:
        found = {int(name): value for name, value in pairs}
        if [str(number) for number in found] != [name for name, _ in pairs]:
            raise ValueError("members must be numbers of features, none twice")
        return found

    try:
        content: Features = json.loads(path.read_bytes(), object_pairs_hook=members)
    except FileNotFoundError:
        raise ClientError(f"features {path}: no such file; must be a JSON file") from None
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise ClientError(f"features {path}: not understood ({reason})") from None
    return content


if __name__ == "__main__":
    sys.exit(main())
