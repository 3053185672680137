"""P-values for the tests of random mechanisms, all judged against one ALPHA.

A correct sampler fails a check with probability ALPHA at most (up to the normal approximation in
``mean_p_value``); every check is also shown to reject a broken sampler.
"""

import math
from collections.abc import Sequence

import torch
from scipy.stats import binomtest, norm
from torch import Tensor

ALPHA = 1e-6


def mean_p_value(samples: Tensor, expected: float) -> float:
    """Two-sided, by the central limit theorem: is ``expected`` the mean of these samples?"""
    samples = samples.double()
    error = float(samples.std()) / math.sqrt(samples.numel())
    return float(2 * norm.sf(abs(float(samples.mean()) - expected) / error))


def counts_p_value(counts: Sequence[int], probabilities: Sequence[float]) -> float:
    """Exact: binomial tests of every cell, combined by Bonferroni's inequality."""
    total = sum(counts)
    smallest = min(
        float(binomtest(count, total, min(p, 1.0)).pvalue)
        for count, p in zip(counts, probabilities, strict=True)
    )
    return min(1.0, smallest * len(counts))


def moments_p_value(rectified: Tensor, x: Tensor, variance: Tensor) -> float:
    """Are the columns unbiased for x and of the given variance?  [n, d], [d], [d]"""
    checks = []
    for column, clean, expected in zip(rectified.double().T, x.double(), variance, strict=True):
        checks.append(mean_p_value(column, float(clean)))
        checks.append(mean_p_value((column - clean) ** 2, float(expected)))
    return min(1.0, min(checks) * len(checks))


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)
