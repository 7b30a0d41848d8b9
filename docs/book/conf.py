"""Settings with which Sphinx builds the book.

`build.py` gathers the sources; `lesson_pages.py` adapts the lessons.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

project = "The deployment workbook"
author = "the workbook's authors"
html_title = project
html_copy_source = True  # the notebook of each page can be downloaded, as it was run
html_sourcelink_suffix = ""
html_show_sphinx = html_show_copyright = False

extensions = ["myst_nb", "lesson_pages"]
html_math_renderer = "mathml"  # of lesson_pages: nothing is fetched to draw a formula
myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence", "deflist"]
myst_heading_anchors = 3
nb_execution_mode = "off"  # what was run is shown; a build never runs a lesson
nb_ipywidgets_js = {}  # these scripts lie on other hosts
nb_mime_priority_overrides = [("html", "application/vnd.jupyter.widget-view+json", None)]
nb_merge_streams = True
suppress_warnings = ["mystnb.unknown_mime_type"]

smartquotes_action = "qe"  # quotes and dots, but no dash in the place of the -- of an option
html_theme = "sphinx_book_theme"
html_static_path = [str(Path(__file__).with_name("static"))]
html_css_files = ["book.css"]
html_js_files = ["book.js"]
html_permalinks = html_use_index = False
html_theme_options = {
    "home_page_in_toc": True,
    "show_toc_level": 2,
    "navbar_persistent": [],
    "navigation_with_keys": False,
    "use_fullscreen_button": False,
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
