"""Settings of the website; `make site` copies the pages together and runs Sphinx on them."""

import importlib.metadata
import os

repository, home = os.environ.get("REPO", ""), os.environ.get("HOME_PAGE", "")

project = "Double backward"
author = "the authors of the course"
release = importlib.metadata.version("double-backward")
html_title = "Double backward"
myst_html_meta = {
    "description lang=en": "A course in five executable notebooks, and a tool: PyTorch autograd "
    "Functions whose second derivative is right, and how to find those that are silently wrong.",
    "property=og:title": "Double backward: second derivatives that are silently wrong",
    "property=og:type": "website",
}
language = "en"
mathjax_path = "tex-svg.js"  # beside the pages, not on somebody's server
html_baseurl = f"{home}/" if home else ""  # then each page names its own address
if home:  # a picture is found by its whole address only
    myst_html_meta["property=og:image"] = f"{home}/pictures/front.png"
    myst_html_meta["name=twitter:card"] = "summary_large_image"

extensions = [
    "myst_nb",  # notebooks and Markdown as pages, with their stored outputs
    "sphinx.ext.autodoc",  # the reference, from the docstrings
    "sphinx.ext.napoleon",  # which are written in Google's style
    "sphinx_copybutton",
    "sphinx.ext.mathjax",
]
exclude_patterns = ["_build"]

nb_execution_mode = "off"  # the outputs are those that the tests have compared
nb_merge_streams = True
nb_code_prompt_show = "Show what it prints"
nb_code_prompt_hide = "Hide what it prints"
myst_enable_extensions = ["dollarmath", "amsmath"]
myst_heading_anchors = 3
suppress_warnings = [
    "myst.header",  # a lesson's cells begin where the text needs it
    "mystnb.unknown_mime_type",  # a curve's numbers, beside its picture
]
highlight_language = "none"  # a report is no code; code says which language it is
autodoc_typehints = "none"  # the docstrings say more
add_module_names = False

html_theme = "sphinx_book_theme"
html_static_path = ["_static"]
html_css_files = ["course.css"]
html_js_files = ["course.js"]
html_favicon = "_static/favicon.svg"
html_extra_path = ["extra"]
html_context = {"default_mode": "auto"}  # light or dark, as the reader's system has it
html_theme_options = {
    "use_download_button": False,  # a lesson links the copy that brings all it needs
    "use_fullscreen_button": False,
    "navbar_persistent": [],  # the search is in the menu and beside the title
    "show_toc_level": 2,
    "secondary_sidebar_items": {
        "notebooks/*": ["page-toc"],
        "site/tool/*": ["page-toc"],
        "[A-Z]*": ["page-toc"],
    },
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
if repository:
    html_theme_options |= {
        "repository_url": f"https://github.com/{repository}",
        "use_repository_button": True,
        "use_issues_button": True,
    }
