"""Graph attention as sparse products: per-edge scores, no per-edge features."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from lpgnn.propagation import AttentionPattern

_SLOPE = 0.2  # of the leaky ReLU on the scores, as in the GAT paper and torch-geometric

# Weights below e^-60 of their row's largest are taken for e^-60: no float32 sum can tell, but
# where exp underflows it takes up to thirty times as long.
_LOWEST = -60.0


def attend(pattern: AttentionPattern, source: Tensor, target: Tensor, value: Tensor) -> Tensor:
    """One attention head of every run.

    out_i = sum_j a_ij value_j,  a_i = softmax over j in N(i) + {i} of
    leaky_relu(source_j + target_i).  source, target: [R, N]; value: [R, N, f] -> [R, N, f]
    """
    if pattern.compiled:
        from lpgnn.models.compiled import attend_by_loops

        return attend_by_loops(pattern, source, target, value, _SLOPE, _LOWEST)
    out = _Attend.apply(
        *(source.flatten(), target.flatten(), value.flatten(0, 1)), pattern.folded(len(value))
    )
    return out.view(value.shape)  # type: ignore[no-any-return]


class _Attend(torch.autograd.Function):
    """The formula by torch's operations, on one graph.  [N], [N], [N, f] -> [N, f]

    The softmax is never formed: with w_ij its numerators and n_i their sum,
    out_i = (sum_j w_ij value_j) / n_i, and the gradient g_i of out_i is divided by n_i likewise:
    d score_ij = w_ij (g_i . value_j - g_i . out_i) / n_i,  d value = W^T (g / n).
    """

    @staticmethod
    def forward(
        ctx: Any, source: Tensor, target: Tensor, value: Tensor, pattern: AttentionPattern
    ) -> Tensor:
        at_source = source.index_select(0, pattern.columns)  # [E]
        # The largest score of a row sits at its largest source: the leaky ReLU is monotone.
        top = F.leaky_relu(pattern.row_max(at_source) + target, _SLOPE)  # [N]
        score = at_source.add_(target.index_select(0, pattern.rows))
        gap = F.leaky_relu(score, _SLOPE).sub_(top.index_select(0, pattern.rows))
        weight = gap.clamp_(min=_LOWEST).exp_()
        total = pattern.row_sums(weight)[:, None]  # [N, 1], at least 1
        value = value.contiguous()
        out = (pattern.matrix(weight) @ value).div_(total)
        ctx.pattern = pattern
        ctx.save_for_backward(score, weight, total, value, out)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        pattern: AttentionPattern = ctx.pattern
        score, weight, total, value, out = ctx.saved_tensors
        grad = grad / total
        inner = (grad * out).sum(1).neg_()  # [N]
        # g_i . value_j - g_i . out_i, at the pattern's entries only.
        d_score = pattern.matrix(inner.index_select(0, pattern.rows))
        torch.sparse.sampled_addmm(d_score, _even(grad), _even(value).t(), out=d_score)
        d_leaky = d_score.values().mul_(weight)
        d_sum = torch.ops.aten.leaky_relu_backward(d_leaky, score, _SLOPE, False)
        transposed = pattern.matrix(weight.index_select(0, pattern.mirror))
        d_value = transposed @ grad
        return pattern.column_sums(d_sum), pattern.row_sums(d_sum), d_value, None


def _even(x: Tensor) -> Tensor:
    """Pad columns to eights: torch's sampled product takes seven times as long on 4 as on 8."""
    return F.pad(x, (0, -x.shape[1] % 8)) if x.shape[1] % 8 else x
