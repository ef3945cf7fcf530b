"""Makes a program run without the shim, and changes nothing else."""

from __future__ import annotations

import ast
import dataclasses

from staging_tf1.legacy import moved_names
from staging_tf1.legacy.codemod import numpy_calls
from staging_tf1.legacy.codemod.changes import Changes, Edits, Note
from staging_tf1.legacy.codemod.import_lines import rewritten_import
from staging_tf1.legacy.lint.module import Module, arguments, dotted, position
from staging_tf1.legacy.source_files import SourceFile, parsed

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
_TUTORIAL_AREA = "tensorflow.staging.StagingArea"
_IMPORTS = (ast.Import, ast.ImportFrom)


def left_in_the_result(source: SourceFile, changes: Changes) -> Changes:
    """Return `changes` with the line numbers of `left` in the new text, for use after it is written."""
    again = dataclasses.replace(source, text=changes.after)
    return dataclasses.replace(changes, left=migrate(again).left)


def migrate(source: SourceFile) -> Changes:
    """Return the changes of one file. Names without a new home stay, and are listed. Nothing is written."""
    edits = Edits(source.text, parsed(source))
    program = _Program(edits.tree)
    rewriter = _Rewriter(program, edits)
    rewriter.rewrite()
    text, unused = _without_unused_imports(edits.after(), {*_NOT_LEFT_UNUSED, *rewriter.emptied})
    gone = {moved_names.short(full) for full in unused}
    text = _with_imports(text, program, rewriter)
    if _uses_keras_two(after := Edits(text)) and _CHOOSES_KERAS_TWO not in map(after.before, after.tree.body):
        text = _before_imports(after, _CHOOSES_KERAS_TWO)
        rewriter.done.add(Note(1, f"{_CHOOSES_KERAS_TWO} added, for tf.layers, tf.nn.rnn_cell or tf.keras"))
    left = {note for note in rewriter.left if note.text not in gone}
    return Changes(source.path, source.text, text, sorted(rewriter.done), sorted(left))


class _Program:
    """What the original file imports and calls."""

    def __init__(self, tree: ast.Module) -> None:
        self.module = Module(tree)
        self.imported = _imported(self.module)
        attributes = [node for node in self.module.around if isinstance(node, ast.Attribute)]
        self.v1_name = self._v1_name()  # the name of compat.v1 in this file
        spelled_out = f"{self.v1_name}.compat.v1."
        # tf_upgrade_v2 has run: tf is TensorFlow 2, and tf.compat.v1 is spelled out.
        self.by_upgrade = any(f"{dotted(node)}".startswith(spelled_out) for node in attributes)
        # The file itself switches v2 behaviour off.
        self.switched_off = any(node.attr in ("disable_v2_behavior", "disable_eager_execution") for node in attributes)
        self.functions = {
            node.name for node in self.module.around if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        }
        self.tutorial_areas = {
            dotted(target)
            for node in self.module.around
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
            if self.meaning(node.value.func) == _TUTORIAL_AREA
            for target in node.targets
        } - {None}

    def meaning(self, node: ast.AST) -> str:
        """Return the full name of an expression such as ``tf.train.Saver``. A name that no import binds stays."""
        return _meaning(self.imported, node)

    def uses(self, package: str) -> bool:
        """Whether an import binds `package` or something in it."""
        return any(f"{full}.".startswith(f"{package}.") for full in self.imported.values())

    def is_module(self, node: ast.expr) -> bool:
        """Whether an expression stands for a module, or something in it."""
        root = (dotted(node) or "").partition(".")[0]
        return bool(root) and (root in self.imported or self.uses(root))

    def _v1_name(self) -> str | None:
        name = None
        for node in self.module.around:
            for alias in node.names if isinstance(node, _IMPORTS) else ():
                if isinstance(node, ast.ImportFrom):
                    name = alias.asname or alias.name if f"{node.module}.{alias.name}" == _V1 else name
                elif alias.name in ("tensorflow", _V1) and alias.asname is not None:
                    name = alias.asname
                elif alias.name.partition(".")[0] == "tensorflow" and alias.asname is None:
                    name = name or "tensorflow"
        return name


class _Rewriter:
    def __init__(self, program: _Program, edits: Edits) -> None:
        self._program = program
        self._edits = edits
        self.done: set[Note] = set()
        self.left: set[Note] = set()
        self.needs_own = False  # whether the new names need `import staging_tf1`
        self.needs_v1 = False
        self.emptied: set[str] = set()  # parts of tf.contrib that have lost a name to another home

    def rewrite(self) -> None:
        """Make all changes but those of the imports that the new names need."""
        rewritten = []
        for node in self._program.module.around:
            if isinstance(node, _IMPORTS):
                self._rewrite_import(node)
            elif isinstance(node, ast.Attribute) and dotted(node) is not None:
                if dotted(self._program.module.around[node][0]) is None:
                    self._rewrite_name(node)
            elif isinstance(node, ast.Call) and self._rewrite_call(node):
                rewritten.append(node)
        for call in rewritten:
            self._note_done(call, self._edits.before(call), self._edits.after(call))

    def _rewrite_import(self, node: ast.Import | ast.ImportFrom) -> None:
        new = rewritten_import(node, keep_tensorflow=self._program.by_upgrade)
        self.left.update(Note(node.lineno, text, how) for text, how in new.left)
        if new.lines is not None and not self._edits.stands_alone(node):
            how = "give the import a line of its own, and migrate again"
            self.left.add(Note(node.lineno, self._edits.before(node), how))
        elif new.lines is not None:
            self._edits.replace_line(node, new.lines)
            self._note_done(node, self._edits.before(node), "; ".join(new.lines))

    def _rewrite_name(self, outermost: ast.Attribute) -> None:
        """Rewrite a dotted name, or the shortest part of it that has another home."""
        names: list[ast.Attribute] = [outermost]
        while isinstance(shorter := names[0].value, ast.Attribute):
            names.insert(0, shorter)
        full_names = [self._program.meaning(name) for name in names]
        for index, (node, full) in enumerate(zip(names, full_names)):
            if self._follows_its_import(node):
                continue
            longer = full_names[index + 1 :]
            if any(name in moved_names.MOVES or moved_names.lost(name) is not None for name in longer):
                continue  # the longer name may have another home
            new = moved_names.moved(full) if full in moved_names.MOVES or not longer else None
            if new is not None:
                text = self._spelled(new)
                self.emptied.add(".".join(full.split(".")[:3]))
                self._edits.replace(node, text)
                self._note_done(node, f"{dotted(node)}", text)
                return
        how = moved_names.advice(full_names[-1])
        # A name of tf.contrib that an import binds has its own entry in the list.
        is_listed = self._root(outermost).startswith((moved_names.CONTRIB + ".", "tensorflow.examples"))
        if how is not None and not self._follows_its_import(outermost) and not is_listed:
            shown = moved_names.short(full_names[-1]) if full_names[-1].startswith("tensorflow.") else dotted(outermost)
            self.left.add(Note(outermost.lineno, f"{shown}", how))

    def _rewrite_call(self, call: ast.Call) -> bool:
        """Rewrite a call. Return whether it is one of numpy, which is noted with its arguments."""
        func, full = call.func, self._program.meaning(call.func)
        if full in _BY_STRING:
            self._note_string_import(call)
        if full == _TUTORIAL_AREA:
            self._rewrite_tutorial_area(call)
        elif isinstance(func, ast.Attribute):
            is_own = func.attr == "tostring" and "tostring" in self._program.functions
            if not is_own and numpy_calls.rewrite(call, full, self._program.is_module, self._edits):
                return True
            new = {"stage": "put", "unstage": "get"}.get(func.attr)
            if new is not None and dotted(func.value) in self._program.tutorial_areas:
                self._edits.rename(func, func.attr, new)
                self._note_done(call, f"{dotted(func)}", f"{new}()")
        return False

    def _rewrite_tutorial_area(self, call: ast.Call) -> None:
        if not call.args or isinstance(call.args[0], ast.Starred):
            advice = "pass dtypes and shapes to staging_tf1.StagingArea"
            self.left.add(Note(call.lineno, "tf.staging.StagingArea", advice))
            return
        self.needs_own = True
        new = "staging_tf1.StagingArea.from_tensors"
        self._note_done(call, f"{dotted(call.func)}", new)
        self._edits.replace(call.func, new)
        self._edits.remove_keyword(call, "dtypes")

    def _note_string_import(self, call: ast.Call) -> None:
        given = getattr(next(iter(arguments(call)), None), "value", None)
        if isinstance(given, str) and given.startswith(moved_names.CONTRIB):
            self.left.add(Note(call.lineno, f"import of {given!r} by a string", moved_names.advice(given) or ""))

    def _note_done(self, node: ast.stmt | ast.expr, old: str, new: str) -> None:
        self.done.add(Note(node.lineno, f"{old} -> {new}"))

    def _root(self, node: ast.Attribute) -> str:
        """Return the full name of what an import binds the first part of a dotted name to."""
        root = (dotted(node) or "").partition(".")[0]
        return moved_names.plain(self._program.imported.get(root, root))

    def _follows_its_import(self, node: ast.Attribute) -> bool:
        """Whether the import statement of the root name is rewritten to bind another module."""
        full = self._root(node)
        home = moved_names.moved(full) if "." in full else None
        new = moved_names.MOVES.get(self._program.meaning(node))
        # A single name may have another home than its module.
        return home is not None and (new is None or new.startswith(f"{home}."))

    def _spelled(self, full: str) -> str:
        """Return a full new name as this file spells it, and note the module to import."""
        root, _, rest = full.partition(".")
        if root == "tensorflow":
            self.needs_v1 = True
            return f"{_spelled_v1(self._program)}.{rest}"
        if root == "numpy":
            bound = [name for name in ("np", "numpy") if self._program.imported.get(name) == "numpy"]
            return f"{[*bound, 'numpy'][0]}.{rest}"
        self.needs_own = self.needs_own or root == "staging_tf1"
        return full


def _imported(module: Module) -> dict[str, str]:
    """Return the full names of what the import statements of a file bind, at any level, by their names there."""
    return {
        name: binding.imported
        for scope in dict.fromkeys(module.scopes.values())
        for name, bindings in scope.names.items()
        for binding in bindings
        if binding.imported and not binding.imported.startswith(".") and name != "*"
    }


def _meaning(imported: dict[str, str], node: ast.AST) -> str:
    root, _, rest = (dotted(node) or "").partition(".")
    full = imported.get(root, root)
    return moved_names.plain(f"{full}.{rest}" if rest else full)


def _spelled_v1(program: _Program) -> str:
    return f"{program.v1_name or 'tf'}.compat.v1" if program.by_upgrade else program.v1_name or "tf"


# ---- import statements


def _without_unused_imports(text: str, modules: set[str]) -> tuple[str, set[str]]:
    """Return a text without the unused ``from ... import`` names of `modules`, and the full names removed."""
    edits = Edits(text)
    module, used = Module(edits.tree), _names_in(edits.tree)
    removed: set[str] = set()
    for node, (above, field) in module.around.items():
        if not isinstance(node, ast.ImportFrom) or not edits.stands_alone(node):
            continue
        full = {alias: f"{node.module}.{alias.name}" for alias in node.names}
        kept = [name for name in node.names if full[name] not in modules or (name.asname or name.name) in used]
        removed.update(full[alias] for alias in node.names if alias not in kept)
        if kept:
            edits.keep(node.names, kept)
        elif len(getattr(above, field)) == 1:
            edits.replace(node, "pass")
        else:
            edits.remove_line(node)
    return edits.after(), removed


def _names_in(tree: ast.Module) -> set[str]:
    """Return the names that a file uses outside import statements."""
    nodes = [node for node in ast.walk(tree) if not isinstance(node, ast.alias)]
    return {name for node in nodes for field in ("id", "arg", "name") if (name := getattr(node, field, None))}


def _with_imports(text: str, program: _Program, rewriter: _Rewriter) -> str:
    """Return a text with the imports that it needs, behind its first block of imports of TensorFlow or this package."""
    edits = Edits(text)
    body = edits.tree.body
    place = _place_of_imports(edits.tree)
    name = program.v1_name or "tf"
    lines = []
    if rewriter.needs_v1 and program.v1_name is None:
        lines.append(f"import {_V1} as tf")
    if name == "tensorflow" and not program.by_upgrade and name in _names_in(edits.tree):
        # import tensorflow.contrib.staging also bound that name.
        lines.append(f"import {_V1} as tensorflow")
    if rewriter.needs_own:
        lines.append("import staging_tf1")
    if program.uses("tensorflow") and not program.switched_off:
        # An import in a block or a function may come later, or never.
        is_bound = any(line.endswith(f" as {name}") for line in lines) or name in _bound_by(body[:place])
        lines += [] if is_bound else [f"import {_V1}"]
        lines.append(f"{_spelled_v1(program) if is_bound else _V1}.disable_v2_behavior()")
    present = set(map(edits.before, body))
    lines = [line for line in lines if line not in present]
    if not lines:
        return text
    if not lines[-1].startswith("import ") and place < len(body):
        lines.insert(-1, "")
    edits.insert_lines(body[place - 1].end_lineno or 0 if place else position(body[0])[0] - 1, lines)
    return edits.after()


def _place_of_imports(tree: ast.Module) -> int:
    """Return the index behind the first import of TensorFlow at the top level and those that directly follow it.

    Without one, that of the statement below the docstring and `__future__`. The statement there begins a line.
    """
    body, place = tree.body, int(ast.get_docstring(tree) is not None)
    while place < len(body) and getattr(body[place], "module", "") == "__future__":
        place += 1
    first = next((index for index, statement in enumerate(body) if _imports_tensorflow(statement)), None)
    if first is not None:
        following = (index for index in range(first, len(body)) if not isinstance(body[index], _IMPORTS))
        place = next(following, len(body))
    while 0 < place < len(body) and body[place].lineno == body[place - 1].end_lineno:
        place -= 1
    return place


def _bound_by(body: list[ast.stmt]) -> set[str]:
    """Return the names that the import statements among some statements bind."""
    aliases = [alias for statement in body if isinstance(statement, _IMPORTS) for alias in statement.names]
    return {alias.asname or alias.name.partition(".")[0] for alias in aliases}


def _imports_tensorflow(statement: ast.stmt) -> bool:
    names = [alias.name for alias in statement.names] if isinstance(statement, ast.Import) else []
    if isinstance(statement, ast.ImportFrom) and not statement.level:
        names = [statement.module or ""]
    return any(name.partition(".")[0] in ("tensorflow", "staging_tf1") for name in names)


def _before_imports(edits: Edits, line: str) -> str:
    """Return a text with a line before its first import that is not of ``__future__``."""
    for statement in edits.tree.body:
        if isinstance(statement, _IMPORTS) and getattr(statement, "module", "") != "__future__":
            edits.insert_lines(statement.lineno - 1, [line])
            break
    return edits.after()


def _uses_keras_two(edits: Edits) -> bool:
    module = Module(edits.tree)
    imported = _imported(module)
    names = [use.imported or _meaning(imported, use.node) for use in module.uses]
    return any(f"{moved_names.plain(name)}.".startswith(_KERAS_TWO) for name in names if not name.endswith(".*"))
