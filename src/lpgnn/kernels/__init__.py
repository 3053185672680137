"""Compiled loops on arrays: what torch's own operations leave on the table on a CPU.

On one core torch's sparse product takes 2.0 to 2.9 times as long as these loops on Cora's and
Facebook's adjacency and 16 to 64 columns, and its per-edge steps of an attention head four times.
They are written in Python and compiled by numba, which installs from wheels and needs no compiler;
a GPU runs torch's operations.  Only ``Backend`` is imported here: the modules with loops import
numba, and a run with ``kernels=torch`` needs none of them.
"""

from lpgnn.kernels.backend import Backend as Backend
