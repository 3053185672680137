import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call

from lpgnn.data.graph import Topology
from lpgnn.data.sparse import CsrMatrix
from lpgnn.kernels import Backend
from lpgnn.models.attention import attend
from lpgnn.propagation import AttentionPattern, attention_pattern
from lpgnn.propagation.matrices import torch_csr
from propagation.graphs import (
    CPU,
    NUMBA,
    adjacency,
    both_backends,
    path_and_isolated,
    random_topology,
    seeded,
)

from .pyg import GATConv

R, N, WIDTH = 3, 30, 5


@pytest.fixture(autouse=True, scope="module")
def _past_torchs_warning() -> None:
    """torch warns once a process of its sparse layout, which a fresh process elsewhere looks at."""
    torch_csr(CsrMatrix.from_dense(torch.eye(1)), CPU)


def dense_attention(topology: Topology, source: Tensor, target: Tensor, value: Tensor) -> Tensor:
    """The formula on full matrices: softmax_j(leaky_relu(source_j + target_i)) value_j."""
    mask = adjacency(topology).fill_diagonal_(1).bool()
    score = F.leaky_relu(source[:, None, :] + target[:, :, None], 0.2)  # [R, N, N]
    return score.masked_fill(~mask, -torch.inf).softmax(2) @ value


def inputs(scale: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
    source = scale * torch.randn(R, N, generator=seeded(1))
    target = scale * torch.randn(R, N, generator=seeded(2))
    value = torch.randn(R, N, WIDTH, generator=seeded(3))
    return source.requires_grad_(), target.requires_grad_(), value.requires_grad_()


@both_backends
def test_attention_by_hand(backend: Backend) -> None:
    pattern = AttentionPattern.from_topology(path_and_isolated(), backend)
    source = torch.tensor([[1.0, -1.0, 0.0, 2.0]])
    target = torch.tensor([[0.5, 0.0, -0.5, 1.0]])
    value = torch.tensor([[[1.0], [10.0], [100.0], [1000.0]]])
    # Row 1 looks at 0, 1, 2 with scores 1, -0.2 (slope 0.2), 0.
    e = torch.tensor([1.0, -0.2, 0.0], dtype=torch.float64).exp()
    row1 = float((e * torch.tensor([1.0, 10.0, 100.0])).sum() / e.sum())
    # Row 2 looks at 1, 2 with scores 0.2 * -1.5, 0.2 * -0.5.
    e = torch.tensor([-0.3, -0.1], dtype=torch.float64).exp()
    row2 = float((e * torch.tensor([10.0, 100.0])).sum() / e.sum())
    # Row 0 looks at 0, 1 with scores 1.5, 0.2 * -0.5; row 3 at itself only.
    e = torch.tensor([1.5, -0.1], dtype=torch.float64).exp()
    row0 = float((e * torch.tensor([1.0, 10.0])).sum() / e.sum())
    out = attend(pattern, source, target, value)
    torch.testing.assert_close(out[0, :, 0], torch.tensor([row0, row1, row2, 1000.0]))


@both_backends
@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0])
def test_attention_equals_the_dense_formula_and_its_gradients(
    scale: float, backend: Backend
) -> None:
    topology = random_topology(N)
    pattern = AttentionPattern.from_topology(topology, backend)
    given = inputs(scale)
    out = attend(pattern, *given)
    grad = torch.randn(out.shape, generator=seeded(4))
    gradients = torch.autograd.grad(out, given, grad)
    doubles = tuple(t.detach().double().requires_grad_() for t in given)
    expected = dense_attention(topology, *doubles)
    torch.testing.assert_close(out.detach().double(), expected.detach(), rtol=1e-4, atol=1e-5)
    wanted = torch.autograd.grad(expected, doubles, grad.double())
    for actual, gradient in zip(gradients, wanted, strict=True):
        assert float(gradient.abs().max()) > 1e-2
        torch.testing.assert_close(actual.double(), gradient, rtol=1e-4, atol=1e-5)


@both_backends
def test_attention_equals_gatconv(backend: Backend) -> None:
    """With the identity for its projection, GATConv's scores are the two inner products."""
    topology = random_topology(N)
    pattern = AttentionPattern.from_topology(topology, backend)
    layer = GATConv(WIDTH, WIDTH, heads=1, bias=False)
    for run in range(R):
        value = torch.randn(N, WIDTH, generator=seeded(run), requires_grad=True)
        a = torch.randn(WIDTH, generator=seeded(10 + run), requires_grad=True)
        b = torch.randn(WIDTH, generator=seeded(20 + run), requires_grad=True)
        out = attend(pattern, (value @ a)[None], (value @ b)[None], value[None])[0]
        own = {
            "lin.weight": torch.eye(WIDTH),
            "att_src": a.view(1, 1, -1),
            "att_dst": b.view(1, 1, -1),
        }
        expected = functional_call(layer, own, (value, topology.edge_index()))
        torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-5)
        grad = torch.randn(N, WIDTH, generator=seeded(4))
        actual = torch.autograd.grad(out, (value, a, b), grad)
        wanted = torch.autograd.grad(expected, (value, a, b), grad)
        torch.testing.assert_close(actual, wanted, rtol=1e-4, atol=1e-4)


@both_backends
def test_huge_scores_neither_overflow_nor_divide_by_zero(backend: Backend) -> None:
    """Scores of +-1e4 on whole thousands: gaps are exact, so the dense formula holds exactly."""
    topology = random_topology(N)
    pattern = AttentionPattern.from_topology(topology, backend)
    source = (1e3 * torch.randint(-10, 11, (R, N), generator=seeded(1))).requires_grad_()
    target = (1e3 * torch.randint(-10, 11, (R, N), generator=seeded(2))).requires_grad_()
    value = torch.randn(R, N, WIDTH, generator=seeded(3), requires_grad=True)
    assert float(source.detach().abs().max()) == 1e4
    given = (source, target, value)
    out = attend(pattern, *given)
    grad = torch.randn(out.shape, generator=seeded(4))
    gradients = torch.autograd.grad(out, given, grad)
    doubles = tuple(t.detach().double().requires_grad_() for t in given)
    expected = dense_attention(topology, *doubles)
    torch.testing.assert_close(out.detach().double(), expected.detach(), rtol=1e-4, atol=1e-5)
    wanted = torch.autograd.grad(expected, doubles, grad.double())
    for actual, gradient in zip(gradients, wanted, strict=True):
        torch.testing.assert_close(actual.double(), gradient, rtol=1e-4, atol=1e-4)


@both_backends
@pytest.mark.parametrize("shift", [-1e4, 1e4, -1e30, 1e30])
def test_weights_sum_to_one_wherever_the_scores_lie(shift: float, backend: Backend) -> None:
    pattern = AttentionPattern.from_topology(random_topology(N), backend)
    source, target, _ = inputs()
    out = attend(pattern, source.detach() + shift, target.detach(), torch.ones(R, N, WIDTH))
    torch.testing.assert_close(out, torch.ones(R, N, WIDTH))


@both_backends
def test_strided_values_and_gradients(backend: Backend) -> None:
    topology = random_topology(N)
    pattern = AttentionPattern.from_topology(topology, backend)
    source, target, _ = inputs()
    value = torch.randn(R, WIDTH, N, generator=seeded(3)).transpose(1, 2).requires_grad_()
    out = attend(pattern, source, target, value)
    actual = torch.autograd.grad(out.sum(), (source, target, value))
    expected = dense_attention(topology, source.double(), target.double(), value.double())
    torch.testing.assert_close(out.detach().double(), expected.detach(), rtol=1e-4, atol=1e-5)
    wanted = torch.autograd.grad(expected.sum(), (source, target, value))
    torch.testing.assert_close(actual, wanted, rtol=1e-4, atol=1e-5)


@both_backends
@pytest.mark.parametrize("width", [4, 7, 8, 16])
def test_padded_and_whole_widths(width: int, backend: Backend) -> None:
    """Compiled loops want columns in sixteens, the sampled product of torch's path in eights."""
    topology = random_topology(N)
    pattern = AttentionPattern.from_topology(topology, backend)
    source, target, _ = inputs()
    value = torch.randn(R, N, width, generator=seeded(3)).requires_grad_()
    out = attend(pattern, source, target, value)
    grad = torch.randn(out.shape, generator=seeded(4))
    actual = torch.autograd.grad(out, (source, target, value), grad)
    expected = dense_attention(topology, source, target, value)
    wanted = torch.autograd.grad(expected, (source, target, value), grad)
    torch.testing.assert_close(actual, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("together", [1, 2, R])
def test_how_many_runs_share_a_call_changes_no_bit(
    together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pattern = AttentionPattern.from_topology(random_topology(N), NUMBA)
    given = inputs()
    grad = torch.randn(R, N, WIDTH, generator=seeded(4))
    alone = attend(pattern, *given)
    expected = torch.autograd.grad(alone, given, grad)
    monkeypatch.setattr(attention_pattern, "_CHUNK_ENTRIES", together * pattern.columns.numel())
    assert len(list(pattern.chunks(R))) == -(-R // together)
    out = attend(pattern, *given)
    assert torch.equal(out, alone)
    actual = torch.autograd.grad(out, given, grad)
    assert all(torch.equal(a, b) for a, b in zip(actual, expected, strict=True))


@both_backends
def test_equal_batches_give_equal_bits(backend: Backend) -> None:
    pattern = AttentionPattern.from_topology(random_topology(N), backend)
    given = inputs()
    grad = torch.randn(R, N, WIDTH, generator=seeded(4))
    outs = [attend(pattern, *given) for _ in range(2)]
    first, second = (torch.autograd.grad(out, given, grad) for out in outs)
    assert torch.equal(*outs)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@both_backends
def test_folded_copies_are_the_blocks_of_a_diagonal(backend: Backend) -> None:
    pattern = AttentionPattern.from_topology(path_and_isolated(), backend)
    values = torch.randn(2 * pattern.columns.numel(), generator=seeded())
    folded = pattern.folded(2)
    blocks = [pattern.matrix(half).to_dense() for half in values.chunk(2)]
    assert torch.equal(folded.matrix(values).to_dense(), torch.block_diag(*blocks))
    transposed = folded.matrix(values[folded.mirror]).to_dense()
    assert torch.equal(transposed, torch.block_diag(*blocks).t())
    torch.testing.assert_close(folded.row_sums(values), torch.block_diag(*blocks).sum(1))
    torch.testing.assert_close(folded.column_sums(values), torch.block_diag(*blocks).sum(0))
    assert pattern.folded(2) is folded


@both_backends
def test_the_mirror_maps_each_entry_to_its_transpose(backend: Backend) -> None:
    pattern = AttentionPattern.from_topology(random_topology(N), backend)
    assert torch.equal(pattern.rows[pattern.mirror], pattern.columns)
    assert torch.equal(pattern.columns[pattern.mirror], pattern.rows)
    values = torch.randn(pattern.columns.numel(), generator=seeded())
    mirrored = pattern.matrix(values[pattern.mirror]).to_dense()
    assert torch.equal(mirrored, pattern.matrix(values).to_dense().t())
