"""Makes a program run without the shim, and changes nothing else."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider

from staging_tf1.legacy import moved_names
from staging_tf1.legacy.codemod import numpy_calls
from staging_tf1.legacy.codemod.changes import Changes, Note
from staging_tf1.legacy.codemod.import_lines import (
    add_after_imports,
    add_before_imports,
    code,
    expression,
    import_line,
    names_in,
    rewritten_import,
    without_unused_imports,
)
from staging_tf1.legacy.codemod.names import Imports, dotted, imports_of
from staging_tf1.legacy.source_files import SourceFile, UnreadableError, why_invalid

_V1 = "tensorflow.compat.v1"
# Imports that are kept only if something still uses them.
_NOT_LEFT_UNUSED = (moved_names.CONTRIB, "tensorflow.python.ops.data_flow_ops")
_CHOOSES_KERAS_TWO = "import staging_tf1.contrib.keras_two"
# Names that need Keras 2.
_KERAS_TWO = (
    "tensorflow.keras.",
    "tensorflow.layers.",
    "tensorflow.nn.rnn_cell.",
    "tensorflow.python.layers.",
    "staging_tf1.contrib.",
)
_BY_STRING = ("importlib.import_module", "__import__")


def left_in_the_result(source: SourceFile, changes: Changes) -> Changes:
    """Return `changes` with the line numbers of `left` in the new text, for use after it is written."""
    again = dataclasses.replace(source, text=changes.after)
    return dataclasses.replace(changes, left=migrate(again).left)


def migrate(source: SourceFile) -> Changes:
    """Return the changes of one file. Names without a new home stay, and are listed. Nothing is written."""
    original = _parsed(source)
    wrapper = MetadataWrapper(original, unsafe_skip_copy=True)
    survey = _Survey()
    original.visit(survey)
    rewriter = _Rewriter(wrapper, survey)
    module = original.visit(rewriter)
    module, unused = without_unused_imports(module, {*_NOT_LEFT_UNUSED, *rewriter.emptied})
    gone = {moved_names.short(full) for full in unused}
    rewriter.left = [note for note in rewriter.left if note.text not in gone]
    module = _with_imports(module, survey, rewriter)
    if _uses_keras_two(module) and _CHOOSES_KERAS_TWO not in {code(node).strip() for node in _statements(module)}:
        module = add_before_imports(module, _CHOOSES_KERAS_TWO)
        rewriter.done.append(Note(1, f"{_CHOOSES_KERAS_TWO} added, for tf.layers, tf.nn.rnn_cell or tf.keras"))
    return Changes(source.path, source.text, module.code, sorted(set(rewriter.done)), sorted(set(rewriter.left)))


def _parsed(source: SourceFile) -> cst.Module:
    """Return the syntax tree of a file, or raise UnreadableError with the reason: often it is Python 2."""
    try:
        return cst.parse_module(source.text)
    except cst.ParserSyntaxError as error:
        otherwise = f":{error.raw_line}: LibCST cannot read it: {error.message.splitlines()[0]}"
        raise UnreadableError(why_invalid(source, otherwise)) from error


class _Survey(cst.CSTVisitor):
    """The imports and calls of the original file."""

    def __init__(self) -> None:
        self.imports = Imports()
        self.v1_name: str | None = None  # the name of compat.v1 in this file
        self.by_upgrade = False  # tf_upgrade_v2 has run: tf is TensorFlow 2, and tf.compat.v1 is spelled out
        self.switched_off = False  # the file itself switches v2 behaviour off
        self.tutorial_areas: set[str] = set()
        self.defined: set[str] = set()  # the names of functions

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        self.defined.add(node.name.value)

    def visit_Import(self, node: cst.Import) -> None:
        self.imports.add(node)
        for alias in node.names:
            name = dotted(alias.name)
            if name in ("tensorflow", _V1) and alias.asname is not None:
                self.v1_name = dotted(alias.asname.name)
            elif name is not None and name.partition(".")[0] == "tensorflow" and alias.asname is None:
                self.v1_name = self.v1_name or "tensorflow"

    def visit_ImportFrom(self, node: cst.ImportFrom) -> None:
        self.imports.add(node)
        if node.module is not None and not isinstance(node.names, cst.ImportStar):
            for alias in node.names:
                if f"{dotted(node.module)}.{alias.evaluated_name}" == _V1:
                    self.v1_name = alias.evaluated_alias or alias.evaluated_name

    def visit_Attribute(self, node: cst.Attribute) -> None:
        text = dotted(node) or ""
        if self.v1_name is not None and text.startswith(f"{self.v1_name}.compat.v1."):
            self.by_upgrade = True
        if node.attr.value in ("disable_v2_behavior", "disable_eager_execution"):
            self.switched_off = True

    def visit_Assign(self, node: cst.Assign) -> None:
        full = self.imports.meaning(node.value.func) if isinstance(node.value, cst.Call) else ""
        if full == "tensorflow.staging.StagingArea":
            self.tutorial_areas.update(t for target in node.targets if (t := dotted(target.target)) is not None)


class _Rewriter(cst.CSTTransformer):
    def __init__(self, wrapper: MetadataWrapper, survey: _Survey) -> None:
        super().__init__()
        self._positions: Any = wrapper.resolve(PositionProvider)
        self._survey = survey
        self.done: list[Note] = []
        self.left: list[Note] = []
        self.modules: set[str] = set()  # modules that the new names need
        self.emptied: set[str] = set()  # parts of tf.contrib that have lost a name to another home
        self.needs_v1 = False
        self._outer: list[cst.Attribute] = []

    # ---- import statements

    def visit_Import(self, node: cst.Import) -> bool:
        return False

    def visit_ImportFrom(self, node: cst.ImportFrom) -> bool:
        return False

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.BaseStatement | cst.FlattenSentinel[cst.BaseStatement] | cst.RemovalSentinel:
        statement = original_node.body[0]
        if len(original_node.body) != 1 or not isinstance(statement, (cst.Import, cst.ImportFrom)):
            return updated_node
        line = self._line(original_node)
        new = rewritten_import(statement, keep_tensorflow=self._survey.by_upgrade)
        self.left.extend(Note(line, text, how) for text, how in new.left)
        if new.lines is None:
            return updated_node
        self.done.append(Note(line, f"{code(statement)} -> {'; '.join(new.lines) or 'removed'}"))
        imports = [import_line(text) for text in new.lines]
        if not imports:
            return cst.RemoveFromParent()
        first = imports[0].with_changes(leading_lines=original_node.leading_lines)
        last = (imports[-1] if len(imports) > 1 else first).with_changes(
            trailing_whitespace=original_node.trailing_whitespace
        )
        return cst.FlattenSentinel([last] if len(imports) == 1 else [first, *imports[1:-1], last])

    # ---- names

    def visit_Attribute(self, node: cst.Attribute) -> None:
        self._outer.append(node)

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.BaseExpression:
        self._outer.pop()
        if dotted(original_node) is None or dotted(updated_node) != dotted(original_node):
            return updated_node
        full = self._survey.imports.meaning(original_node)
        if self._follows_its_import(original_node):
            return updated_node
        outermost = not self._outer or dotted(self._outer[-1]) is None
        outer = [self._survey.imports.meaning(longer) for longer in self._outer]
        if not outermost and any(
            longer in moved_names.MOVES or moved_names.lost(longer) is not None for longer in outer
        ):
            return updated_node  # the longer name may have another home
        new = moved_names.moved(full) if full in moved_names.MOVES or outermost else None
        if new is None:
            how = moved_names.advice(full) if outermost else None
            if how is not None and not self._is_imported_leaf(original_node):
                self.left.append(Note(self._line(original_node), _shown(original_node, full), how))
            return updated_node
        text = self._spelled(new)
        self.emptied.add(".".join(full.split(".")[:3]))
        self.done.append(Note(self._line(original_node), f"{dotted(original_node)} -> {text}"))
        return expression(text)

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        full = self._survey.imports.meaning(original_node.func)
        if full in _BY_STRING and original_node.args:
            self._note_string_import(original_node)
        if full == "tensorflow.staging.StagingArea":
            return self._without_tutorial_constructor(original_node, updated_node)
        new_call = numpy_calls.rewritten(original_node, updated_node, self._survey.imports, self._survey.defined)
        if new_call is not None:
            self.done.append(Note(self._line(original_node), f"{code(original_node)} -> {code(new_call)}"))
            return new_call
        func = original_node.func
        if isinstance(func, cst.Attribute) and dotted(func.value) in self._survey.tutorial_areas:
            new = {"stage": "put", "unstage": "get"}.get(func.attr.value)
            if new is not None and isinstance(updated_node.func, cst.Attribute):
                self.done.append(Note(self._line(original_node), f"{dotted(func)} -> {new}()"))
                return updated_node.with_changes(func=updated_node.func.with_changes(attr=cst.Name(new)))
        return updated_node

    def _without_tutorial_constructor(self, original: cst.Call, updated: cst.Call) -> cst.BaseExpression:
        kept = [arg for arg in updated.args if arg.keyword is None or arg.keyword.value != "dtypes"]
        if not kept or kept[0].keyword is not None or kept[0].star:
            advice = "pass dtypes and shapes to staging_tf1.StagingArea"
            self.left.append(Note(self._line(original), "tf.staging.StagingArea", advice))
            return updated
        self.modules.add("staging_tf1")
        self.done.append(Note(self._line(original), f"{dotted(original.func)} -> staging_tf1.StagingArea.from_tensors"))
        kept[-1] = kept[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
        return updated.with_changes(func=expression("staging_tf1.StagingArea.from_tensors"), args=kept)

    def _note_string_import(self, node: cst.Call) -> None:
        given = node.args[0].value
        if isinstance(given, cst.SimpleString) and given.raw_value.startswith(moved_names.CONTRIB):
            how = moved_names.advice(given.raw_value) or ""
            self.left.append(Note(self._line(node), f"import of {given.raw_value!r} by a string", how))

    def _follows_its_import(self, node: cst.Attribute) -> bool:
        """Whether the import statement of the root name is rewritten to bind another module."""
        root = (dotted(node) or "").partition(".")[0]
        full = self._survey.imports.meaning(cst.Name(root))
        home = moved_names.moved(full) if "." in full else None
        new = moved_names.MOVES.get(self._survey.imports.meaning(node))
        # A single name may have another home than its module.
        return home is not None and (new is None or new.startswith(f"{home}."))

    def _is_imported_leaf(self, node: cst.Attribute) -> bool:
        """Whether the root name comes from a contrib import, which has its own entry in the list."""
        text = dotted(node) or ""
        full = self._survey.imports.meaning(cst.Name(text.partition(".")[0]))
        return full.startswith((moved_names.CONTRIB + ".", "tensorflow.examples"))

    def _spelled(self, full: str) -> str:
        """Return a full new name as this file spells it, and note the module to import."""
        root, _, rest = full.partition(".")
        if root == "tensorflow":
            self.needs_v1 = True
            v1 = self._survey.v1_name or "tf"
            return f"{v1}.compat.v1.{rest}" if self._survey.by_upgrade else f"{v1}.{rest}"
        if root == "numpy":
            return f"{self._numpy_name()}.{rest}"
        if root == "staging_tf1":
            self.modules.add(root)
        return full

    def _numpy_name(self) -> str:
        for name in ("np", "numpy"):
            if self._survey.imports.meaning(cst.Name(name)) == "numpy":
                return name
        return "numpy"

    def _line(self, node: cst.CSTNode) -> int:
        line: int = self._positions[node].start.line
        return line


def _with_imports(module: cst.Module, survey: _Survey, rewriter: _Rewriter) -> cst.Module:
    lines = [f"import {name}" for name in sorted(rewriter.modules)]
    has_v1 = survey.v1_name is not None
    if rewriter.needs_v1 and not has_v1:
        lines.insert(0, f"import {_V1} as tf")
    if survey.imports.uses("tensorflow") and not survey.switched_off:
        if has_v1 or rewriter.needs_v1:
            v1 = survey.v1_name or "tf"
            lines.append(
                f"{v1}.compat.v1.disable_v2_behavior()" if survey.by_upgrade else f"{v1}.disable_v2_behavior()"
            )
        else:
            lines += [f"import {_V1}", f"{_V1}.disable_v2_behavior()"]
    if survey.v1_name == "tensorflow" and not survey.by_upgrade and "tensorflow" in names_in(module):
        # import tensorflow.contrib.staging also bound that name.
        lines.insert(0, f"import {_V1} as tensorflow")
    present = {code(statement).strip() for statement in _statements(module)}
    return add_after_imports(module, [line for line in lines if line not in present])


def _statements(module: cst.Module) -> Sequence[cst.CSTNode]:
    return [node for line in module.body if isinstance(line, cst.SimpleStatementLine) for node in line.body]


def _shown(node: cst.Attribute, full: str) -> str:
    return moved_names.short(full) if full.startswith("tensorflow.") else dotted(node) or full


def _uses_keras_two(module: cst.Module) -> bool:
    uses = _KerasUses(imports_of(module))
    module.visit(uses)
    return uses.any


class _KerasUses(cst.CSTVisitor):
    def __init__(self, imports: Imports) -> None:
        self._imports = imports
        self.any = False

    def visit_Attribute(self, node: cst.Attribute) -> None:
        self._note(self._imports.meaning(node))

    def visit_ImportFrom(self, node: cst.ImportFrom) -> bool:
        if node.module is not None and not node.relative and not isinstance(node.names, cst.ImportStar):
            for alias in node.names:
                self._note(f"{dotted(node.module)}.{alias.evaluated_name}")
        return False

    def visit_Import(self, node: cst.Import) -> bool:
        for alias in node.names:
            self._note(dotted(alias.name) or "")
        return False

    def _note(self, full: str) -> None:
        full = full.replace("tensorflow.compat.v1", "tensorflow", 1) + "."
        self.any = self.any or full.startswith(_KERAS_TWO)
