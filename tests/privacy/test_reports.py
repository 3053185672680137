import dataclasses
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from lpgnn.data.graph import Topology
from lpgnn.data.sparse import CsrMatrix
from lpgnn.errors import InputError
from lpgnn.privacy.reports import Collected, FeatureReports

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
    assert reports.is_sparse == isinstance(sent, CsrMatrix)


@pytest.mark.parametrize("sent", [torch.zeros(3), torch.zeros(2, 3, dtype=torch.float64)])
def test_dense_reports_are_two_dimensional_float32_or_int8(sent: Tensor) -> None:
    with pytest.raises(InputError, match="sent="):
        FeatureReports(sent, 1.0, 0.0)


def collected(**changes: Any) -> Collected:
    """Three nodes on a path: one to train, one to validate, one unlabelled."""
    valid = Collected(
        topology=Topology.from_edges(3, torch.tensor([[0, 1], [1, 2]])),
        features=FeatureReports(torch.zeros(3, 2), 1.0, 0.0),
        labels=torch.tensor([1, 0, -1]),
        train_mask=torch.tensor([True, False, False]),
        val_mask=torch.tensor([False, True, False]),
        num_classes=2,
        x_eps=1.0,
        y_eps=math.inf,
        alpha=0.0,
        beta=1.0,
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
        "num_classes",
        "x_eps",
        "y_eps",
        "alpha",
        "beta",
        "parameters",
    }
    valid = collected()
    assert (valid.num_nodes, valid.num_features) == (3, 2)
    with pytest.raises(dataclasses.FrozenInstanceError):
        valid.x_eps = 2.0  # type: ignore[misc]


@pytest.mark.parametrize(
    ("setting", "changes"),
    [
        ("features", {"features": FeatureReports(torch.zeros(2, 2), 1.0, 0.0)}),
        ("labels", {"labels": torch.tensor([1, 0, 0])}),  # a label of an unlabelled node
        ("labels", {"labels": torch.tensor([1, -1, -1])}),
        ("labels", {"labels": torch.tensor([2, 0, -1])}),
        ("labels", {"labels": torch.tensor([1, 0])}),
        ("labels", {"labels": torch.tensor([1.0, 0.0, -1.0])}),
        ("train_mask", {"train_mask": torch.tensor([1, 0, 0])}),
        ("val_mask", {"val_mask": torch.tensor([True, True, False])}),
    ],
)
def test_an_inconsistent_collection_is_refused(setting: str, changes: dict[str, Any]) -> None:
    with pytest.raises(InputError) as caught:
        collected(**changes)
    assert caught.value.setting == setting
