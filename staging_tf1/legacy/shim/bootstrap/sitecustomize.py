"""Installs the shim at start-up. Python finds this file because `staging-tf1 run` puts its folder on PYTHONPATH.

Every version of Python must be able to run it: a program may start another interpreter, which also finds this
file and must then start as usual.
"""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _install():
    if sys.version_info < (3, 10):
        return
    import importlib.util

    if importlib.util.find_spec("staging_tf1") is None:
        # This is a checkout that is not installed. Its folder is on the path for this one import only:
        # afterwards the package finds its own modules.
        root = os.path.abspath(os.path.join(_HERE, *[os.pardir] * 4))
        sys.path.append(root)
        try:
            import staging_tf1  # noqa: F401
        finally:
            sys.path.remove(root)
    from staging_tf1.legacy import install
    from staging_tf1.legacy.shim import settings

    inherited = settings.from_environment()
    if inherited is not None:
        install(**vars(inherited))


def _run_hidden_sitecustomize():
    """Run the sitecustomize that this one hides, if any."""
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or os.curdir) != _HERE]
    mine = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # noqa: F401
    except ImportError:
        if mine is not None:
            sys.modules["sitecustomize"] = mine  # the import system looks it up there when this file ends


_run_hidden_sitecustomize()
try:  # noqa: SIM105 (contextlib would be one more import at every start)
    _install()
except ImportError:
    pass  # another environment, without the package or without TensorFlow: nothing to install
