"""A collection: what arrived under one task, reports and answers, as a file and as a dataset."""

import csv
import dataclasses
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lpgnn.archive import Array, digest, read_arrays, write_arrays
from lpgnn.client import ClientError, Question, Task
from lpgnn.data import Dataset, Graph, GraphFacts, Split, graph_facts
from lpgnn.data.sparse import CsrMatrix
from lpgnn.errors import InputError, one_line
from lpgnn.privacy.features import RawFeatures
from lpgnn.privacy.multi_bit import MultiBit
from lpgnn.privacy.payloads import Payloads, read_payloads
from lpgnn.privacy.public_graph import GRAPH_ARRAYS, PublicGraph
from lpgnn.privacy.published import AnsweredQuestion
from lpgnn.privacy.randomized_response import RandomizedResponse
from lpgnn.privacy.reports import Collected, FeatureReports
from lpgnn.privacy.respondents import ReceivedRespondents

_KINDS = {
    **{**GRAPH_ARRAYS, "task": "u", "received": "b", "payloads": "u"},
    # Of all questions, one after another.
    **{"questions?": "u", "question_sizes?": "i", "answers?": "i"},
}


def read_task(setting: str, path: Path) -> Task:
    """A published task from its file."""
    try:
        return Task.parse(path.read_bytes())
    except OSError as error:
        raise InputError(setting, path, f"cannot be read ({error.strerror or error})") from None
    except ClientError as error:
        raise InputError(setting, path, str(error)) from None


def read_question(setting: str, path: Path, task: Task) -> Question:
    """A published question from its file."""
    try:
        return Question.parse(path.read_bytes(), task)
    except OSError as error:
        raise InputError(setting, path, f"cannot be read ({error.strerror or error})") from None
    except ClientError as error:
        raise InputError(setting, path, str(error)) from None


def check_graph(setting: str, path: Path, task: Task, graph: PublicGraph) -> None:
    """A task and a graph belong together by the digest that the task quotes."""
    if graph.digest != task.graph:
        allowed = f"has digest {graph.digest}, but the task is for graph {task.graph}"
        raise InputError(setting, path, allowed)
    if graph.num_nodes != task.num_nodes:
        allowed = f"has {graph.num_nodes} nodes, but the task has num_nodes={task.num_nodes}"
        raise InputError(setting, path, allowed)
    if graph.class_names is not None and len(graph.class_names) != task.num_classes:
        found = len(graph.class_names)
        allowed = f"has {found} class_names, but the task has num_classes={task.num_classes}"
        raise InputError(setting, path, allowed)


@dataclass(frozen=True, eq=False)
class Collection:
    """All that a server has after collecting: the task, the public graph, and what came.

    Of a task with questions it grows by their answers; no node is asked two of them.
    """

    task: Task
    graph: PublicGraph
    received: Array  # [N] bool
    payloads: Array  # [N, n] uint8, as they came; zeros where nothing did
    rounds: tuple[AnsweredQuestion, ...] = ()

    @property
    def digest(self) -> str:
        """A hash of the content: the identity of what is learnt from it."""
        reports = (self.task.source, self.graph.digest.encode(), self.received, self.payloads)
        answers = (part for one in self.rounds for part in (one.question.source, one.answers))
        return digest(*reports, *answers)

    def save(self, path: Path) -> None:
        arrays = {
            **self.graph.arrays(),
            "task": np.frombuffer(self.task.source, np.uint8),
            "received": self.received,
            "payloads": self.payloads,
        }
        if self.rounds:
            sources = [one.question.source for one in self.rounds]
            arrays["questions"] = np.frombuffer(b"".join(sources), np.uint8)
            arrays["question_sizes"] = np.array([len(source) for source in sources])
            arrays["answers"] = np.concatenate([one.answers for one in self.rounds])
        write_arrays(path, arrays)

    def check_new(self, setting: str, value: object, question: Question) -> None:
        """A question may be asked of nodes that were not asked before."""
        for one in self.rounds:
            if again := set(one.question.nodes) & set(question.nodes):
                allowed = f"asks node {min(again)}, which was asked before: it answers once"
                raise InputError(setting, value, allowed)

    def with_answers(self, question: Question, received: Array, payloads: Array) -> "Collection":
        """The same after another question.  received, payloads: of all nodes, as from a collector

        Nodes that sent nothing, or were not asked, have no answer.
        """
        asked = np.array(question.nodes)
        labels = read_payloads(question, payloads[asked]).labels
        answers = np.where(received[asked], labels, -1).astype("<i4")
        return dataclasses.replace(self, rounds=(*self.rounds, AnsweredQuestion(question, answers)))

    @classmethod
    def load(cls, setting: str, path: Path) -> "Collection":
        """Read and check a file; nothing in it is taken on trust."""
        arrays = read_arrays(setting, path, _KINDS)
        graph = PublicGraph.from_arrays(setting, path, arrays)
        try:
            task = Task.parse(arrays["task"].tobytes())
        except ClientError as error:
            raise InputError(setting, path, str(error)) from None
        check_graph(setting, path, task, graph)
        found = cls(task, graph, arrays["received"], arrays["payloads"])
        found = found._with_rounds(setting, path, arrays)
        if problem := found._problem():
            raise InputError(setting, path, problem)
        return found

    def _with_rounds(self, setting: str, path: Path, arrays: dict[str, Array]) -> "Collection":
        """The questions and answers of a file, checked."""
        none = np.zeros(0, np.uint8)
        found, answers = self, arrays.get("answers", none)
        sources, sizes = arrays.get("questions", none), arrays.get("question_sizes", none)
        ends = np.cumsum(sizes)
        if answers.ndim != 1 or sources.ndim != 1 or sizes.ndim != 1 or (sizes < 0).any():
            raise InputError(setting, path, "questions, their sizes and answers must be lists")
        if len(sources) != (ends[-1] if len(ends) else 0):
            raise InputError(setting, path, "question_sizes must add up to the size of questions")
        for source in np.split(sources, ends)[:-1]:
            try:
                question = Question.parse(source.tobytes(), self.task)
            except ClientError as error:
                raise InputError(setting, path, str(error)) from None
            found.check_new(setting, path, question)
            own, answers = np.split(answers, [len(question.nodes)])
            inside = (own >= -1) & (own < question.num_classes)
            if own.shape != (len(question.nodes),) or not inside.all():
                allowed = f"answers must be {len(question.nodes)} of -1..{question.num_classes - 1}"
                raise InputError(setting, path, f"{allowed} to question {len(found.rounds) + 1}")
            one = AnsweredQuestion(question, own.astype("<i4"))
            found = dataclasses.replace(found, rounds=(*found.rounds, one))
        if answers.size:
            raise InputError(setting, path, "answers must be of its questions")
        return found

    def _problem(self) -> str:
        n = self.graph.num_nodes
        if self.received.shape != (n,):
            return f"received must be a mask of {n} nodes"
        wanted = (n, self.task.payload_bytes)
        if self.payloads.shape != wanted or self.payloads.dtype != np.uint8:
            return f"payloads must be {wanted} bytes"
        if self.payloads[~self.received].any():
            return "payloads of nodes that sent nothing must be zeros"
        read = read_payloads(self.task, self.payloads[self.received])
        if not read.valid.all():
            node = int(np.flatnonzero(self.received)[~read.valid][0])
            return f"the payload of node {node} is out of range"
        asked = self.graph.asked.numpy()[self.received]
        if ((read.labels >= 0) != asked).any():
            return "labels must come from the nodes that are asked for them, and from no others"
        return ""

    def mechanism(self) -> MultiBit:
        """The feature mechanism that the task prescribes, as a run names it."""
        return MultiBit(num_samples=self.task.num_samples)

    def collected(self) -> Collected:
        """What training sees.

        A node that sent nothing has no entry in ``sent``: it counts as the middle of all ranges.
        If it was asked for its label, it leaves the mask.  With questions there are no features.
        """
        task, received = self.task, torch.from_numpy(self.received)
        read = read_payloads(task, self.payloads[self.received])
        x_eps, y_eps = float(task.x_eps), float(task.y_eps)
        mechanism = None if task.has_questions else self.mechanism().bind(x_eps, task.num_features)
        labelled = received & self.graph.asked
        classes = torch.from_numpy(read.labels.astype(np.int64))[labelled[received]]
        # Randomized response reports a class: there are no ties to break.
        none = torch.Generator()
        return Collected(
            topology=self.graph.topology,
            features=None if mechanism is None else self._features(read, mechanism),
            labels=RandomizedResponse(y_eps, task.num_classes).received(
                classes, labelled, generator=none
            ),
            train_mask=self.graph.train & received,
            val_mask=self.graph.val & received,
            x_eps=x_eps,
            y_eps=y_eps,
            parameters={} if mechanism is None else mechanism.parameters(),
        )

    def _features(self, read: Payloads, mechanism: MultiBit) -> FeatureReports:
        n, d, m = self.task.num_nodes, self.task.num_features, self.task.num_samples
        indptr = torch.zeros(n + 1, dtype=torch.int64)
        indptr[1:] = (torch.from_numpy(self.received) * m).cumsum(0)
        indices = torch.from_numpy(read.indices.astype(np.int64)).flatten()
        signs = torch.from_numpy(read.signs.astype(np.float32)).flatten()
        sent = CsrMatrix(indptr, indices, signs, (n, d))
        return mechanism.received(FeatureReports(sent, mechanism.scale(), mechanism.offset()))


@dataclass(frozen=True)
class ReceivedGraph(Graph):
    """The public graph of a collection; its fingerprint covers the reports, too."""

    reports: str = ""  # the digest of the collection

    def __post_init__(self) -> None:
        super().__post_init__()
        mark = digest(self.fingerprint.encode(), self.reports.encode())
        object.__setattr__(self, "fingerprint", mark)


@dataclass(frozen=True)
class ReceivedReports(Dataset):
    """A collection as the dataset of a run: a graph without clean data, and its reports.

    ``labels`` is a CSV file ``node,label`` of clean labels to compare predictions with, or "".
    """

    path: str
    labels: str = ""

    def __post_init__(self) -> None:
        collection, truth = self.collection, self.truth
        object.__setattr__(self, "name", f"{self.task_name}-{collection.digest[:8]}")
        received = torch.from_numpy(collection.received)
        for part in ("train", "val"):
            if not bool((getattr(collection.graph, part) & received).any()):
                raise InputError("reports", self.path, f"has no label of a {part} node")
        if self.labels and not bool(self.split().test.any()):
            allowed = "has no label of a node that was not asked for its own: nothing to test"
            raise InputError("labels", self.labels, allowed)
        assert truth is None or truth.numel() == collection.graph.num_nodes

    @property
    def collection(self) -> Collection:
        path = Path(self.path).expanduser()
        return _load(str(path), _changed("reports", path))

    @property
    def task_name(self) -> str:
        """The task's name, as far as it can name a file."""
        kept = "".join(c for c in self.collection.task.name if c.isalnum() and c.isascii())
        return kept[:60] or "reports"

    @property
    def tuned_as(self) -> str:
        return self.collection.task.name

    @property
    def has_truth(self) -> bool:
        return bool(self.labels)

    @property
    def truth(self) -> Tensor | None:
        """Clean labels for the evaluation, -1 where none is known.  -> [N]"""
        if not self.labels:
            return None
        graph, c = self.collection.graph, self.collection.task.num_classes
        return read_labels(Path(self.labels).expanduser(), graph, c)

    def split(self) -> Split:
        """Who was asked, and of the others those whose label is known."""
        graph, truth = self.collection.graph, self.truth
        known = torch.zeros_like(graph.asked) if truth is None else truth >= 0
        return Split(graph.train, graph.val, ~graph.asked & known)

    def collected(self) -> Collected:
        """What the server has received."""
        return self.collection.collected()

    @property
    def has_questions(self) -> bool:
        """Whether users are asked about their features, after they have sent their labels."""
        return self.collection.task.has_questions

    def respondents(self, order: Tensor) -> ReceivedRespondents:
        """The users, in a server's node order: node i there is node order[i] here."""
        collection = self.collection
        return ReceivedRespondents(self.path, collection.task, collection.rounds, order)

    def prescribed(self) -> dict[str, Any]:
        """The settings of a run that the task has decided."""
        task = self.collection.task
        mechanism = {} if task.has_questions else {"mechanism": self.collection.mechanism()}
        return {
            "feature": RawFeatures(),
            **mechanism,
            "label_mechanism": RandomizedResponse(),
            "x_eps": float(task.x_eps),
            "y_eps": float(task.y_eps),
            "split": "collection",
        }

    def describe(self) -> str:
        """What was collected and what it is compared with, in the plan of a run."""
        received, asked = self.collection.received, self.collection.graph.asked.numpy()
        tested = int(self.split().test.sum())
        compared = f"{tested:,} test labels from {self.labels}" if tested else "no evaluation"
        answers = "".join(
            f", {int((one.answers >= 0).sum()):,} of {len(one.answers):,} answers to question {i}"
            for i, one in enumerate(self.collection.rounds, start=1)
        )
        repeat = "a repeat is another initialisation on the same reports"
        if self.has_questions:
            repeat = "a learner that asks has one repeat: another would be the same"
        return (
            f"{self.path}: from {int(received.sum()):,} nodes, "
            f"{int((received & asked).sum()):,} of {int(asked.sum()):,} labels{answers}; "
            f"{compared}; {repeat}"
        )

    def load(self, data_dir: Path) -> Graph:
        """The public graph; its labels are those of the evaluation, and -1 elsewhere."""
        collection, truth = self.collection, self.truth
        n, d = collection.graph.num_nodes, collection.task.num_features
        labels = torch.full((n,), -1) if truth is None else truth
        c = collection.task.num_classes
        return ReceivedGraph(
            *(self.name, collection.graph.topology, None, labels, c, d, d),
            node_ids=collection.graph.node_ids,
            class_names=collection.graph.class_names,
            reports=collection.digest,
        )

    @property
    def facts(self) -> GraphFacts:
        """Of the public graph; ranges, splits and who has a label are known to others."""
        return dataclasses.replace(
            graph_facts(self.load(Path())),
            num_unlabelled=0,
            ranges="applied by the users, each to their own features",
            splits="by who was asked for a label",
        )


def _changed(setting: str, path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError as error:
        raise InputError(setting, path, f"cannot be read ({error.strerror or error})") from None


@lru_cache(maxsize=4)
def _load(path: str, changed: int) -> Collection:
    """A file is read once, and again when it was written again."""
    return Collection.load("reports", Path(path))


def read_labels(path: Path, graph: PublicGraph, num_classes: int) -> Tensor:
    """Clean labels from a CSV file ``node,label``, under the graph's own names if it has any."""
    nodes, classes = _numbers_of(graph.node_ids), _numbers_of(graph.class_names)
    found: dict[int, tuple[int, int]] = {}  # by node: the label, and its line
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.reader(file))
    except (OSError, UnicodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or one_line(error)
        raise InputError("labels", path, f"cannot be read ({reason})") from None
    if not rows or rows[0] != ["node", "label"]:
        raise InputError("labels", path, "must be a CSV file whose first line is node,label")
    for number, row in enumerate(rows[1:], start=2):
        if len(row) != 2:
            raise InputError("labels", path, f"line {number} must be node,label")
        node = _number_of(row[0], nodes, graph.num_nodes)
        label = _number_of(row[1], classes, num_classes)
        if node is None or label is None:
            name = "node" if node is None else "label"
            raise InputError("labels", path, f"line {number} has an unknown {name}")
        known, line = found.setdefault(node, (label, number))
        if known != label:
            conflict = f"lines {line} and {number} give node {row[0]} different labels"
            raise InputError("labels", path, conflict)
    labels = torch.full((graph.num_nodes,), -1)
    for node, (label, _) in found.items():
        labels[node] = label
    return labels


def _numbers_of(names: tuple[str, ...] | None) -> dict[str, int] | None:
    return None if names is None else {name: number for number, name in enumerate(names)}


def _number_of(text: str, known: dict[str, int] | None, size: int) -> int | None:
    if known is not None:
        return known.get(text)
    return int(text) if text.isdecimal() and int(text) < size else None
