"""Tables, figures, comparison and page, made from rows."""

from lpgnn.report.cells import Cell as Cell
from lpgnn.report.cells import all_cells as all_cells
from lpgnn.report.cells import table_cells as table_cells
from lpgnn.report.comparison import Judged as Judged
from lpgnn.report.comparison import compare as compare
from lpgnn.report.comparison import judge as judge
from lpgnn.report.comparison import verdict_counts as verdict_counts
from lpgnn.report.evidence import Evidence as Evidence
from lpgnn.report.figures import write_convexity as write_convexity
from lpgnn.report.printed import Printed as Printed
from lpgnn.report.printed import paper_numbers as paper_numbers
from lpgnn.report.printed import paper_statistics as paper_statistics
from lpgnn.report.rebuild import rebuild as rebuild
from lpgnn.report.tables import record_statistics as record_statistics
