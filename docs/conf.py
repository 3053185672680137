"""Sphinx builds the documentation from here: ``make docs``."""

import shutil
import sys
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS / "extensions"))

from lpgnn.rows import package_version  # noqa: E402

project = "lpgnn"
author = "The lpgnn maintainers"
copyright = "The lpgnn maintainers, MIT licence"
release = version = package_version()

extensions = ["myst_nb", "sphinx.ext.autodoc", "plain_docstrings", "mathml", "generated_pages"]
exclude_patterns = ["build", "extensions"]
nitpicky = True
# Types in signatures that have no page: those inside of our packages, and those of others, whose
# documentation is not looked up because the build needs no network.
_PUBLIC = "data|privacy|client|propagation|models|learners|loggers|rows|report"
nitpick_ignore_regex = [("py:.*", rf"(?!lpgnn\.({_PUBLIC})\.\w+$).*")]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 80
autodoc_preserve_defaults = True

myst_enable_extensions = ["dollarmath", "deflist", "colon_fence", "attrs_block", "attrs_inline"]
myst_heading_anchors = 3

# The notebooks hold no outputs: they are run here, and a cell that fails stops the build.
nb_execution_mode = "cache"
nb_execution_cache_path = str(DOCS / "build" / "notebooks")
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_execution_in_temp = True
nb_merge_streams = True
nb_output_stderr = "remove"  # progress bars
nb_render_markdown_format = "myst"  # a table that a cell shows is a table; CommonMark has none

html_theme = "furo"
html_title = "lpgnn"
html_static_path = ["_static"]
html_css_files = ["lpgnn.css"]
html_extra_path = ["../results/report.html"]
html_math_renderer = "mathml"
html_copy_source = False
html_show_sourcelink = False


def setup(app: Any) -> None:
    app.connect("build-finished", _copy_rows)


def _copy_rows(app: Any, error: Exception | None) -> None:
    """The report links each number to the file of its rows."""
    if error is None:
        rows = Path(__file__).parents[1] / "results" / "rows"
        shutil.copytree(rows, Path(app.outdir) / "rows", dirs_exist_ok=True)
