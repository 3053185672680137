"""Small questions for the tests of client and collector."""

import json
from typing import Any

from lpgnn.client import Question, Task

from .tasks import small_task


def asking_task(**changes: Any) -> Task:
    """A task that leaves features to questions."""
    return small_task(**({"num_samples": 0} | changes))


TASK = asking_task()


def vector_members(task: Task = TASK, **changes: Any) -> dict[str, Any]:
    return {
        **{"lpgnn_question": 1, "task": task.hash.hex(), "nodes": [0, 3, 4], "kind": "vector"},
        **{"candidates": 8, "near": 2},
    } | changes


def score_members(task: Task = TASK, **changes: Any) -> dict[str, Any]:
    """Directions along the first three of five features; cuts at -1/4 and 1/4 of a unit score."""
    unit = 1 << 10
    quarter = unit << 22
    return {
        **{"lpgnn_question": 1, "task": task.hash.hex(), "nodes": [3, 7, 11], "kind": "score"},
        "directions": [[unit if i == k else 0 for i in range(5)] for k in range(3)],
        "places": 10,
        "pairs": [[0, 1], [0, 2], [0, 1]],
        "thresholds": [[0, 1, [-quarter, quarter]], [0, 2, [0, quarter]]],
    } | changes


def source_of(members: dict[str, Any]) -> bytes:
    return (json.dumps(members) + "\n").encode()


def vector_question(task: Task = TASK, **changes: Any) -> Question:
    return Question.parse(source_of(vector_members(task, **changes)), task)


def score_question(task: Task = TASK, **changes: Any) -> Question:
    return Question.parse(source_of(score_members(task, **changes)), task)
