"""Tables, figures and pages, made from an experiment's YAML and rows."""

from lpgnn.report.build import build as build
from lpgnn.report.evidence import Cell as Cell
from lpgnn.report.evidence import Results as Results
from lpgnn.report.evidence import Source as Source
from lpgnn.report.figures import draw_figure as draw_figure
from lpgnn.report.grid import Grid as Grid
from lpgnn.report.paired import Difference as Difference
from lpgnn.report.tables import Table as Table
from lpgnn.report.tables import build_table as build_table
