"""Reads the method that feeds a queue: where the batches come from, and what is fed of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import libcst as cst

from staging_tf1.legacy.codemod.idiom_class import UnknownShapeError, Values, elements_of, statements
from staging_tf1.legacy.codemod.import_lines import code, names_in
from staging_tf1.legacy.codemod.names import Imports, dotted, imports_of

# What a feed converts a value to, for each dtype of a placeholder.
_OF_NUMPY = {
    **{f"{kind}{bits}": f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)},
    "float16": "float16",
    "float32": "float32",
    "float64": "float64",
    "complex64": "complex64",
    "complex128": "complex128",
    "bool": "bool_",
    "string": "object_",
}

# Functions of the language that read another source.
_READS = ("enumerate", "iter", "map", "reversed", "zip")
# With what stands before and after a part of a generator, its line then has at most 100 characters.
_WIDTH = 80


@dataclass(frozen=True)
class Feed:
    """A loop that enqueues what it reads from a source."""

    source: cst.BaseExpression  # what the loop reads
    target: cst.BaseExpression  # the names of a batch
    fed: Sequence[str]  # those it feeds, in the order of the queue's components
    dtypes: Sequence[str]  # of the components, as numpy names them
    shapes: Sequence[str]  # of their placeholders, as source
    endless: bool  # the source makes one batch; the loop around it never ends
    many: bool  # enqueue_many(); else enqueue()

    def generator(self, values: Values, single: bool, numpy: str) -> str:
        """Return the source of a generator of batches. With `single`, each is made of one record.

        A long one is divided into lines, for an argument with a line of its own.
        """
        one = "[None]" if single else ""
        arrays = [f"{numpy}.asarray({name}, {numpy}.{dtype}){one}" for name, dtype in zip(self.fed, self.dtypes)]
        source = values.of(self.source)
        source = f"({source} for _ in itertools.count())" if self.endless else source
        batch = arrays[0] if len(arrays) == 1 else f"({', '.join(arrays)})"
        loop = f"for {code(self.target)}", f"in {source}"
        if len(batch) + len(" ".join(loop)) <= _WIDTH:
            return f"({batch} {' '.join(loop)})"
        if len(batch) > _WIDTH and len(arrays) > 1:
            batch = "".join(["(\n", *(f"            {array},\n" for array in arrays), "        )"])
        loops = loop if len(" ".join(loop)) > _WIDTH else (" ".join(loop),)
        return "".join([f"(\n        {batch}\n", *(f"        {line}\n" for line in loops), "    )"])


def feed_of(
    module: cst.Module, function: cst.FunctionDef, assigned: Mapping[str, cst.BaseExpression], imports: Imports
) -> Feed:
    """Return what the method does. Raises UnknownShapeError if it does more than to read and enqueue.

    The method is ``for x, y in SOURCE: sess.run(enqueue, {self.X: x, self.Y: y})``, or ``while True: x, y = SOURCE``
    with such a run.
    """
    what = f"{function.name.value}()"
    loop, flag = _loop(function, what)
    steps = [line for line in statements(loop.body) if not _is_stop_check(line, flag)]
    if isinstance(loop, cst.For):
        target, source = loop.target, loop.iter
    else:
        one = steps.pop(0) if steps else None
        first = one.body[0] if isinstance(one, cst.SimpleStatementLine) else None
        if not isinstance(first, cst.Assign) or len(first.targets) != 1:
            raise UnknownShapeError(f"{what} does not begin its loop with a batch")
        target, source = first.targets[0].target, first.value
    if not isinstance(source, cst.Call):
        raise UnknownShapeError(f"the batches come from {code(source)}, expected a call of a function")
    run, feed = _run_of(steps)
    components, many = _components(run, assigned)
    fed = _fed(feed, components)
    if run is None or not fed or not _names_in(target) >= set(fed):
        raise UnknownShapeError(f"{what} does more than to feed the queue's components in order")
    _check_source(module, function, source)
    kinds = [_placeholder(one, assigned, imports) for one in components]
    dtypes, shapes = [kind for kind, _ in kinds], [shape for _, shape in kinds]
    return Feed(source, _without_parens(target), fed, dtypes, shapes, isinstance(loop, cst.While), many)


def _loop(function: cst.FunctionDef, what: str) -> tuple[cst.For | cst.While, str]:
    """Return the one loop of the method, and the name of its stop flag."""
    body = statements(function.body)
    flag = ""
    if len(body) == 2 and code(body[0]).strip().endswith("= False"):
        flag = code(body.pop(0)).strip().removesuffix("= False").strip()
    loop = body[0] if len(body) == 1 else None
    if not isinstance(loop, (cst.For, cst.While)) or loop.orelse is not None:
        raise UnknownShapeError(f"{what} is more than one loop")
    if isinstance(loop, cst.While):
        test = code(loop.test)
        if test not in ("True", "1") and not test.endswith(".should_stop()") and not (flag and test == f"not {flag}"):
            raise UnknownShapeError(f"{what} loops while {test}")
    return loop, flag


def _is_stop_check(line: cst.CSTNode, flag: str) -> bool:
    """Whether it is ``if coord.should_stop(): break``, which a CustomRunner does by itself."""
    if not isinstance(line, cst.If) or line.orelse is not None or not code(line.test).endswith(".should_stop()"):
        return False
    does = [code(one).strip() for one in statements(line.body)]
    return does[-1:] in (["break"], ["return"]) and all(one == f"{flag} = True" for one in does[:-1])


def _run_of(steps: Sequence[cst.CSTNode]) -> tuple[cst.Call | None, cst.Dict | None]:
    """Return the ``sess.run(enqueue, feed_dict={...})`` that the steps are, and what it feeds."""
    ones = [line.body[0] for line in steps if isinstance(line, cst.SimpleStatementLine)]
    if len(ones) != len(steps) or not ones or not isinstance(ones[-1], cst.Expr):
        return None, None
    run = ones[-1].value
    if not isinstance(run, cst.Call) or len(run.args) != 2:
        return None, None
    feed = run.args[1].value
    if len(ones) == 2 and isinstance(ones[0], cst.Assign) and len(ones[0].targets) == 1:
        # The dict has a name of its own.
        if code(ones[0].targets[0].target) != code(feed):
            return None, None
        feed = ones[0].value
    elif len(ones) != 1:
        return None, None
    return run, feed if isinstance(feed, cst.Dict) else None


def _components(
    run: cst.Call | None, assigned: Mapping[str, cst.BaseExpression]
) -> tuple[Sequence[cst.BaseExpression], bool]:
    """Return what the run enqueues, and whether it is enqueue_many()."""
    enqueue = assigned.get(dotted(run.args[0].value) or "") if run is not None else None
    method = (dotted(enqueue.func) or "").rpartition(".")[2] if isinstance(enqueue, cst.Call) else ""
    if not isinstance(enqueue, cst.Call) or len(enqueue.args) != 1 or method not in ("enqueue", "enqueue_many"):
        return [], False
    return elements_of(enqueue.args[0].value), method == "enqueue_many"


def _fed(feed: cst.Dict | None, components: Sequence[cst.BaseExpression]) -> list[str]:
    """Return the names that are fed, in the order of the components; empty if anything else is fed."""
    elements = feed.elements if feed is not None else []
    values = {dotted(one.key): dotted(one.value) for one in elements if isinstance(one, cst.DictElement)}
    fed = [values.get(dotted(one)) for one in components]
    names = [name for name in fed if name is not None]
    return names if len(names) == len(fed) == len(elements) else []


def _check_source(module: cst.Module, function: cst.FunctionDef, source: cst.Call) -> None:
    """Raise if the source is unknown outside the class, or differs between its threads."""
    own = {param.name.value for param in function.params.params} - {"self"}
    if not own.isdisjoint(names_in(source)):
        raise UnknownShapeError(f"{code(source)} depends on an argument of {function.name.value}()")
    name = dotted(source.func)
    if name is None:
        raise UnknownShapeError(f"the batches come from {code(source)}, expected a call of a function")
    if name.partition(".")[0] not in {"self", *_READS, *_bound(module)}:
        raise UnknownShapeError(f"{name}() is not a function of this file")


def _bound(module: cst.Module) -> set[str]:
    """Return the names that the top level of the file binds."""
    names = set(imports_of(module).names())
    for line in module.body:
        if isinstance(line, (cst.FunctionDef, cst.ClassDef)):
            names.add(line.name.value)
        elif isinstance(line, cst.SimpleStatementLine) and isinstance(line.body[0], cst.Assign):
            names |= {name for one in line.body[0].targets for name in _names_in(one.target)}
    return names


def _placeholder(
    component: cst.BaseExpression, assigned: Mapping[str, cst.BaseExpression], imports: Imports
) -> tuple[str, str]:
    """Return numpy's name of the dtype that a feed of the component converts to, and the placeholder's shape."""
    value = assigned.get(dotted(component) or "")
    if not isinstance(value, cst.Call) or imports.meaning(value.func) != "tensorflow.placeholder":
        raise UnknownShapeError(f"it enqueues {code(component)}, expected a placeholder")
    given = {
        arg.keyword.value if arg.keyword is not None else ("dtype", "shape", "name")[place]: code(arg.value)
        for place, arg in enumerate(value.args)
    }
    dtype = given.get("dtype", "").rpartition(".")[2].strip("'\"")
    if dtype not in _OF_NUMPY:
        raise UnknownShapeError(f"the placeholder {code(component)} has the dtype {given.get('dtype')}")
    return _OF_NUMPY[dtype], given.get("shape", "")


def _names_in(target: cst.BaseExpression) -> set[str]:
    if isinstance(target, (cst.Tuple, cst.List)):
        return {name for one in target.elements for name in _names_in(one.value)}
    return {target.value} if isinstance(target, cst.Name) else set()


def _without_parens(target: cst.BaseExpression) -> cst.BaseExpression:
    return target.with_changes(lpar=[], rpar=[]) if isinstance(target, cst.Tuple) else target
