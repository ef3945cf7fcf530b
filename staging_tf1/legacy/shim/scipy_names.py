"""Names that scipy has removed or moved since 2018, and their current homes."""

from __future__ import annotations

_IMAGES = "staging_tf1.legacy.shim.scipy_images"
_OF_NUMPY = """arange arccos arcsin arctan arctan2 argmax argmin argsort array asarray average ceil concatenate cos
    cumsum diag dot empty exp eye fabs float32 float64 floor hstack identity inf int32 int64 interp isnan linspace log
    log10 log2 logspace max maximum mean median min minimum mod nan ndarray ones ones_like outer pi prod rand randn
    random ravel reshape round shape sign sin size sort sqrt squeeze std sum tan tanh tile transpose unique
    unravel_index var vstack where zeros zeros_like""".split()
_RANDOM = {"rand": "numpy.random:rand", "randn": "numpy.random:randn"}
_WINDOWS = (
    "barthann bartlett blackman blackmanharris bohman boxcar chebwin cosine exponential flattop gaussian hamming hann"
)

# Module -> removed name -> current home.
NAMES: dict[str, dict[str, str]] = {
    "scipy": {name: _RANDOM.get(name, f"numpy:{name}") for name in _OF_NUMPY},
    "scipy.integrate": {
        "cumtrapz": "scipy.integrate:cumulative_trapezoid",
        "trapz": "scipy.integrate:trapezoid",
    },
    "scipy.linalg": {"pinv2": "scipy.linalg:pinv", "tri": "numpy:tri", "tril": "numpy:tril", "triu": "numpy:triu"},
    "scipy.misc": {
        **{name: f"{_IMAGES}:{name}" for name in "bytescale fromimage imread imresize imrotate imsave toimage".split()},
        **{name: f"scipy.datasets:{name}" for name in ("ascent", "face")},
        **{name: f"scipy.special:{name}" for name in ("comb", "factorial", "factorial2", "factorialk", "logsumexp")},
    },
    "scipy.signal": {
        name: f"scipy.signal.windows:{name}" for name in f"{_WINDOWS} kaiser nuttall parzen tukey".split()
    },
}

# Modules that are gone -> the module that has their names.
_SPARSE = "scipy.sparse.linalg"
MODULES: dict[str, str] = {
    **{f"{_SPARSE}.eigen.{name}": _SPARSE for name in ("arpack", "arpack.arpack", "lobpcg")},
    **{f"{_SPARSE}.{name}": _SPARSE for name in ("dsolve", "eigen", "interface", "isolve", "matfuncs")},
    **{f"{_SPARSE}.{name}": _SPARSE for name in ("dsolve.linsolve", "isolve.iterative")},
    **{f"scipy.ndimage.{name}": "scipy.ndimage" for name in ("filters", "interpolation", "measurements", "morphology")},
    **{f"scipy.sparse.{name}": "scipy.sparse" for name in ("base", "coo", "csc", "csr", "dia", "lil")},
    "scipy.misc.pilutil": _IMAGES,
    "scipy.spatial.kdtree": "scipy.spatial",
    "scipy.signal.signaltools": "scipy.signal",
    "scipy.stats.stats": "scipy.stats",
}
# Modules that were packages.
PACKAGES = sorted({name.rpartition(".")[0] for name in MODULES})
