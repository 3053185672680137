import re

import pytest
from matplotlib.lines import Line2D

from lpgnn.report.drawing import add_legend, new_figure, our_style
from lpgnn.report.svg import compact

DRAWING = b"""<?xml version="1.0" encoding="utf-8" standalone="no"?>
<svg xmlns:xlink="http://www.w3.org/1999/xlink" width="72pt" viewBox="0 0 72 72"
  xmlns="http://www.w3.org/2000/svg">
 <metadata>matplotlib</metadata>
 <defs>
  <style type="text/css">*{stroke-linejoin: round}</style>
 </defs>
 <g id="figure_1">
  <g id="axes_1">
   <path id="ma1b2c3" d="M 0 -1.25
L 2 0
z
" transform="scale(0.015625)"/>
   <!-- 0.01 -->
   <g transform="translate(12.345678 3) scale(0.09 -0.09)">
    <use xlink:href="#ma1b2c3" x="1.004" style="fill: #000000"/>
   </g>
   <path d="M 1 2
L 3 4.125678
" clip-path="url(#p9)" style="fill: none; stroke: #0072b2"/>
   <path d="M 5 6
L 7 8
" clip-path="url(#p9)" style="fill: none; stroke: #0072b2"/>
   <path d="M 0 0
L 1 1
z
" style="fill: #0072b2"/>
   <use xlink:href="#ma1b2c3" style="fill: #000000"/>
  </g>
 </g>
 <clipPath id="p9"><rect width="10"/></clipPath>
</svg>
"""


def test_names_styles_lines_and_digits_are_saved() -> None:
    assert compact(DRAWING).decode() == (
        '<svg xmlns="http://www.w3.org/2000/svg" width="72pt" viewBox="0 0 72 72">'
        '<defs><style type="text/css">*{stroke-linejoin:round}.a{fill:#000000}</style></defs>'
        # A scale keeps its digits, and a name that is used a short form.
        '<path d="M0 -1.25L2 0z" transform="scale(0.015625)" id="a"/>'
        "<!-- 0.01 -->"
        '<g transform="translate(12.35 3) scale(0.09 -0.09)">'
        '<use x="1" href="#a" class="a"/></g>'
        # Two lines of one style are one element; a filled path stays alone.
        '<path d="M1 2L3 4.13M5 6L7 8" clip-path="url(#b)" style="fill: none; stroke: #0072b2"/>'
        '<path d="M0 0L1 1z" style="fill: #0072b2"/>'
        '<use href="#a" class="a"/>'
        '<clipPath id="b"><rect width="10"/></clipPath></svg>'
    )


def test_a_picture_inside_the_picture_stays() -> None:
    image = b'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink">'
    image += b'<image xlink:href="data:image/png;base64, iVBO"/></svg>'
    assert b'href="data:image/png;base64, iVBO"' in compact(image)


@pytest.mark.parametrize(("length", "columns"), [(1, 8), (20, 2), (60, 1)])
def test_a_legend_has_as_many_columns_as_fit(length: int, columns: int) -> None:
    handles = [Line2D([], [], label="x" * length) for _ in range(9)]
    with our_style():
        figure = new_figure(6, 4)
        figure.subplots()
        add_legend(figure, handles)
        (legend,) = figure.legends
        assert legend._ncols == columns  # type: ignore[attr-defined]
        assert legend.get_window_extent().width <= figure.bbox.width


def test_every_reference_of_a_drawing_is_kept() -> None:
    text = compact(DRAWING).decode()
    referred = set(re.findall(r'href="#(\w+)"|url\(#(\w+)\)', text))
    named = set(re.findall(r' id="(\w+)"', text))
    assert {one or other for one, other in referred} == named
