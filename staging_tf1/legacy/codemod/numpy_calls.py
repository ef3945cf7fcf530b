"""Rewrites calls that numpy 2 refuses: `tostring`, `fromstring` of binary data, and ``np.array(x, copy=False)``."""

from __future__ import annotations

import libcst as cst

from staging_tf1.legacy.codemod.names import Imports, dotted


def rewritten(original: cst.Call, updated: cst.Call, imports: Imports, defined: set[str]) -> cst.BaseExpression | None:
    """Return the call that works with any numpy, or None if this call stays.

    `defined` holds the names of the functions that the file defines: its own ``tostring`` is none of numpy's.
    """
    func = original.func
    if isinstance(func, cst.Attribute) and func.attr.value == "tostring":
        return None if "tostring" in defined else _tobytes(original, updated, imports)
    if imports.meaning(func) == "numpy.fromstring":
        return _frombuffer(updated)
    if imports.meaning(func) == "numpy.array":
        return _asarray(updated)
    return None


def _tobytes(original: cst.Call, updated: cst.Call, imports: Imports) -> cst.BaseExpression | None:
    receiver = dotted(original.func.value) if isinstance(original.func, cst.Attribute) else None
    root = (receiver or "").partition(".")[0]
    if root and (imports.uses(root) or imports.meaning(cst.Name(root)) != root):
        return None  # a function of a module, such as xml.etree.ElementTree.tostring
    orders = all(arg.keyword is None or arg.keyword.value == "order" for arg in original.args)
    if len(original.args) > 1 or not orders or not isinstance(updated.func, cst.Attribute):
        return None
    return updated.with_changes(func=updated.func.with_changes(attr=cst.Name("tobytes")))


def _frombuffer(updated: cst.Call) -> cst.BaseExpression | None:
    """Return ``np.frombuffer(...).copy()``, because the result of `fromstring` may be written to."""
    names = [arg.keyword.value if arg.keyword is not None else "" for arg in updated.args]
    if "sep" in names or names.count("") > 3 or not isinstance(updated.func, cst.Attribute):
        return None
    if any(arg.star for arg in updated.args):
        return None
    args = [
        arg.with_changes(keyword=cst.Name("buffer")) if arg.keyword is not None and name == "string" else arg
        for arg, name in zip(updated.args, names)
    ]
    call = updated.with_changes(func=updated.func.with_changes(attr=cst.Name("frombuffer")), args=args)
    return cst.Call(func=cst.Attribute(value=call, attr=cst.Name("copy")))


def _asarray(updated: cst.Call) -> cst.BaseExpression | None:
    """Return ``np.asarray(x, ...)`` for ``np.array(x, ..., copy=False)``, which raises if numpy 2 has to copy."""
    names = [arg.keyword.value if arg.keyword is not None else "" for arg in updated.args]
    values = {name: arg.value for name, arg in zip(names, updated.args)}
    copy = values.get("copy")
    if not (isinstance(copy, cst.Name) and copy.value == "False" and isinstance(updated.func, cst.Attribute)):
        return None
    if not set(names) <= {"", "copy", "dtype", "order"} or names.count("") > 2 or any(arg.star for arg in updated.args):
        return None
    kept = [arg for arg, name in zip(updated.args, names) if name != "copy"]
    kept[-1] = kept[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
    return updated.with_changes(func=updated.func.with_changes(attr=cst.Name("asarray")), args=kept)
