"""Rewrites calls that numpy 2 refuses: `tostring`, `fromstring` of binary data, and ``np.array(x, copy=False)``."""

from __future__ import annotations

import ast
from collections.abc import Callable

from staging_tf1.legacy.codemod.changes import Edits
from staging_tf1.legacy.lint.module import is_open


def rewrite(call: ast.Call, full: str, is_module: Callable[[ast.expr], bool], edits: Edits) -> bool:
    """Rewrite a call so that it works with any numpy. Return whether it was rewritten.

    Args:
      call: the call.
      full: the full name of what is called.
      is_module: whether an expression stands for a module or something in it.
      edits: takes the replacements.
    """
    func = call.func
    if not isinstance(func, ast.Attribute):
        return False
    names = {keyword.arg for keyword in call.keywords}
    if func.attr == "tostring":
        # A function of a module is another, such as xml.etree.ElementTree.tostring.
        if is_module(func.value) or len(call.args) + len(call.keywords) > 1 or not names <= {"order"}:
            return False
        edits.rename(func, "tostring", "tobytes")
    elif is_open(call):
        return False
    elif full == "numpy.fromstring":
        if "sep" in names or len(call.args) > 3:
            return False
        edits.rename(func, "fromstring", "frombuffer")
        for keyword in call.keywords:
            if keyword.arg == "string":
                edits.rename(keyword, "string", "buffer")
        edits.append(call, ".copy()")  # the result may be written to
    elif full == "numpy.array":
        # With numpy 2, it raises if it has to copy.
        if not any(keyword.arg == "copy" and ast.unparse(keyword.value) == "False" for keyword in call.keywords):
            return False
        if not names <= {"copy", "dtype", "order"} or not 0 < len(call.args) <= 2:
            return False
        edits.rename(func, "array", "asarray")
        edits.remove_keyword(call, "copy")
    else:
        return False
    return True
