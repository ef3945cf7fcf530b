"""The names that an expression reads, passes on, or is known by."""

from __future__ import annotations

import libcst as cst

from staging_tf1.legacy.lint.facts import Key
from staging_tf1.legacy.lint.names import dotted


def key_of(node: cst.BaseExpression) -> Key:
    """Return the name by which an expression is known. A subscript has the name of the subscripted object."""
    if isinstance(node, cst.Name):
        return node.value
    if isinstance(node, cst.Attribute):
        return "." + node.attr.value
    if isinstance(node, cst.Subscript):
        return key_of(node.value)
    return ""


def target_keys(node: cst.BaseExpression) -> list[Key]:
    """Return the names that an assignment to this target binds."""
    if isinstance(node, (cst.Tuple, cst.List)):
        return [key for element in node.elements for key in target_keys(element.value)]
    key = key_of(node)
    return [key] if key else []


def keys_read(node: cst.CSTNode) -> set[Key]:
    """Return every name in an expression, and a marker such as "area put()" for each call of a method."""
    found: set[Key] = set()

    class Names(cst.CSTVisitor):
        def visit_Name(self, node: cst.Name) -> None:
            found.add(node.value)

        def visit_Attribute(self, node: cst.Attribute) -> bool:
            found.add("." + node.attr.value)
            node.value.visit(self)
            return False

        def visit_Call(self, node: cst.Call) -> bool:
            if isinstance(node.func, cst.Attribute) and node.func.attr.value == "run":
                return False  # a run returns values, which are not part of the graph
            if isinstance(node.func, cst.Attribute) and (key := key_of(node.func.value)):
                # An area's put depends on this marker, not on the area itself.
                found.add(f"{key} {node.func.attr.value}()")
                if node.func.attr.value in ("put", "get", "peek", "stage", "unstage", "size", "clear"):
                    for arg in node.args:
                        arg.value.visit(self)
                    return False
            return True

        def visit_Lambda(self, node: cst.Lambda) -> bool:
            found.update(keys_read(node.body) - parameter_names(node.params))
            return False

        def visit_Arg(self, node: cst.Arg) -> bool:
            node.value.visit(self)  # the keyword is not a name that is read
            return False

    node.visit(Names())
    return found


def parameter_names(node: cst.Parameters) -> set[Key]:
    """Return the names of a function's parameters."""
    return {param.name.value for param in (*node.params, *node.posonly_params, *node.kwonly_params)}


def keys_passed_on(node: cst.BaseExpression) -> set[Key]:
    """Return the names whose values an expression passes on unchanged."""
    if isinstance(node, (cst.Name, cst.Attribute, cst.Subscript)):
        key = key_of(node)
        return {key} if key else set()
    if isinstance(node, (cst.List, cst.Tuple)):
        return {key for element in node.elements for key in keys_passed_on(element.value)}
    if isinstance(node, cst.ListComp):
        return keys_passed_on(node.elt)
    if isinstance(node, cst.Call) and dotted(node.func) in ("zip", "enumerate", "list", "reversed", "tuple"):
        return {key for arg in node.args for key in keys_passed_on(arg.value)}
    return set()
