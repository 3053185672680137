import dataclasses
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from lpgnn.data.graph import Topology
from lpgnn.data.sparse import CsrMatrix
from lpgnn.errors import InputError
from lpgnn.privacy.reports import Collected, FeatureReports, LabelReports, Round

DENSE = torch.tensor([[1.0, 0.0, -1.0], [0.0, 1.0, 0.0]])
RECTIFIED = torch.tensor([[2.5, 0.5, -1.5], [0.5, 2.5, 0.5]])  # 2 * sent + 1/2


@pytest.mark.parametrize(
    "sent", [CsrMatrix.from_dense(DENSE), DENSE, DENSE.to(torch.int8)], ids=["csr", "f32", "i8"]
)
def test_rectified_covers_absent_entries(sent: CsrMatrix | Tensor) -> None:
    reports = FeatureReports(sent, scale=2.0, offset=0.5)
    assert torch.equal(reports.rectified(), RECTIFIED)
    assert torch.equal(reports.rectified(), RECTIFIED)  # the first call left ``sent`` alone
    assert reports.rectified().dtype == torch.float32
    assert (reports.num_nodes, reports.num_features) == (2, 3)
    assert reports.form == ("sparse" if isinstance(sent, CsrMatrix) else "dense")


@pytest.mark.parametrize("sent", [torch.zeros(3), torch.zeros(2, 3, dtype=torch.float64)])
def test_dense_reports_are_two_dimensional_float32_or_int8(sent: Tensor) -> None:
    with pytest.raises(InputError, match="sent="):
        FeatureReports(sent, 1.0, 0.0)


def test_the_form_of_reports() -> None:
    """Signs are -1 and 1 as bytes; a zero among them, or floats, make an ordinary matrix."""
    signs = torch.tensor([[1, -1], [-1, -1]], dtype=torch.int8)
    forms = [FeatureReports(sent, 1.0, 0.0).form for sent in (signs, signs.float(), 0 * signs)]
    assert forms == ["signs", "dense", "dense"]


@pytest.mark.parametrize("sent", [CsrMatrix.from_dense(DENSE), DENSE], ids=["csr", "f32"])
def test_selected_reports_are_those_of_the_nodes_in_the_order_given(
    sent: CsrMatrix | Tensor,
) -> None:
    reports = FeatureReports(sent, scale=2.0, offset=0.5, magnitude=3.0)
    nodes = torch.tensor([1, 0, 1])
    chosen = reports.select(nodes)
    assert torch.equal(chosen.rectified(), RECTIFIED[nodes])
    assert (chosen.scale, chosen.offset, chosen.magnitude) == (2.0, 0.5, 3.0)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", ["sent", "scale", "offset"])
def test_a_number_that_is_not_finite_is_found_anywhere(value: float, place: str) -> None:
    for sent in (DENSE.clone(), CsrMatrix.from_dense(DENSE)):
        values = sent.values if isinstance(sent, CsrMatrix) else sent
        numbers = {"scale": 2.0, "offset": 0.5}
        assert FeatureReports(sent, **numbers).is_finite
        if place == "sent":
            values.view(-1)[2] = value
        else:
            numbers[place] = value
        assert not FeatureReports(sent, **numbers).is_finite


def test_reports_of_nobody_and_bits_are_finite() -> None:
    for sent in (torch.empty(0, 3), CsrMatrix.from_dense(torch.zeros(2, 3)), DENSE.to(torch.int8)):
        assert FeatureReports(sent, 1.0, 0.0).is_finite


LABELS = LabelReports(
    classes=torch.tensor([1, 0, -1]),
    likelihood=torch.tensor([[0.25, 0.75, 1.0], [0.75, 0.25, 1.0]]),
    estimate=torch.tensor([[-0.5, 1.5, 0.0], [1.5, -0.5, 0.0]]),
    transition=torch.tensor([[0.75, 0.25], [0.25, 0.75]], dtype=torch.float64),
    shares=torch.tensor([0.5, 0.5], dtype=torch.float64),
)


def table(rows: list[list[float]]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def with_labels(**changes: Any) -> dict[str, LabelReports]:
    return {"labels": dataclasses.replace(LABELS, **changes)}


def collected(**changes: Any) -> Collected:
    """Three nodes on a path: one to train, one to validate, one unlabelled."""
    valid = Collected(
        topology=Topology.from_edges(3, torch.tensor([[0, 1], [1, 2]])),
        features=FeatureReports(torch.zeros(3, 2), 1.0, 0.0),
        labels=LABELS,
        train_mask=torch.tensor([True, False, False]),
        val_mask=torch.tensor([False, True, False]),
        x_eps=1.0,
        y_eps=math.log(3),
        parameters={"m": 1.0},
    )
    return dataclasses.replace(valid, **changes)


def test_the_server_holds_these_fields_and_no_others() -> None:
    assert {field.name for field in dataclasses.fields(Collected)} == {
        "topology",
        "features",
        "labels",
        "train_mask",
        "val_mask",
        "x_eps",
        "y_eps",
        "parameters",
        "rounds",
    }
    assert {field.name for field in dataclasses.fields(LabelReports)} == {
        "classes",
        "likelihood",
        "estimate",
        "transition",
        "shares",
    }
    valid = collected()
    assert (valid.num_nodes, valid.num_classes) == (3, 2)
    with pytest.raises(dataclasses.FrozenInstanceError):
        valid.x_eps = 2.0  # type: ignore[misc]
    assert collected(features=None).num_nodes == 3


@pytest.mark.parametrize(
    ("setting", "changes"),
    [
        ("features", {"features": FeatureReports(torch.zeros(2, 2), 1.0, 0.0)}),
        # Something about an unlabelled node:
        ("labels.classes", with_labels(classes=torch.tensor([1, 0, 0]))),
        ("labels.likelihood", with_labels(likelihood=torch.full((2, 3), 0.5))),
        ("labels.estimate", with_labels(estimate=torch.full((2, 3), 0.5))),
        ("labels.classes", with_labels(classes=torch.tensor([1, -1, -1]))),
        ("labels.classes", with_labels(classes=torch.tensor([2, 0, -1]))),
        ("labels.classes", with_labels(classes=torch.tensor([1, 0]))),
        ("labels.classes", with_labels(classes=torch.tensor([1.0, 0.0, -1.0]))),
        ("labels.likelihood", with_labels(likelihood=torch.ones(2, 2))),
        ("labels.likelihood", with_labels(likelihood=torch.ones(2, 3).double())),
        ("labels.estimate", with_labels(estimate=torch.zeros(3, 3))),
        ("labels.shares", with_labels(shares=torch.tensor([0.5, 0.5]))),
        ("labels.shares", with_labels(shares=torch.tensor([0.6, 0.6]).double())),
        ("labels.shares", with_labels(shares=torch.tensor([1.1, -0.1]).double())),
        ("labels.transition", with_labels(transition=torch.eye(2))),
        ("labels.transition", with_labels(transition=torch.eye(3).double())),
        # Probabilities of reports, but in columns; a negative one; none.
        ("labels.transition", with_labels(transition=table([[0.9, 0.4], [0.1, 0.6]]))),
        ("labels.transition", with_labels(transition=table([[1.1, -0.1], [0.5, 0.5]]))),
        ("labels.transition", with_labels(transition=table([[math.nan, 0.5], [0.5, 0.5]]))),
        ("train_mask", {"train_mask": torch.tensor([1, 0, 0])}),
        ("val_mask", {"val_mask": torch.tensor([True, True, False])}),
    ],
)
def test_an_inconsistent_collection_is_refused(setting: str, changes: dict[str, Any]) -> None:
    with pytest.raises(InputError) as caught:
        collected(**changes)
    assert caught.value.setting == setting


def test_another_node_order_moves_everything_that_belongs_to_a_node() -> None:
    order = torch.tensor([2, 0, 1])
    features = FeatureReports(torch.arange(6.0).view(3, 2), 1.0, 0.0)
    topology = Topology.from_edges(3, torch.tensor([[1, 2], [2, 0]]))
    moved = collected(features=features).reordered(topology, order)
    assert moved.topology is topology
    assert moved.features is not None
    assert moved.features.rectified().tolist() == [[4, 5], [0, 1], [2, 3]]
    assert moved.labels.classes.tolist() == [-1, 1, 0]
    assert moved.labels.likelihood.tolist() == [[1, 0.25, 0.75], [1, 0.75, 0.25]]
    assert moved.labels.estimate.tolist() == [[0, -0.5, 1.5], [0, 1.5, -0.5]]
    assert torch.equal(moved.labels.transition, LABELS.transition)
    assert moved.train_mask.tolist() == [False, True, False]
    assert moved.val_mask.tolist() == [False, False, True]
    assert collected(features=None).reordered(topology, order).features is None
    asked = Round(torch.tensor([1, 2]), "why?", torch.tensor([5, 6]))
    (after,) = collected(rounds=(asked,)).reordered(topology, order).rounds
    assert after.nodes.tolist() == [2, 0]
    assert after.answers is asked.answers
