"""Settings of the website; `make site` copies the pages together and runs Sphinx on them."""

import importlib.metadata
import json
import os
import sys

from sphinx.ext import mathjax

repository, home = os.environ.get("REPO", ""), os.environ.get("HOME_PAGE", "")
# By the names in scripts/editions/languages.py: its words, and which pages others have.
words, others = json.loads(os.environ["SITE_WORDS"]), json.loads(os.environ["SITE_OTHERS"])
language = os.environ["SITE_LANGUAGE"]

project = words["title"]
release = importlib.metadata.version("double-backward")
html_title = words["title"]
myst_html_meta = {
    f"description lang={words['lang']}": words["description"],
    "property=og:title": words["headline"],
    "property=og:type": "website",
}
html_math_renderer = "written"  # and drawn once the pages are made
# With a home, each page names its own address.
html_baseurl = f"{home}/{os.environ['SITE_FOLDER']}" if home else ""
if home:  # a picture is found by its whole address only
    myst_html_meta["property=og:image"] = f"{home}/pictures/front.png"
    myst_html_meta["name=twitter:card"] = "summary_large_image"

extensions = [
    "myst_nb",  # notebooks and Markdown as pages, with their stored outputs
    "sphinx.ext.autodoc",  # the reference, from the docstrings
    "sphinx.ext.napoleon",  # which are written in Google's style
    "sphinx_copybutton",
    "sphinx.ext.mathjax",  # writes a formula; its script is not used
]
if language == "zh_CN":
    sys.path.insert(0, os.path.dirname(__file__))
    extensions.append("chinese_search")
exclude_patterns = ["_build"]

nb_execution_mode = "off"  # the outputs are those that the tests have compared
nb_merge_streams = True
nb_render_error_lexer = "none"  # an error's words are no code
myst_enable_extensions = ["dollarmath", "amsmath"]
myst_heading_anchors = 3
suppress_warnings = [
    "myst.header",  # a lesson's cells begin where the text needs it
    "mystnb.unknown_mime_type",  # a curve's numbers, beside its picture
]
smartquotes = False  # an error's text is searched for as it was printed
highlight_language = "none"  # a report is no code; code says which language it is
autodoc_typehints = "none"  # the docstrings say more
add_module_names = False

html_theme = "sphinx_book_theme"
html_static_path = ["_static"]
templates_path = ["templates"]
html_css_files = ["course.css", "formulas.css"]
html_js_files = ["course.js"]
html_favicon = "_static/favicon.svg"
if language == "en":
    html_extra_path = ["extra"]  # what the pages of all languages show and link
else:
    html_use_index = False  # of the reference, which is English
html_context = {
    "default_mode": "auto",  # light or dark, as the reader's system has it
    "other_languages": others,
    "in_english": language == "en",
}
html_theme_options = {
    "article_header_end": ["language-switch.html", "article-header-buttons.html"],
    "use_download_button": False,  # a lesson links the copy that brings all it needs
    "use_fullscreen_button": False,
    "footer_content_items": ["extra-footer.html"],
    "extra_footer": f"{words['title']} {release} · {words['license']}",
    "search_bar_text": words["search"],
    "navbar_persistent": [],  # the search is in the menu and beside the title
    "show_toc_level": 2,
    "secondary_sidebar_items": {
        "notebooks/*": ["page-toc"],
        "docs/*": ["page-toc"],
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


def setup(app):
    """Formulas as TeX, without the script that would draw them in the reader's browser."""
    inline, displayed = mathjax.html_visit_math, mathjax.html_visit_displaymath
    app.add_html_math_renderer("written", (inline, None), (displayed, None))
