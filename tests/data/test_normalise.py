import hashlib
import math
import struct
from typing import Any

import pytest
import torch
from torch import Tensor

from lpgnn.data.graph import Topology
from lpgnn.data.normalise import make_graph, normalise_features
from lpgnn.data.sparse import CsrMatrix
from lpgnn.errors import InputError

PATH = Topology.from_edges(4, torch.tensor([[0, 1, 2], [1, 2, 3]]))
LABELS = torch.tensor([0, 1, 0, 1])
RAW = torch.tensor(
    [
        # zero-based, negative with gaps, positive and full, constant, negative only, all zero
        [0.0, -1.0, 5.0, 7.0, -4.0, 0.0],
        [2.0, 0.0, 6.0, 7.0, -2.0, 0.0],
        [4.0, 0.0, 9.0, 7.0, -4.0, 0.0],
        [0.0, 3.0, 5.0, 7.0, -3.0, 0.0],
    ]
)


def dense_reference(raw: Tensor) -> Tensor:
    low, high = raw.min(dim=0).values, raw.max(dim=0).values
    kept = high > low
    return ((raw - low) / (high - low))[:, kept]


def test_columns_are_scaled_by_hand_computed_values() -> None:
    scaled, _ = normalise_features(CsrMatrix.from_dense(RAW))
    expected = [
        [0.0, 0.0, 0.0, 0.0],
        [0.5, 0.25, 0.25, 1.0],
        [1.0, 0.25, 1.0, 0.0],
        [0.0, 1.0, 0.0, 0.5],
    ]
    assert scaled.shape == (4, 4)
    assert scaled.to_dense().tolist() == expected
    assert bool((scaled.values != 0).all())


def test_sparse_agrees_with_dense_on_random_matrices() -> None:
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        raw = torch.randint(-2, 3, (6, 9), generator=generator).float()
        scaled, _ = normalise_features(CsrMatrix.from_dense(raw))
        torch.testing.assert_close(scaled.to_dense(), dense_reference(raw))
        for row in range(6):
            columns = scaled.indices[scaled.indptr[row] : scaled.indptr[row + 1]]
            assert columns.tolist() == sorted(set(columns.tolist()))


def test_stored_zeros_and_repetition_change_nothing() -> None:
    stored_zero = CsrMatrix.from_coo(
        torch.tensor([0, 0, 1]), torch.tensor([0, 1, 1]), torch.tensor([0.0, 2.0, 4.0]), (3, 2)
    )
    once, _ = normalise_features(stored_zero)
    assert once.to_dense().tolist() == [[0.5], [1.0], [0.0]]
    twice, _ = normalise_features(once)
    assert torch.equal(once.values, twice.values)
    assert torch.equal(once.indices, twice.indices)


def test_large_zero_based_columns_stay_sparse() -> None:
    # [1e6, 1e5] dense would take 400 GB.
    raw = CsrMatrix.from_coo(
        torch.tensor([5, 999_999]), torch.tensor([3, 99_999]), torch.ones(2), (10**6, 10**5)
    )
    scaled, _ = normalise_features(raw)
    assert (scaled.shape, scaled.nnz) == ((10**6, 2), 2)


def clamped_reference(raw: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, int]:
    inside = raw.double().clamp(low, high)
    return ((inside - low) / (high - low)).float(), int((inside != raw.double()).sum())


def test_declared_ranges_keep_every_column_and_count_what_lies_outside() -> None:
    scaled, ranges = normalise_features(CsrMatrix.from_dense(RAW), [0.0, 5.0])
    expected, outside = clamped_reference(RAW, torch.zeros(6), torch.full((6,), 5.0))
    assert torch.equal(scaled.to_dense(), expected)
    # By hand: -1 of column 1, 6 and 9 of column 2, and all of columns 3 and 4.
    assert (ranges.num_clamped, outside) == (11, 11)
    assert (ranges.source, ranges.are_public) == ("declared", True)
    assert ranges.low is not None
    assert ranges.low.shape == (6,)
    assert "[0, 5], declared; 11 values outside" in ranges.describe()


def test_declared_ranges_agree_with_dense_clamping_on_random_matrices() -> None:
    generator = torch.Generator().manual_seed(1)
    for _ in range(20):
        raw = torch.randint(-3, 4, (6, 9), generator=generator).float()
        low = torch.randint(-4, 2, (9,), generator=generator).double()
        high = low + torch.randint(1, 5, (9,), generator=generator)
        scaled, ranges = normalise_features(CsrMatrix.from_dense(raw), torch.stack([low, high], 1))
        expected, outside = clamped_reference(raw, low, high)
        assert torch.equal(scaled.to_dense(), expected)
        assert ranges.num_clamped == outside
        assert bool((scaled.values != 0).all())


def test_a_value_at_its_bound_is_inside_in_any_precision() -> None:
    raw = CsrMatrix.from_dense(torch.tensor([[0.1], [0.7]]))  # float32: above and below
    scaled, ranges = normalise_features(raw, [0.1, 0.7])
    assert ranges.num_clamped == 0
    assert scaled.to_dense().flatten().tolist() == [0.0, 1.0]


def test_declared_ranges_do_not_look_at_the_data() -> None:
    """One node's value moves no other node's: nothing about the data is in the scaling."""
    other = RAW.clone()
    other[2] = 1000.0
    one, two = (normalise_features(CsrMatrix.from_dense(x), "unit")[0] for x in (RAW, other))
    rows = torch.tensor([0, 1, 3])
    assert torch.equal(one.to_dense()[rows], two.to_dense()[rows])


def test_the_ranges_of_the_data_are_recorded() -> None:
    _, ranges = normalise_features(CsrMatrix.from_dense(RAW))
    assert ranges.low is not None
    assert ranges.high is not None
    assert ranges.low.tolist() == [0, -1, 5, -4]
    assert ranges.high.tolist() == [4, 3, 9, -2]
    assert not ranges.are_public


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ("wide", "ranges=wide: must be unit"),
        ([1.0, 1.0], r"ranges=\[1, 1\] of feature 0: low must be below high"),
        ([0.0, math.inf], "both finite"),
        ([0.0, 1.0, 2.0], "ranges="),
        (["a", "b"], "ranges="),
        ([[0.0, 1.0]] * 5, "ranges=5 pairs: there are 6 features"),
        ([[0.0, 1.0]] * 5 + [[2.0, 1.0]], "of feature 5"),
    ],
)
def test_bad_ranges_are_refused(choice: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        normalise_features(CsrMatrix.from_dense(RAW), choice)


def test_features_without_a_varying_column_are_refused() -> None:
    with pytest.raises(InputError, match="at least one column must vary"):
        normalise_features(CsrMatrix.from_dense(torch.ones(3, 2)))


def test_make_graph_fills_every_field() -> None:
    graph = make_graph("toy", PATH, CsrMatrix.from_dense(RAW), LABELS, 2)
    assert (graph.feature_dim, graph.raw_feature_dim, graph.num_nodes) == (4, 6, 4)
    assert len(graph.fingerprint) == 16
    int(graph.fingerprint, 16)


def test_fingerprint_is_that_of_the_content() -> None:
    features = CsrMatrix.from_dense(RAW)
    graph = make_graph("toy", PATH, features, LABELS, 2)
    sizes, indptr, indices = (4, 6, 2, 4), (0, 1, 3, 5, 6), (1, 0, 2, 1, 3, 2)
    feature_indptr, feature_indices = (0, 0, 4, 7, 9), (0, 1, 2, 3, 0, 1, 2, 1, 3)
    integers = (*sizes, *indptr, *indices, 0, 1, 0, 1, *feature_indptr, *feature_indices)
    values = (0.5, 0.25, 0.25, 1.0, 1.0, 0.25, 1.0, 1.0, 0.5)
    content = struct.pack(f"<{len(integers)}q", *integers) + struct.pack("<9f", *values)
    assert graph.fingerprint == hashlib.sha256(content).hexdigest()[:16]
    assert make_graph("other name", PATH, features, LABELS, 2).fingerprint == graph.fingerprint

    changed = RAW.clone()
    changed[1, 0] = 3.0
    other_topology = Topology.from_edges(4, torch.tensor([[0, 1, 2], [1, 2, 0]]))
    others = [
        make_graph("toy", PATH, CsrMatrix.from_dense(changed), LABELS, 2),
        make_graph("toy", PATH, features, LABELS.flip(0), 2),
        make_graph("toy", PATH, features, LABELS, 3),
        make_graph("toy", other_topology, features, LABELS, 2),
        make_graph("toy", PATH, None, LABELS, 2, feature_dim=4),
        make_graph("toy", PATH, None, LABELS, 2, feature_dim=5),
    ]
    assert len({graph.fingerprint, *(other.fingerprint for other in others)}) == 7


def test_graph_without_features_keeps_their_width() -> None:
    graph = make_graph("toy", PATH, None, LABELS, 2, feature_dim=10)
    assert graph.features is None
    assert (graph.feature_dim, graph.raw_feature_dim) == (10, 10)
    with pytest.raises(InputError, match="feature_dim=None"):
        make_graph("toy", PATH, None, LABELS, 2)


@pytest.mark.parametrize(
    ("labels", "num_classes", "message"),
    [
        (torch.tensor([0, 1, 2, 0]), 2, r"labels=0\.\.2: must lie in 0\.\.1"),
        (torch.tensor([0, -2, 1, 0]), 2, r"labels=-2\.\.1"),
        (torch.full((4,), -1), 2, "labels=none: at least one node needs a label"),
        (torch.tensor([0, 1, 1]), 2, r"labels=shape \(3,\)"),
        (torch.tensor([0.0, 1.0, 1.0, 0.0]), 2, r"labels=torch\.float32"),
        (torch.zeros(4, dtype=torch.int64), 1, "num_classes=1"),
    ],
)
def test_bad_labels_are_refused(labels: Tensor, num_classes: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_graph("toy", PATH, CsrMatrix.from_dense(RAW), labels, num_classes)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_features_that_are_not_finite_are_refused(bad: float) -> None:
    raw = RAW.clone()
    raw[2, 1] = bad
    with pytest.raises(InputError, match=r"features=.*node 2, column 1.*finite"):
        make_graph("toy", PATH, CsrMatrix.from_dense(raw), LABELS, 2)


def test_features_of_another_size_are_refused() -> None:
    with pytest.raises(InputError, match="features=3 rows"):
        make_graph("toy", PATH, CsrMatrix.from_dense(RAW[:3]), LABELS, 2)
    wide = CsrMatrix(torch.tensor([0, 1, 1, 1, 1]), torch.tensor([6]), torch.ones(1), (4, 6))
    with pytest.raises(InputError, match="features=column 6"):
        make_graph("toy", PATH, wide, LABELS, 2)


@pytest.mark.parametrize(
    "topology",
    [
        Topology(torch.tensor([0, 1, 1, 1, 1]), torch.tensor([4])),
        Topology(torch.tensor([0, 2, 1, 1, 1]), torch.tensor([1])),
        Topology(torch.tensor([0, 1, 1, 1, 2]), torch.tensor([1])),
    ],
)
def test_broken_topologies_are_refused(topology: Topology) -> None:
    with pytest.raises(InputError, match="edges="):
        make_graph("toy", topology, CsrMatrix.from_dense(RAW), LABELS, 2)
