"""Rows: their schema, storage, metrics and summaries."""

from lpgnn.files import write_atomically as write_atomically
from lpgnn.rows.compaction import Compacted as Compacted
from lpgnn.rows.frame import results as results
from lpgnn.rows.metrics import DEFAULT_METRICS as DEFAULT_METRICS
from lpgnn.rows.metrics import check_metrics as check_metrics
from lpgnn.rows.metrics import evaluate as evaluate
from lpgnn.rows.metrics import metric_sources as metric_sources
from lpgnn.rows.metrics import needs_probabilities as needs_probabilities
from lpgnn.rows.metrics import recorded_source as recorded_source
from lpgnn.rows.outputs import save_history as save_history
from lpgnn.rows.outputs import save_predictions as save_predictions
from lpgnn.rows.outputs import save_weights as save_weights
from lpgnn.rows.records import Status as Status
from lpgnn.rows.records import SweepRecord as SweepRecord
from lpgnn.rows.records import Wanted as Wanted
from lpgnn.rows.records import at_work as at_work
from lpgnn.rows.records import records as records
from lpgnn.rows.schema import COLUMNS as COLUMNS
from lpgnn.rows.schema import PROVENANCE as PROVENANCE
from lpgnn.rows.schema import UNEVALUATED as UNEVALUATED
from lpgnn.rows.schema import Row as Row
from lpgnn.rows.schema import format_value as format_value
from lpgnn.rows.schema import package_version as package_version
from lpgnn.rows.store import RowStore as RowStore
from lpgnn.rows.summary import Summary as Summary
from lpgnn.rows.summary import summarise as summarise
