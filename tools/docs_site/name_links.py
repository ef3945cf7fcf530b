"""A Sphinx extension: `code` that is a public name, in docstrings and on pages, links to the page of that name.

In docstrings docs/page.md links to that page, and `name`s may be written where reStructuredText needs an escaped space
before the s. Types that say nothing, `Any`, are left out.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from docutils import nodes
from reference import public_names
from sphinx.addnodes import desc_signature, pending_xref
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

# Where a link would stand within a link, or is no use.
_NOT_WITHIN = (nodes.reference, nodes.title, desc_signature, pending_xref)
# Pixels of a picture whose text would be too small on a phone, so that it is moved to the side there.
_WIDE = 600
# How programs call the package.
_ALIASES = ("staging_tf1", "staging")


class LinkedPictures(SphinxTransform):
    """Lets a picture fit the page, and makes it a link to the whole one. Narrow ones keep their size."""

    default_priority = 400

    def apply(self, **kwargs: Any) -> None:
        """Change the document in place. Sphinx links pictures that have a width."""
        for picture in self.document.findall(nodes.image):
            path = Path(self.env.relfn2path(picture["uri"])[1])
            width = re.search(r' width="(\d+)"', path.read_text(encoding="utf-8")) if path.suffix == ".svg" else None
            if width and int(width[1]) < _WIDE:
                picture["width"] = f"{width[1]}px"
            else:
                picture["width"] = "100%"
                picture["classes"].append("wide")


class NameLinks(SphinxTransform):
    """Wraps each such literal in a reference to the object."""

    default_priority = 400

    def apply(self, **kwargs: Any) -> None:
        """Change the document in place."""
        for literal in list(self.document.findall(nodes.literal)):
            target = _TARGETS.get(literal.astext().removesuffix("()"))
            page = self.env.docname.removeprefix("reference/")
            if target is None or target == page or _is_within(literal):
                continue
            reference = pending_xref("", refdomain="py", reftype="obj", reftarget=target, refdoc=self.env.docname)
            literal.replace_self(reference)
            reference += literal


def _is_within(node: nodes.Node) -> bool:
    while node.parent is not None:
        node = node.parent
        if isinstance(node, _NOT_WITHIN):
            return True
    return False


def _targets() -> dict[str, str]:
    """Map what a text may call a public name to its full name."""
    found = {}
    for module, name, _ in public_names():
        inner = [module.__name__.removeprefix("staging_tf1").strip("."), name]
        path = ".".join(filter(None, inner))
        for short in (name, path, *(f"{alias}.{path}" for alias in _ALIASES)):
            found[short] = f"{module.__name__}.{name}"
    # `start` alone is also an argument, a method and a word.
    del found["start"]
    return found


_TARGETS = _targets()


def adapt_docstring(app: Sphinx, what: str, name: str, value: object, options: object, lines: list[str]) -> None:
    """Change the lines of a docstring in place."""
    if app.env.docname == f"reference/{name}":
        # `reference.py` writes the first line above the signature.
        del lines[: lines.index("") + 1 if "" in lines else len(lines)]

    def linked(match: re.Match[str]) -> str:
        return f":doc:`{match[0]} </{match[1]}>`" if match[1] in app.env.found_docs else match[0]

    for number, line in enumerate(lines):
        line = re.sub(r"(`[^`]+`)s\b", r"\1\\ s", line)
        lines[number] = re.sub(r"(?<![\w/`])docs/(\w+)\.md", linked, line)


def leave_out_any(app: Sphinx, domain: str, objtype: str, content: nodes.Element) -> None:
    """Remove `Any` from the types that Sphinx has read from the annotations of a function."""
    for field in list(content.findall(nodes.field)):
        name, body = field.children
        if name.astext().startswith(("type ", "rtype")) and body.astext().lstrip("~") in ("Any", "typing.Any"):
            field.parent.remove(field)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the transform and the event."""
    app.add_transform(LinkedPictures)
    app.add_transform(NameLinks)
    app.connect("autodoc-process-docstring", adapt_docstring)
    # After autodoc has added the types.
    app.connect("object-description-transform", leave_out_any, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
