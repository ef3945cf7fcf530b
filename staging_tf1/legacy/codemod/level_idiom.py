"""Level "idiom": replaces a hand-written pipeline by CustomRunner, staged() and StagingSession.

It changes a whole file or nothing, because a half-migrated pipeline would hang. If the pipeline is not recognised
with certainty, the file stays as level "import" left it, and the reason is listed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import libcst as cst

from staging_tf1.legacy.codemod.changes import Note
from staging_tf1.legacy.codemod.idiom_class import UnknownShapeError, calls_in, elements_of
from staging_tf1.legacy.codemod.idiom_runners import Runner, check_uses, find_runners
from staging_tf1.legacy.codemod.idiom_sessions import (
    SESSIONS,
    WithoutEmptyParts,
    WithoutThreading,
    check_only_names,
    in_with_statements,
    op_built_in,
)
from staging_tf1.legacy.codemod.import_lines import add_after_imports, add_before_imports, code, expression, names_in
from staging_tf1.legacy.codemod.names import Imports, dotted, imports_of

_INITIALIZERS = (
    "tensorflow.global_variables_initializer",
    "tensorflow.initialize_all_variables",
    "tensorflow.local_variables_initializer",
    "tensorflow.tables_initializer",
)
_PLAIN_AREA_ARGUMENTS = ("dtypes", "shapes", "capacity", "memory_limit")
_BY_HAND = "do it by hand, as docs/migrating.md shows"


def migrate(module: cst.Module, text: str) -> tuple[cst.Module, list[Note], list[Note]]:
    """Return the module in the package's idiom, the changes made, and the changes left with their reasons.

    `module` is the file after level "import". The line numbers of the notes refer to `text`, the original file.
    """
    imports = imports_of(module)
    runners, refused = find_runners(module, imports)
    stagings = _find_stagings(module, imports)
    line = _first_line(text, ("StagingArea(", "class "))
    if refused:
        return module, [], [Note(line, "the pipeline stays hand-written", f"{refused[0]}; {_BY_HAND}")]
    if not runners and not stagings:
        return module, [], _unrecognised(module, imports, line)
    try:
        new = _rewritten(module, imports, runners, stagings)
    except UnknownShapeError as reason:
        return module, [], [Note(line, "the pipeline stays hand-written", f"{reason}; {_BY_HAND}")]
    done = [Note(line, f"class {one.name} -> staging_tf1.CustomRunner") for one in runners]
    done += [Note(line, f"{one.area}, {one.put} -> staging_tf1.staged()") for one in stagings]
    return new, [*done, Note(line, "tf.Session -> staging_tf1.StagingSession")], []


@dataclass(frozen=True)
class _Staging:
    """An area, its one put and its one get."""

    area: str
    put: str
    values: str  # the argument of put, as source
    options: str  # capacity and memory_limit, as source


def _find_stagings(module: cst.Module, imports: Imports) -> list[_Staging]:
    """Return the areas that have one put in the same block of statements, at any level."""
    blocks = _Blocks()
    module.visit(blocks)
    return [one for body in [module.body, *blocks.bodies] for one in _in_block(body, imports)]


class _Blocks(cst.CSTVisitor):
    def __init__(self) -> None:
        self.bodies: list[Sequence[cst.BaseStatement]] = []

    def visit_IndentedBlock(self, node: cst.IndentedBlock) -> None:
        self.bodies.append(node.body)


def _in_block(body: Sequence[cst.BaseStatement], imports: Imports) -> list[_Staging]:
    areas: dict[str, str] = {}
    stagings = []
    for name, value in _assignments(body):
        if not isinstance(value, cst.Call):
            continue
        if imports.meaning(value.func) == "staging_tf1.StagingArea":
            if (options := _area_options(value)) is not None:
                areas[name] = options
        elif isinstance(value.func, cst.Attribute) and value.func.attr.value == "put" and len(value.args) == 1:
            area = dotted(value.func.value) or ""
            if area in areas and isinstance(value.args[0].value, (cst.List, cst.Tuple)):
                stagings.append(_Staging(area, name, code(value.args[0].value), areas[area]))
    return stagings


def _assignments(body: Sequence[cst.BaseStatement]) -> list[tuple[str, cst.BaseExpression]]:
    pairs = []
    for statement in body:
        if isinstance(statement, cst.SimpleStatementLine) and isinstance(statement.body[0], cst.Assign):
            assign = statement.body[0]
            if len(assign.targets) == 1 and isinstance(assign.targets[0].target, cst.Name):
                pairs.append((assign.targets[0].target.value, assign.value))
    return pairs


def _area_options(call: cst.Call) -> str | None:
    """Return capacity and memory limit as arguments of staged(); None if staged() cannot replace the area."""
    options = ""
    for position, arg in enumerate(call.args):
        name = arg.keyword.value if arg.keyword is not None else ("dtypes", "shapes", "")[min(position, 2)]
        if arg.star or name not in _PLAIN_AREA_ARGUMENTS:
            return None
        if name in ("capacity", "memory_limit"):
            options += f", {name}={code(arg.value)}"
    return options


def _rewritten(module: cst.Module, imports: Imports, runners: list[Runner], stagings: list[_Staging]) -> cst.Module:
    rewriter = _Rewriter(imports, runners, stagings, check_uses(module, runners))
    new = in_with_statements(module, imports).visit(rewriter).visit(WithoutEmptyParts())
    _check_complete(new, rewriter, runners, stagings)
    if runners and "threading" not in names_in(new):
        new = new.visit(WithoutThreading())
    if any(one.endless for one in runners) and "itertools" not in imports_of(new).names():
        new = add_before_imports(new, "import itertools")
    if runners and imports.name_of("numpy") is None:
        new = add_before_imports(new, "import numpy as np")
    return add_after_imports(new, [] if _has_import(new) else ["import staging_tf1"])


class _Rewriter(cst.CSTTransformer):
    def __init__(self, imports: Imports, runners: list[Runner], stagings: list[_Staging], held: set[str]) -> None:
        super().__init__()
        self._held = held  # the names that hold runners
        self._imports = imports
        self._runners = {one.name: one for one in runners}
        self._areas = {one.area: one for one in stagings}
        self._puts = {one.put for one in stagings}
        self._starts = {one.start for one in runners}
        self._gets = {one.get for one in runners}
        self._initializers: set[str] = set()
        self._sessions: set[str] = set()
        self._coordinators: set[str] = set()
        self._threads: set[str] = set()
        self.sessions_changed = 0

    # ---- the build part

    def leave_ClassDef(
        self, original_node: cst.ClassDef, updated_node: cst.ClassDef
    ) -> cst.BaseStatement | cst.RemovalSentinel:
        return cst.RemoveFromParent() if original_node.name.value in self._runners else updated_node

    def visit_ClassDef(self, node: cst.ClassDef) -> bool:
        return node.name.value not in self._runners

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        name = dotted(original_node.func) or ""
        if name in self._runners:
            return expression(self._runners[name].call(original_node.args, self._imports.name_of("numpy") or "np"))
        area, _, method = name.rpartition(".")
        if area in self._areas and method == "get":
            staging = self._areas[area]
            call = f"staging_tf1.staged({staging.values}{staging.options})"
            if len(call) > 80:  # as in a CustomRunner
                call = f"staging_tf1.staged(\n    {staging.values}{staging.options},\n)"
            return expression(call)
        if name.partition(".")[0] in self._coordinators and method == "should_stop":
            (session,) = self._sessions or {"sess"}
            return expression(f"{session}.should_stop()")
        if method in self._gets and area in self._held and isinstance(updated_node.func, cst.Attribute):
            return updated_node.with_changes(func=updated_node.func.with_changes(attr=cst.Name("get_inputs")), args=[])
        if method == "run" and area in self._sessions:
            return self._without_put(original_node, updated_node)
        return updated_node

    def _without_put(self, original: cst.Call, updated: cst.Call) -> cst.Call:
        if not original.args or (len(original.args) != 1 and not self._feeds_only_the_step(original)):
            raise UnknownShapeError(f"{code(original)} is fed by the step, not by a pipeline")
        fetches = updated.args[0].value
        if not self._is_done_for_us(original.args[0].value):
            check_only_names(original.args[0].value)
        if isinstance(fetches, (cst.List, cst.Tuple)):
            kept = [one for one in fetches.elements if dotted(one.value) not in self._puts]
            if len(kept) != len(fetches.elements):
                if kept:
                    kept[-1] = kept[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
                value = fetches.with_changes(elements=kept)
                return updated.with_changes(args=[updated.args[0].with_changes(value=value)])
        return updated

    def _feeds_only_the_step(self, run: cst.Call) -> bool:
        """Whether a run with a feed neither fills an area nor feeds what the pipeline takes."""
        fed = run.args[1].keyword is None or run.args[1].keyword.value == "feed_dict"
        return (
            bool(self._runners)
            and not self._areas
            and len(run.args) == 2
            and fed
            and all(map(dotted, elements_of(run.args[0].value)))
        )

    # ---- statements

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.BaseStatement | cst.RemovalSentinel:
        one = original_node.body[0]
        if isinstance(one, cst.Assign):
            return self._assign(one, original_node, updated_node)
        if isinstance(one, cst.Expr) and isinstance(one.value, cst.Call) and self._is_the_sessions_work(one.value):
            return cst.RemoveFromParent()
        return updated_node

    def _assign(
        self, one: cst.Assign, original: cst.SimpleStatementLine, updated: cst.SimpleStatementLine
    ) -> cst.BaseStatement | cst.RemovalSentinel:
        target, value = one.targets[0].target, one.value
        name = dotted(target) or ""
        if name in self._areas or name in self._puts:
            return cst.RemoveFromParent()
        if not isinstance(value, cst.Call):
            return updated
        full = self._imports.meaning(value.func)
        if self._initializes(value) and isinstance(target, cst.Name):
            self._initializers.add(name)
            return cst.RemoveFromParent()
        if full == "tensorflow.train.Coordinator":
            self._coordinators.add(name)
            return cst.RemoveFromParent()
        if full == "tensorflow.train.start_queue_runners" or self._starts_threads(value):
            self._threads.add(name)
            return cst.RemoveFromParent()
        if self._is_run(value) and isinstance(target, cst.Tuple):
            return self._with_fewer_targets(value, target, updated)
        return updated

    def _with_fewer_targets(
        self, run: cst.Call, target: cst.Tuple, updated: cst.SimpleStatementLine
    ) -> cst.SimpleStatementLine:
        fetches = run.args[0].value
        if not isinstance(fetches, (cst.List, cst.Tuple)) or len(fetches.elements) != len(target.elements):
            raise UnknownShapeError(f"{code(run)} is unpacked into a different number of names")
        kept = [one for one, its in zip(target.elements, fetches.elements) if dotted(its.value) not in self._puts]
        if len(kept) == len(target.elements):
            return updated
        assign = updated.body[0]
        if not isinstance(assign, cst.Assign) or not kept:
            raise UnknownShapeError(f"{code(run)} fetches only a put")
        comma = cst.Comma() if len(kept) == 1 else cst.MaybeSentinel.DEFAULT
        kept[-1] = kept[-1].with_changes(comma=comma)
        new = assign.targets[0].with_changes(target=target.with_changes(elements=kept))
        return updated.with_changes(body=[assign.with_changes(targets=[new])])

    def _is_the_sessions_work(self, call: cst.Call) -> bool:
        """Whether StagingSession itself does what `call` does: initialize, start, warm up, clear, stop or join."""
        name = dotted(call.func) or ""
        owner, _, method = name.rpartition(".")
        if self._imports.meaning(call.func) == "tensorflow.train.start_queue_runners" or self._starts_threads(call):
            return True
        if owner in self._coordinators and method in ("request_stop", "join"):
            return True
        if not self._is_run(call) or len(call.args) != 1:
            return False
        fetches = elements_of(call.args[0].value)
        return bool(fetches) and all(map(self._is_done_for_us, fetches))

    def _starts_threads(self, call: cst.Call) -> bool:
        owner, _, method = (dotted(call.func) or "").rpartition(".")
        return owner in self._held and method in self._starts

    def _initializes(self, value: cst.BaseExpression) -> bool:
        if not isinstance(value, cst.Call):
            return dotted(value) in self._initializers
        full = self._imports.meaning(value.func)
        return full in _INITIALIZERS or (
            full == "tensorflow.group" and all(self._initializes(arg.value) for arg in value.args)
        )

    def _is_done_for_us(self, fetch: cst.BaseExpression) -> bool:
        if dotted(fetch) in self._puts:
            return True
        if isinstance(fetch, cst.Call):
            area, _, method = (dotted(fetch.func) or "").rpartition(".")
            return self._initializes(fetch) or (area in self._areas and method == "clear")
        return self._initializes(fetch)

    def _is_run(self, call: cst.Call) -> bool:
        owner, _, method = (dotted(call.func) or "").rpartition(".")
        return method == "run" and owner in self._sessions and bool(call.args)

    # ---- the session

    def visit_With(self, node: cst.With) -> None:
        for item in node.items:
            if self._is_session(item) and item.asname is not None:
                self._sessions.add(dotted(item.asname.name) or "")

    def leave_With(self, original_node: cst.With, updated_node: cst.With) -> cst.BaseStatement:
        is_session = any(self._is_session(item) for item in original_node.items)
        op = op_built_in(updated_node.body, self._imports) if is_session else None
        if op is not None:
            raise UnknownShapeError(f"{op}() builds ops inside the session, whose graph is finalized")
        items = []
        for old, new in zip(original_node.items, updated_node.items):
            if self._is_session(old) and isinstance(new.item, cst.Call):
                self.sessions_changed += 1
                new = new.with_changes(item=new.item.with_changes(func=expression("staging_tf1.StagingSession")))
            items.append(new)
        return updated_node.with_changes(items=items)

    def _is_session(self, item: cst.WithItem) -> bool:
        if not isinstance(item.item, cst.Call) or self._imports.meaning(item.item.func) not in SESSIONS:
            return False
        for arg in item.item.args:
            if arg.keyword is None or arg.keyword.value not in ("config", "hooks", "checkpoint_dir"):
                raise UnknownShapeError(f"{code(item.item)} uses arguments that StagingSession does not take")
        return True


def _unrecognised(module: cst.Module, imports: Imports, line: int) -> list[Note]:
    if not any(imports.meaning(call.func) == "staging_tf1.StagingArea" for call in calls_in(module)):
        return []
    reason = "found no area with one put and one get next to each other"
    return [Note(line, "the pipeline stays hand-written", f"{reason}; {_BY_HAND}")]


def _first_line(text: str, markers: tuple[str, ...]) -> int:
    lines = text.splitlines()
    for marker in markers:
        for number, line in enumerate(lines, start=1):
            if marker in line:
                return number
    return 1


def _check_complete(new: cst.Module, rewriter: _Rewriter, runners: list[Runner], stagings: list[_Staging]) -> None:
    if rewriter.sessions_changed != 1:
        raise UnknownShapeError(f"got {rewriter.sessions_changed} sessions in with statements, expected 1")
    names = names_in(new)
    gone = [one.name for one in runners] + [name for one in stagings for name in (one.area, one.put)]
    gone += sorted(rewriter._coordinators | rewriter._threads | rewriter._initializers)
    for name in gone:
        if name in names:
            raise UnknownShapeError(f"{name!r} is used in an unknown way")


def _has_import(module: cst.Module) -> bool:
    return any("import staging_tf1\n" in code(one) for one in module.body if isinstance(one, cst.SimpleStatementLine))
