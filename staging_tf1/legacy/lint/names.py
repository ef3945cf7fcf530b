"""Names that TensorFlow 2 and numpy 2 do not have."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from staging_tf1.legacy.lint.module import Module, Use, method, position, receiver
from staging_tf1.legacy.lint.rule import RESTORED, Mistakes, Rule
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
_ONLY_ARRAYS = frozenset({"astype", "reshape", "ravel", "flatten", "squeeze"})


def tutorial_api(module: Module) -> Mistakes:
    """STG116."""
    for node, full in _one_per_line(module, _NEVER_WAS):
        yield (
            node,
            f"{short(full)}: TensorFlow never had tf.staging; use staging_tf1.StagingArea(dtypes, shapes), with "
            "put() and get() instead of stage() and unstage()",
        )


def contrib(module: Module) -> Mistakes:
    """STG117."""
    for node, full in _one_per_line(module, CONTRIB):
        missing = what_is_missing(full)
        if missing is not None:
            yield node, f"{short(full)}: {missing}"


def private_names(module: Module) -> Mistakes:
    """STG120."""
    for node, full in _one_per_line(module, _PRIVATE, written_out=False):
        instead = instead_of(full)
        # The import of a module that is gone stands for all uses of its names.
        repeated = isinstance(node, ast.Attribute) and instead_of(full.rpartition(".")[0]) is not None
        if instead is not None and not repeated:
            how = RESTORED if is_restored(full) else " was removed from TensorFlow 2. "
            yield node, f"{full}{how}{instead}"


def keras_two(module: Module) -> Mistakes:
    """STG121."""
    if not module.imports("tensorflow.compat.v1") or module.imports(_KERAS_MODULE) or _KERAS_SETTING in module.strings:
        return
    uses = [
        (node, full)
        for package in _KERAS_TWO
        for node, full in _one_per_line(module, package, written_out=False)
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


def tostring(module: Module) -> Mistakes:
    """STG119."""
    for call in module.calls:
        if method(call) == "tostring" and not module.full_name(call.func) and _is_array(module, receiver(call), set()):
            yield (
                call,
                "tostring() of numpy arrays was removed in numpy 2.3: write tobytes(), which returns the same bytes",
            )


def _one_per_line(module: Module, package: str, *, written_out: bool = True) -> Iterator[tuple[ast.AST, str]]:
    """Yield one use per line of any name in `package`, imported or, by default, written out."""
    by_line: dict[int, tuple[ast.AST, str]] = {}
    last = package.rpartition(".")[2]
    for use in module.uses:
        full = use.imported or module.full_name(use.node)
        if not f"{full}.".startswith(f"{package}."):
            continue
        if use.imported and _is_guarded(module, use, "ImportError", "ModuleNotFoundError"):
            continue  # the file itself handles the missing name
        if not use.imported and (_is_guarded(module, use, "AttributeError") or (written_out and not _says(use, last))):
            continue
        by_line.setdefault(position(use.node)[0], (use.node, full))
    for line in sorted(by_line):
        yield by_line[line]


def _says(use: Use, word: str) -> bool:
    """Whether a dotted name contains a word itself, rather than through the import that binds its first part."""
    node = use.node
    while isinstance(node, ast.Attribute):
        if node.attr == word:
            return True
        node = node.value
    return isinstance(node, ast.Name) and node.id == word


def _is_guarded(module: Module, use: Use, *errors: str) -> bool:
    """Whether a `try` around a use catches one of these errors."""
    for above, field in module.out(use.node):
        for handler in getattr(above, "handlers", ()) if field == "body" else ():
            caught = ast.unparse(handler.type) if handler.type is not None else "Exception"
            if caught == "Exception" or any(error in caught for error in errors):
                return True
    return False


def _is_array(module: Module, node: ast.AST | None, seen: set[ast.AST]) -> bool:
    """Whether a value is an array for certain, or a part of one."""
    if node is None or node in seen:
        return False
    seen.add(node)
    if isinstance(node, ast.Name):
        bindings = module.bindings(node)
        return bool(bindings) and all(_is_array(module, binding.value, seen) for binding in bindings or ())
    if isinstance(node, ast.Subscript):
        return _is_array(module, node.value, seen)
    if isinstance(node, ast.Call):
        name = module.full_name(node.func)
        return name in _MAKING if name else method(node) in _ONLY_ARRAYS
    return False


RULES = (
    Rule("STG116", "tutorial-api", tutorial_api),
    Rule("STG117", "contrib", contrib),
    Rule("STG119", "tostring", tostring),
    Rule("STG120", "private-names", private_names),
    Rule("STG121", "keras-two", keras_two),
)
