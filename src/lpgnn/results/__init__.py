"""Rows, their storage and their summaries."""

from lpgnn.results.evaluation import test_accuracy as test_accuracy
from lpgnn.results.store import PROVENANCE as PROVENANCE
from lpgnn.results.store import Row as Row
from lpgnn.results.store import RowStore as RowStore
from lpgnn.results.store import package_version as package_version
from lpgnn.results.store import write_atomically as write_atomically
from lpgnn.results.summary import Summary as Summary
from lpgnn.results.summary import summarise as summarise
