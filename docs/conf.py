"""How Sphinx builds this directory as a site: ``python -m sphinx -W --keep-going -n docs docs/_build/html``.

Nothing is fetched while it is built.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

import jupyter_exec_ext

project = "jupyter_exec_ext"
author = "The jupyter_exec_ext authors"
copyright = author  # noqa: A001
version = release = jupyter_exec_ext.__version__

# On the day of the first release, `python -m tools.switch_install_lines` makes this True.
package_is_released = False

# Address of the repository, once it has a public one. Pages then have a link to it in their heads.
repository_url = ""

extensions = [
    "exec_docs",
    "exec_docs.install_lines",
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build", "_ext", "_static", "images"]

# Headings get the anchors that they have on code hosts, so that links work there and here.
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
napoleon_google_docstring = False
napoleon_use_rtype = False
# Docstrings have single backticks round names.
default_role = "code"
# Only our own names can be looked up without the network, and type variables nowhere.
nitpick_ignore_regex = [("py:.*", r"(?!jupyter_exec_ext\.).*"), ("py:.*", r"jupyter_exec_ext\..*\.[A-Z]")]

# A copy button leaves out prompts such as "you$ ", and the output between them.
copybutton_prompt_text = r"\w*\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True
copybutton_line_continuation_character = "\\"

html_theme = "pydata_sphinx_theme"
html_logo = html_favicon = "images/logo.svg"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_title = "jupyter_exec_ext"
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "logo": {"text": f"jupyter_exec_ext {release}", "alt_text": "jupyter_exec_ext: start page"},
    "icon_links": [
        {"name": "Repository", "url": url, "icon": "fa-solid fa-code-branch"} for url in [repository_url] if url
    ],
    "navbar_align": "left",
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "footer_start": ["copyright"],
    "footer_end": ["sphinx-version", "theme-version"],
}
