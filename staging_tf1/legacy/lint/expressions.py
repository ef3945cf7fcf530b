"""Which names an expression reads, passes on, or is known by."""

from __future__ import annotations

import libcst as cst

from staging_tf1.legacy.lint.facts import Key
from staging_tf1.legacy.lint.names import dotted


def key_of(node: cst.BaseExpression) -> Key:
    """The name under which an expression is known: of a subscript, that of what is subscripted."""
    if isinstance(node, cst.Name):
        return node.value
    if isinstance(node, cst.Attribute):
        return "." + node.attr.value
    if isinstance(node, cst.Subscript):
        return key_of(node.value)
    return ""


def target_keys(node: cst.BaseExpression) -> list[Key]:
    """The names that an assignment to this target binds."""
    if isinstance(node, (cst.Tuple, cst.List)):
        return [key for element in node.elements for key in target_keys(element.value)]
    key = key_of(node)
    return [key] if key else []


def keys_read(node: cst.CSTNode) -> set[Key]:
    """Every name within an expression, and a marker for each call of a method: "area.put()"."""
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
                return False  # values: what is made of them is no part of the graph
            if isinstance(node.func, cst.Attribute) and (key := key_of(node.func.value)):
                # The area itself is not what its put is made of; the marker is.
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
            node.value.visit(self)  # a keyword is no name that is read
            return False

    node.visit(Names())
    return found


def parameter_names(node: cst.Parameters) -> set[Key]:
    """The names that a function binds for itself."""
    return {param.name.value for param in (*node.params, *node.posonly_params, *node.kwonly_params)}


def keys_passed_on(node: cst.BaseExpression) -> set[Key]:
    """The names whose values an expression passes on as they are."""
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
