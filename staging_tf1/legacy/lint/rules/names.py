"""Names that TensorFlow 2 and numpy 2 do not have."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from staging_tf1.legacy.lint.flow.analysis import Analysis
from staging_tf1.legacy.lint.flow.calls import position
from staging_tf1.legacy.lint.model.reading import Call, Context, Scope, Use
from staging_tf1.legacy.lint.rule import Mistakes, Rule
from staging_tf1.legacy.moved_names import CONTRIB, instead_of, is_restored, short, what_is_missing

_NEVER_WAS = "tensorflow.staging"
_PRIVATE = "tensorflow.python"
# Names of compat.v1 that are made of Keras 2.
_KERAS_TWO = ("tensorflow.layers", "tensorflow.nn.rnn_cell")
_KERAS_SETTING = "TF_USE_LEGACY_KERAS"
# A module that sets it.
_KERAS_MODULE = "staging_tf1.contrib.keras_two"
# Functions of numpy whose result is an array, or a scalar with the same methods.
_MAKING = frozenset(
    f"numpy.{name}"
    for name in """array asarray ascontiguousarray zeros ones empty full arange linspace zeros_like ones_like empty_like
    full_like concatenate stack vstack hstack dstack reshape transpose squeeze expand_dims frombuffer fromstring
    fromfile loadtxt genfromtxt ndarray float32 float64 int32 int64 uint8 random.rand random.randn random.randint
    random.uniform random.normal random.random random.permutation tile repeat where clip packbits pad rot90 flip
    flipud fliplr""".split()
)
# Methods of arrays that return arrays, and that strings, bytes and images of other libraries do not have.
_ONLY_ARRAYS = frozenset({"astype", "reshape", "ravel", "flatten", "transpose", "squeeze"})


def tutorial_api(analysis: Analysis) -> Mistakes:
    """STG116."""
    for node, full in _one_per_line(analysis, _NEVER_WAS):
        yield (
            node,
            f"{short(full)}: TensorFlow never had tf.staging; use staging_tf1.StagingArea(dtypes, shapes), with "
            "put() and get() instead of stage() and unstage()",
        )


def contrib(analysis: Analysis) -> Mistakes:
    """STG117."""
    for node, full in _one_per_line(analysis, CONTRIB):
        missing = what_is_missing(full)
        if missing is not None:
            yield node, f"{short(full)}: {missing}"


def private_names(analysis: Analysis) -> Mistakes:
    """STG120."""
    for node, full in _one_per_line(analysis, _PRIVATE, written_out=False):
        instead = instead_of(full)
        # The import of a module that is gone stands for all uses of its names.
        repeated = isinstance(node, ast.Attribute) and instead_of(full.rpartition(".")[0]) is not None
        if instead is not None and not repeated:
            restored = " staging-tf1 run restores it for the program as it is." if is_restored(full) else ""
            yield node, f"{full} was removed from TensorFlow 2. {instead}{restored}"


def keras_two(analysis: Analysis) -> Mistakes:
    """STG121."""
    imported = [use.imported for use in analysis.program.reading.uses if use.imported]
    if not any(full.startswith("tensorflow.compat.v1") for full in imported):
        return
    if _KERAS_SETTING in analysis.program.reading.strings or _KERAS_MODULE in imported:
        return
    uses = [
        (node, full)
        for package in _KERAS_TWO
        for node, full in _one_per_line(analysis, package, written_out=False)
        if full != package  # the modules themselves exist
    ]
    if not uses:
        return
    node, full = min(uses, key=lambda use: position(use[0]))
    more = f" (and {len(uses) - 1} more in this file)" if len(uses) > 1 else ""
    yield (
        node,
        f"{short(full)}{more} needs Keras 2: install tf_keras, and set {_KERAS_SETTING}=1 in the environment before "
        "TensorFlow is imported",
    )


def tostring(analysis: Analysis) -> Mistakes:
    """STG119."""
    for call in analysis.program.calls:
        if call.method != "tostring" or call.receiver is None or analysis.program.name(call):
            continue
        if _is_array(analysis, call.receiver, call.scope):
            yield (
                call.node,
                "tostring() of numpy arrays was removed in numpy 2.3: write tobytes(), which returns the same bytes",
            )


def _one_per_line(analysis: Analysis, package: str, *, written_out: bool = True) -> Iterator[tuple[ast.AST, str]]:
    """Yield one use per line of any name in `package`, imported or, by default, written out."""
    by_line: dict[int, tuple[ast.AST, str]] = {}
    last = package.rpartition(".")[2]
    for use in analysis.program.reading.uses:
        full = use.imported or _full(analysis, use)
        if full != package and not full.startswith(package + "."):
            continue
        if use.imported and _is_guarded(use.context, "ImportError", "ModuleNotFoundError"):
            continue  # the file itself handles the missing name
        if not use.imported and (_is_guarded(use.context, "AttributeError") or (written_out and not _says(use, last))):
            continue
        by_line.setdefault(getattr(use.node, "lineno", 0), (use.node, full))
    for line in sorted(by_line):
        yield by_line[line]


def _full(analysis: Analysis, use: Use) -> str:
    return analysis.values.full_name(use.node, use.scope) if isinstance(use.node, ast.expr) else ""


def _says(use: Use, word: str) -> bool:
    """Whether a dotted name contains a word itself, rather than through the import that binds its first part."""
    node = use.node
    while isinstance(node, ast.Attribute):
        if node.attr == word:
            return True
        node = node.value
    return isinstance(node, ast.Name) and node.id == word


def _is_guarded(context: Context, *errors: str) -> bool:
    """Whether a `try` around a place catches one of these errors, or the place is what it falls back to."""
    for here in context.around():
        if here.kind != "try" or here.block != "body":
            continue
        for handler in getattr(here.node, "handlers", []):
            if handler.type is None:
                return True
            caught = ast.unparse(handler.type)
            if caught == "Exception" or any(error in caught for error in errors):
                return True
    return False


def _is_array(analysis: Analysis, node: ast.expr, scope: Scope) -> bool:
    """Whether a value is an array, wherever it may come from."""
    origins = analysis.values.origins(node, scope)
    return bool(origins) and all(_makes_an_array(analysis, one) for one in origins)


def _makes_an_array(analysis: Analysis, origin: object) -> bool:
    if not isinstance(origin, Call):
        return False
    name = analysis.program.name(origin)
    if name:
        return name in _MAKING
    return origin.method in _ONLY_ARRAYS and not analysis.values.callees(origin.node, origin.scope)


RULES = (
    Rule("STG116", "tutorial-api", tutorial_api),
    Rule("STG117", "contrib", contrib),
    Rule("STG120", "private-names", private_names),
    Rule("STG121", "keras-two", keras_two),
    Rule("STG119", "tostring", tostring),
)
