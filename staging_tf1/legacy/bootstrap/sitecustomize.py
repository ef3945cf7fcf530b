"""Found by Python at start-up because `staging-tf1 run` put this folder on PYTHONPATH.

Written for every Python there is: a program may start another interpreter, which finds this file too and
must then start as if it were not here.
"""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _install():
    if sys.version_info < (3, 10):
        return
    import importlib.util

    if importlib.util.find_spec("staging_tf1") is None:
        # A checkout that is not installed: on the path for this one import, after which the package knows
        # its own folder.
        root = os.path.dirname(os.path.dirname(os.path.dirname(_HERE)))
        sys.path.append(root)
        try:
            import staging_tf1  # noqa: F401
        finally:
            sys.path.remove(root)
    from staging_tf1.legacy import install, settings

    told = settings.from_environment()
    if told is not None:
        install(packages=told.packages, claim_version=told.claim_version, old_names=told.old_names)


def _hand_over():
    """Runs the sitecustomize that this one hides, if there is one."""
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or os.curdir) != _HERE]
    mine = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # noqa: F401
    except ImportError:
        if mine is not None:
            sys.modules["sitecustomize"] = mine  # the import system takes it from there when this file ends


_hand_over()
try:  # noqa: SIM105 (contextlib would be one more import at every start)
    _install()
except ImportError:
    pass  # another environment, which lacks the package or TensorFlow: nothing to do here
