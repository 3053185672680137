"""The package's templates: one set-up for pages and for Markdown."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Environment


def page_templates(folder: str = "") -> "Environment":
    """Templates of HTML pages below a folder of the package; ``symbols`` typesets ε_x."""
    from markupsafe import Markup

    from lpgnn.report.notation import html_text

    environment = _templates(folder, is_html=True)
    environment.filters["symbols"] = lambda text: Markup(html_text(text))
    return environment


def markdown_templates(folder: str) -> "Environment":
    """Templates of Markdown texts below a folder of the package."""
    return _templates(folder, is_html=False)


def _templates(folder: str, *, is_html: bool) -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("lpgnn", folder),
        autoescape=is_html,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=not is_html,
    )
