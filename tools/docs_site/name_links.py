"""A Sphinx extension: `code` that is a public name, in docstrings and on pages, links to the page of that name.

It also lets docstrings write `name`s, where reStructuredText needs an escaped space before the s.
"""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from reference import public_names
from sphinx.addnodes import desc_signature, pending_xref
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

# Where a link would stand within a link, or is no use.
_NOT_WITHIN = (nodes.reference, nodes.title, desc_signature, pending_xref)
# How programs call the package.
_ALIASES = ("staging_tf1", "staging")


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


def separate_plurals(app: Sphinx, what: str, name: str, value: object, options: object, lines: list[str]) -> None:
    """Change the lines of a docstring in place."""
    lines[:] = [re.sub(r"(`[^`]+`)s\b", r"\1\\ s", line) for line in lines]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the transform and the event."""
    app.add_transform(NameLinks)
    app.connect("autodoc-process-docstring", separate_plurals)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
