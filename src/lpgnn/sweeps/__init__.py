"""Many configurations at once: what is left to do, what it costs, and who does it."""

from lpgnn.sweeps.costs import CostModel as CostModel
from lpgnn.sweeps.failures import Failure as Failure
from lpgnn.sweeps.failures import describe_error as describe_error
from lpgnn.sweeps.failures import explain as explain
from lpgnn.sweeps.outdated import outdated_rows as outdated_rows
from lpgnn.sweeps.pool import run_tasks as run_tasks
from lpgnn.sweeps.tasks import Execution as Execution
from lpgnn.sweeps.tasks import Task as Task
from lpgnn.sweeps.tasks import plan_tasks as plan_tasks
