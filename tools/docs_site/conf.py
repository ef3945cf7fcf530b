"""The configuration of Sphinx for the documentation site. `make site` builds it; see `build.py`.

Why Sphinx with MyST, and not MkDocs: MkDocs has had no release since 2024 and its Material theme has announced
maintenance only, while Sphinx, MyST and the theme Furo have regular releases. Autodoc reads the docstrings by import,
as `help()` does. Sphinx itself checks links, anchors and cross-references, and its search and themes load nothing from
other servers, so the site works from a folder without a network.

The site has one version, that of the package, in its title. Hosts such as Read the Docs keep one site per tag.
"""

from __future__ import annotations

import sys
from importlib.metadata import metadata
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from staging_tf1 import __version__  # noqa: E402

project = "staging_tf1"
author = "the contributors of staging_tf1"
copyright = author
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton", "name_links"]
# What is printed has no button; what is typed is copied without the prompts.
copybutton_selector = "div:not(.highlight-text) > div.highlight > pre"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
copybutton_line_continuation_character = "\\"
root_doc = "index"
# `make site` treats warnings as errors. An unresolved cross-reference is one, but names of TensorFlow and numpy in
# signatures lead nowhere, because their inventories would have to be downloaded.
nitpicky = False

# The anchors that code hosts make from headings, so that page.md#heading works in both places.
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
# Python where it is valid, and else text, such as the diagrams in docstrings.
highlight_language = "default"

# Docstrings use `backticks` for code, as Markdown does.
default_role = "code"
add_module_names = False
autodoc_typehints = "description"
# By its name, because it stands for a union of ten types.
autodoc_type_aliases = {"ArrayLike": "ArrayLike"}
autodoc_typehints_description_target = "documented"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
maximum_signature_line_length = 72
python_use_unqualified_type_names = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False
toc_object_entries = False

html_theme = "furo"
pygments_dark_style = "github-dark"
html_title = f"{project} {release}"
html_static_path = [str(HERE / "static")]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
# Only a build from a clone of a public repository knows its address: see setup.py.
_URLS = dict(url.split(", ", 1) for url in metadata("staging-tf1").get_all("Project-URL") or [])
_CALM_SIDEBAR = {"color-sidebar-link-text--top-level": "var(--color-foreground-primary)"}
html_theme_options = {
    "navigation_with_keys": True,
    "footer_icons": [{"name": name, "url": url, "html": name, "class": ""} for name, url in _URLS.items()],
    "light_css_variables": {"color-brand-primary": "#b34700", "color-brand-content": "#b34700", **_CALM_SIDEBAR},
    "dark_css_variables": {"color-brand-primary": "#ff9d5c", "color-brand-content": "#ff9d5c", **_CALM_SIDEBAR},
}
