"""Loads the genuine files of `tf.contrib` and Keras: as they are, except for generated files and single names.

Those of protocol buffers were generated for an older protobuf, those of ops for binaries of TensorFlow 1.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import random
import warnings
import zlib
from collections.abc import Mapping
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from staging_tf1.legacy.shim.old_names import value_at

# Module -> name -> current home. Set when the module has been executed.
REPLACED: dict[str, dict[str, str]] = {
    "keras.applications.imagenet_utils": {
        "_obtain_input_shape": "keras_applications.imagenet_utils:_obtain_input_shape"
    },
    "tensorflow.contrib.util.loader": {"load_op_library": "staging_tf1.legacy.contrib.ops:library"},
}

# Module of tf.contrib -> functions that its decorators do not register: TensorFlow now has their like.
UNREGISTERED: dict[str, tuple[str, ...]] = {
    "tensorflow.contrib.image.python.ops.image_ops": ("_image_projective_transform_grad",),
}

# Module -> expression -> expression in its place, for what numpy and TensorFlow no longer take.
_MAKE_OP = {"ops.Operation(": "ops.Operation.from_node_def("}
# SLSQP and TNC of newer releases of scipy take only arrays of float64.
_DOUBLES = {
    "    constraints = []\n": (
        "    double = lambda of: lambda x: np.asarray(of(x), 'float64')\n"
        "    initial_val = initial_val.astype('float64') if method in ('SLSQP', 'TNC') else initial_val\n"
        "    constraints = []\n"
    ),
    "'fun': func, 'jac': grad_func}": "'fun': double(func), 'jac': double(grad_func)}",
    "return loss, gradient.astype('float64')": "return loss.astype('float64'), gradient.astype('float64')",
}
# Keras 2 passes training= to a layer whose call() takes any keyword.
_NO_TRAINING = {"init_kwargs = kwargs": "init_kwargs = {name: kwargs[name] for name in kwargs if name != 'training'}"}
# Before 2.2.5, keras.layers and keras.backend had all names of their modules.
_LAYERS = """convolutional convolutional_recurrent core advanced_activations embeddings local merge noise normalization
pooling recurrent wrappers""".split()
_ALL_LAYERS = "".join(f"from .{module} import *\n" for module in _LAYERS)
_ALL_OF_BACKEND = "from .load_backend import *\nfrom .common import *\n"
REWRITTEN: dict[str, dict[str, str]] = {
    "keras.backend": {"from .load_backend import epsilon\n": f"{_ALL_OF_BACKEND}from .load_backend import epsilon\n"},
    "keras.layers": {"from .merge import Add\n": f"{_ALL_LAYERS}from .merge import Add\n"},
    "tensorflow.contrib.copy_graph.python.util.copy_elements": _MAKE_OP,
    "tensorflow.contrib.framework.python.ops.variables": {"ckpt_value[slice_dims]": "ckpt_value[tuple(slice_dims)]"},
    "tensorflow.contrib.graph_editor.transform": _MAKE_OP,
    "tensorflow.contrib.opt.python.training.external_optimizer": _DOUBLES,
    "tensorflow.contrib.seq2seq.python.ops.beam_search_decoder": _NO_TRAINING,
    "tensorflow.contrib.seq2seq.python.ops.decoder": _NO_TRAINING,
}


class GenuineLoader(SourceFileLoader):
    """Loads one file. Python keeps its compiled form next to it."""

    def source_to_code(self, data: Any, path: Any, *, _optimize: int = -1) -> CodeType:  # type: ignore[override]
        """Compile a file, without warnings of escape sequences that were valid in its time."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(_rewritten(data, REWRITTEN[self.name]) if self.name in REWRITTEN else data, path)
            last = str(path).replace("\\", "/").rpartition("/")[2]
            if last.endswith("_pb2.py"):
                tree = _of_messages(tree)
            elif last.startswith("gen_"):
                tree = _of_ops(tree)
            for function in ast.walk(tree) if self.name in UNREGISTERED else ():
                if isinstance(function, ast.FunctionDef) and function.name in UNREGISTERED[self.name]:
                    function.decorator_list = []
            code: CodeType = compile(tree, path, "exec", dont_inherit=True, optimize=_optimize)
            return code

    def path_stats(self, path: Any) -> Mapping[str, Any]:
        """Return what the compiled form must fit: this file instead of the time of the genuine file.

        The genuine files never change. What is compiled of them does, with a new version of this package.
        """
        return {**super().path_stats(path), "mtime": _version()}

    def exec_module(self, module: ModuleType) -> None:
        """Execute a module and put its replaced names in place. The program's random numbers stay as they are."""
        # Libraries that it imports may draw some: scikit-learn 1.9 imports rich, which does.
        state = random.getstate()
        try:
            super().exec_module(module)
        finally:
            random.setstate(state)
        for name, home in REPLACED.get(module.__name__, {}).items():
            module.__dict__[name] = value_at(home)


@functools.cache
def _version() -> int:
    return zlib.crc32(Path(__file__).read_bytes())


def _rewritten(data: Any, expressions: Mapping[str, str]) -> str:
    text = importlib.util.decode_source(data)
    for old, new in expressions.items():
        if old not in text:
            raise ImportError(f"expected {old!r} in a genuine file")
        text = text.replace(old, new)
    return text


def _of_messages(tree: ast.Module) -> ast.Module:
    """Return a module that imports what the file imports, and builds the messages from the serialized description."""
    # The descriptions of the files that this one uses must be there before its own.
    used = [line for line in tree.body if isinstance(line, ast.ImportFrom) and (line.module or "").startswith("tensor")]
    serialized = next(
        keyword.value.args[0].value.encode("latin-1")  # type: ignore[attr-defined]
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("FileDescriptor")
        for keyword in node.keywords
        if keyword.arg == "serialized_pb"
    )
    build = ast.parse(f"from {__name__} import build_messages\nbuild_messages(globals(), {serialized!r})\n")
    return ast.fix_missing_locations(ast.Module([*used, *build.body], []))


def build_messages(namespace: dict[str, Any], serialized: bytes) -> None:
    """Add the messages and enums of a serialized file description to the names of a module."""
    builder = importlib.import_module("google.protobuf.internal.builder")
    pool = importlib.import_module("google.protobuf.descriptor_pool").Default()
    namespace["DESCRIPTOR"] = file = pool.AddSerializedFile(serialized)
    builder.BuildMessageAndEnumDescriptors(file, namespace)
    builder.BuildTopDescriptorsAndMessages(file, namespace["__name__"], namespace)


def _of_ops(tree: ast.Module) -> ast.Module:
    """Return a module with the functions of the file, each of which calls its op in `ops.call`."""
    head = (
        "from tensorflow.python.framework import dtypes as _dtypes",  # defaults name them
        "from staging_tf1.legacy.contrib import ops as _ops",
    )
    body: list[ast.stmt] = [*ast.parse("\n".join(head)).body]
    for function in tree.body:
        if not isinstance(function, ast.FunctionDef) or not function.decorator_list:
            continue
        op = _op_of(function)
        if op is None:
            continue
        given = [argument.arg for argument in function.args.args]
        call = f"return _ops.call({op!r}, __name__, {', '.join(f'{name}={name}' for name in given)})"
        function.decorator_list = []
        function.body = [*function.body[:1], *ast.parse(f"def f():\n    {call}").body[0].body]  # type: ignore[attr-defined]
        body += [function, *ast.parse(f"{op} = {function.name}").body]
    return ast.fix_missing_locations(ast.Module(body, []))


def _op_of(function: ast.FunctionDef) -> str | None:
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "_op_def_lib._apply_op_helper":
            name = node.args[0]
            return name.value if isinstance(name, ast.Constant) and isinstance(name.value, str) else None
    return None
