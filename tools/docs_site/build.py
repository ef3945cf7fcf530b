"""Builds the documentation site: `make site`. Warnings, broken links and missing pages are errors.

It needs the extra `site`. The site is a folder of plain files that also works without a web server.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

# Before the imports below, which import TensorFlow. It logs every GPU library that it does not find, and
# staging_tf1.contrib warns if Keras 2 is not chosen by then.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")

from links import problems
from navigation import add_navigation
from pages import ROOT, write_pages
from reference import write_reference
from sphinx.cmd.build import main as sphinx

HERE = Path(__file__).resolve().parent


def build(folder: Path) -> int:
    """Build the site into the folder and return an exit code."""
    pages, doctrees, html = folder / "pages", folder / "doctrees", (folder / "html").resolve()
    for old in (pages, doctrees, html):  # pages that are gone would still be found by the search
        shutil.rmtree(old, ignore_errors=True)
    write_pages(pages)
    add_navigation(pages, write_reference(pages))
    options = ["--quiet", "--fail-on-warning", "--keep-going", "--doctree-dir", str(doctrees)]
    code = sphinx(["--builder", "html", "--conf-dir", str(HERE), *options, str(pages), str(html)])
    if code:
        return code
    found = problems(html)
    print("\n".join(found) if found else f"built {html / 'index.html'}", file=sys.stderr if found else sys.stdout)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(build(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "site"))
