"""Installs the shim into this process, without loading TensorFlow."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from types import ModuleType
from typing import Any

from staging_tf1.arguments import flag, names, seconds, stall_secs_or_default
from staging_tf1.legacy.shim import (
    advice,
    graphs,
    keras_graphs,
    keras_two,
    numpy_arrays,
    old_names,
    submodules,
    views,
)
from staging_tf1.legacy.shim.estimator import sessions, standins
from staging_tf1.legacy.shim.finder import AfterLoad, Finder
from staging_tf1.legacy.shim.origin import Origin
from staging_tf1.legacy.shim.settings import Settings, from_environment
from staging_tf1.legacy.shim.tables import SCIPY
from staging_tf1.quiet import find_devices, importing

_LENDABLE = ("contrib", "estimator")
# What the package tensorflow-estimator needs while it loads.
_ESTIMATOR_HOOKS: dict[str, AfterLoad] = {
    "tensorflow_estimator": standins.without_renamed_names,
    # TensorFlow 2.15 reads tf.compat.v1.estimator from here.
    "tensorflow_estimator.python.estimator.api._v1.estimator": standins.without_renamed_names,
    "tensorflow_estimator.python.estimator.estimator_export": standins.without_deprecations,
    "tensorflow_estimator.python.estimator.estimator": sessions.serve,
    "tensorflow_estimator.python.estimator.run_config": standins.complete,
}
# Names that programs find changed. Module -> name -> home of what they see.
_FACES: dict[str, dict[str, str]] = {
    # The module chooses the class when it is imported, before v2 behavior is switched off.
    "tensorflow.python.framework.device": {"DeviceSpec": "tensorflow.compat.v1:DeviceSpec"},
    "tensorflow.python.framework.test_util": {
        "run_in_graph_and_eager_modes": "staging_tf1.legacy.shim.old_names:run_in_graph_and_eager_modes"
    },
    "tensorflow.python.ops.data_flow_ops": {
        name: f"staging_tf1.legacy.contrib.staging:{name}" for name in ("StagingArea", "MapStagingArea")
    },
    # tf.contrib.framework removes the names that it does not document from TensorFlow's own modules.
    "tensorflow.python.util.all_util": {
        "remove_undocumented": "staging_tf1.legacy.contrib.modules:remove_undocumented"
    },
}
# Twice as long as our own sessions wait: the steps of such a program may be of any length.
_STALL_SECS = 60.0
_OWN_TENSORFLOW = "staging_tf1._tf"
_installed: Settings | None = None
_wrapped = False  # whether runs are compiled and watched
_lending: tuple[Finder, Origin] | None = None


def install(
    *,
    packages: Iterable[str] = (),
    claim_version: bool = False,
    old_names: bool = False,
    only: Iterable[str] = (),
    compile_runs: bool = True,
    stall_secs: float | None = None,
) -> None:
    """Make ``import tensorflow`` mean TF1 in the user's own code, in loaded modules and in later imports.

    The user's own code is every module outside ``site-packages``. Installed libraries still see TensorFlow 2.
    This function does not load TensorFlow; the program's own import does. If TensorFlow is already loaded, v2
    behaviour is switched off immediately.

    Args:
      packages: top-level names of installed packages that also see TF1.
      claim_version: set ``tf.__version__`` to 1.15.5, for code that compares versions.
      old_names: restore names that numpy, Python and other libraries removed (``np.object``, ``ndarray.tostring``,
        ``collections.Mapping``, ``Image.ANTIALIAS``, ``DataFrame.append``), and print numbers as numpy 1 does.
        The first use of each name is logged.
      only: lend only these names of `tf` to user code and the packages: "estimator", "contrib", or both. Everything
        else stays as in TensorFlow 2, and v2 behaviour stays on. Keras 2 becomes `tf.keras` unless
        ``TF_USE_LEGACY_KERAS`` says otherwise, because Estimator needs it.
      compile_runs: whether a `Session.run` with the same fetches as an earlier one does not parse them again, in every
        session of the process. Values, errors and their texts stay the same. With ``only=`` it has no effect.
      stall_secs: seconds after which a run of any `tf.Session` that waits for an area, a queue or a barrier is logged,
        with the most likely cause and its fix; 0 disables the report. None uses the environment variable
        STAGING_TF1_STALL_SECS, or else 60. A run that computes is not reported.

    Raises:
      TypeError: an argument has the wrong type. Nothing is installed.
      ValueError: `only` has another name, or is combined with `claim_version` or `old_names`, or `stall_secs` is out of
        range. Nothing is installed.
      RuntimeError: the shim is already installed with other arguments.

    Example:

    >>> from staging_tf1 import legacy
    >>> legacy.install()  # doctest: +SKIP
    >>> import tensorflow as tf  # doctest: +SKIP
    >>> tf.contrib.staging.StagingArea([tf.float32])  # doctest: +SKIP

    In a TensorFlow 2 program with a library that still uses Estimator:

    >>> legacy.install(only=["estimator"], packages=["easy_rec"])  # doctest: +SKIP
    """
    global _installed
    wanted = _checked(packages, claim_version, old_names, only, compile_runs, stall_secs)
    if _installed is not None:
        if _installed != wanted:
            raise RuntimeError(
                f"staging_tf1.legacy is already installed with {_installed}; it cannot be installed again "
                f"with {wanted}. Call install() once, at the start of the program."
            )
        return
    _installed = wanted
    keras_two.choose()  # for tf.layers and tf.nn.rnn_cell
    finder, origin = lend()
    origin.admit(wanted.packages, wanted.only, wanted.old_names)
    finder.add({"tensorflow": lambda module: _two_faces(module, origin, wanted)})
    # If this is what imports TensorFlow, it is half imported itself when TensorFlow is loaded.
    finder.add({_OWN_TENSORFLOW: lambda module: _wrap_runs(wanted)})
    if wanted.only:
        return
    finder.add(graphs.CHANGES | keras_graphs.CHANGES)
    if wanted.old_names:
        finder.add({"numpy": lambda module: numpy_arrays.attach(module, origin)})
    if from_environment() is not None:
        # A program of `staging-tf1 run`. In any other, what TensorFlow prints is the program's own affair.
        finder.add({}, {"tensorflow": importing})
        advice.install(origin, wanted)


def is_installed() -> bool:
    """Whether user code sees all of TF1.

    Raises:
      RuntimeError: `install` was called with ``only=``.
    """
    if _installed is not None and _installed.only:
        raise RuntimeError(
            f"staging_tf1.legacy is already installed with {_installed}, expected all of TF1. Call install() without "
            "only=, or restart the program."
        )
    return _installed is not None


def _checked(
    packages: Iterable[str],
    claim_version: bool,
    old_names: bool,
    only: Iterable[str],
    compile_runs: bool,
    stall_secs: float | None,
) -> Settings:
    listed = names("install()", "packages", packages, "a list of package names, such as ['my_models']")
    lent = names("install()", "only", only, "a list of names of tf, such as ['estimator']")
    wanted = Settings(
        tuple(sorted(listed)),
        flag("install()", "claim_version", claim_version),
        flag("install()", "old_names", old_names),
        tuple(sorted(lent)),
        flag("install()", "compile_runs", compile_runs),
        None if stall_secs is None else seconds("install()", "stall_secs", stall_secs),
    )
    if unknown := [name for name in wanted.only if name not in _LENDABLE]:
        raise ValueError(f"install() got only={unknown}, expected names from {list(_LENDABLE)}.")
    if wanted.only and (wanted.claim_version or wanted.old_names):
        raise ValueError(
            "install() got only= with claim_version= or old_names=, which are for programs that see all of TF1."
        )
    return wanted


def lend() -> tuple[Finder, Origin]:
    """Let the genuine modules of TensorFlow 1.15.5 be imported, and see TF1. The program itself sees no more of it."""
    global _lending
    if _lending is None:
        origin = Origin()
        after_load: dict[str, AfterLoad] = {
            "tensorflow": lambda module: _two_faces(module, origin, Settings()),
            **{name: lambda module: old_names.offer(module, origin) for name in old_names.OFFERED},
            "tensorflow.compat.v1.nn.rnn_cell": keras_two.serve_cells,
            **_ESTIMATOR_HOOKS,
        }
        around = {"tensorflow_estimator.*": standins.lent}
        finder = Finder(after_load, submodules.maker, lambda name: _second_face(name, origin), origin, around)
        _lending = finder, origin
        finder.install()
        finder.add(dict.fromkeys([name.rpartition(".")[0] for name in SCIPY.modules], _as_package))
    return _lending


# The functions below import TensorFlow, or run only after it is loaded.


def _two_faces(module: ModuleType, origin: Origin, settings: Settings) -> None:
    from staging_tf1.legacy.shim import tf1

    tf1.attach(module, origin, settings)
    if _installed is settings and not settings.only:
        tf1.switch_off_v2(module)
        if from_environment() is not None:
            find_devices()
    if _installed is settings and not _is_being_imported(_OWN_TENSORFLOW):
        _wrap_runs(settings)


def _is_being_imported(name: str) -> bool:
    return bool(getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", False))


def _wrap_runs(settings: Settings) -> None:
    global _wrapped
    if _wrapped:
        return
    _wrapped = True
    if settings.compile_runs and not settings.only:
        from staging_tf1.feed.compiled_runs import compile_all_runs

        compile_all_runs()
    from staging_tf1.watch.program import watch_program

    say = _print_report if from_environment() is not None else _log_report
    watch_program(stall_secs_or_default("install()", settings.stall_secs, _STALL_SECS), say)


def _print_report(report: str) -> None:
    # The program may have lowered what is logged.
    print(f"staging-tf1 run: {report}", file=sys.stderr, flush=True)


def _log_report(report: str) -> None:
    from absl import logging

    logging.warning("%s", report)


def _second_face(fullname: str, origin: Origin) -> AfterLoad | None:
    if (names := _FACES.get(fullname)) is not None:
        return lambda module: views.attach(module, views.View({}, lambda name: _other(names, name)), origin)
    if keras_two.counterpart(fullname) is not None:
        return lambda module: views.attach(module, views.View({}, lambda name: keras_two.find(fullname, name)), origin)
    if not submodules.is_public(fullname):
        return None
    from staging_tf1.legacy.shim import tf1

    return lambda module: tf1.attach_public(module, fullname, origin)


def _other(names: dict[str, str], name: str) -> Any:
    return old_names.value_at(names[name]) if name in names else views.UNCHANGED


def _as_package(module: ModuleType) -> None:
    """Let the import system look for the removed modules of a package that has become a single file."""
    module.__dict__.setdefault("__path__", [])
