"""Names that other libraries have removed since 2018, and their current homes.

A name is restored if it then means what it meant in the last release that had it. Any other has "!" and what to do
instead. tests/legacy/test_legacy_libraries.py compares the results with those of the old releases.
"""

from __future__ import annotations

from staging_tf1.legacy.shim.tables import Gone

_OURS = "staging_tf1.legacy.shim.library_functions"
_ROLLING = "apply corr count cov kurt max mean median min quantile skew std sum var".split()


def _ours(*names: str) -> dict[str, str]:
    return {name: f"{_OURS}:{name}" for name in names}


# Library -> module -> removed name -> current home ("module:attribute"), or "!" and what to do instead.
_NAMES: dict[str, dict[str, dict[str, str]]] = {
    "Pillow": {
        "PIL": dict.fromkeys(("PILLOW_VERSION", "VERSION"), "PIL:__version__"),
        "PIL.Image": {
            "ANTIALIAS": "PIL.Image:Resampling.LANCZOS",
            "CUBIC": "PIL.Image:Resampling.BICUBIC",
            "LINEAR": "PIL.Image:Resampling.BILINEAR",
            **dict.fromkeys(("PILLOW_VERSION", "VERSION"), "PIL:__version__"),
            **_ours("isImageType"),
        },
        "PIL.ImageFont": {f"LAYOUT_{name}": f"PIL.ImageFont:Layout.{name}" for name in ("BASIC", "RAQM")},
    },
    "pandas": {
        "pandas": {
            "SparseArray": "pandas.arrays:SparseArray",
            "datetime": "datetime:datetime",
            "np": "numpy:",
            **dict.fromkeys(("Float64Index", "Int64Index", "UInt64Index"), "!Use pd.Index(data, dtype)."),
            **dict.fromkeys(("Panel", "Panel4D"), "!Use a DataFrame with a MultiIndex, or the package xarray."),
            **dict.fromkeys(("SparseDataFrame", "SparseSeries"), "!Use columns of dtype pd.SparseDtype(float)."),
            **dict.fromkeys(("read_msgpack", "to_msgpack"), "!Use pd.read_pickle() and to_pickle()."),
            "TimeGrouper": "!Use pd.Grouper(freq=...).",
            "ewma": "!Use x.ewm(...).mean().",
            "read_gbq": "!Use the package pandas-gbq.",
            **{f"rolling_{name}": f"!Use x.rolling(window).{name}()." for name in _ROLLING},
            "scatter_matrix": "pandas.plotting:scatter_matrix",
            "value_counts": "!Use pd.Series(values).value_counts().",
        },
        "pandas.io.json": {"json_normalize": "pandas:json_normalize"},
    },
    "librosa": {
        "librosa": {
            "logamplitude": "!Use librosa.power_to_db(). librosa 0.5 is the last release that has it.",
            "output": "!Use soundfile.write(path, y, sr). librosa 0.7 is the last release that has it.",
        },
    },
    "nibabel": {"nibabel": {"get_info": "!Use nibabel.pkg_info. nibabel 4 is the last release that has it."}},
    "scikit-learn": {
        "sklearn.datasets": {
            "fetch_mldata": "!Use fetch_openml(). scikit-learn 0.21 is the last release that has it.",
            "load_boston": "!Use fetch_california_housing(). scikit-learn 1.1 is the last release that has it.",
        },
        "sklearn.metrics": {
            "jaccard_similarity_score": "!Use jaccard_score(). scikit-learn 0.22 is the last release that has it."
        },
        "sklearn.mixture": {"GMM": "!Use GaussianMixture. scikit-learn 0.19 is the last release that has it."},
        "sklearn.preprocessing": {
            "Imputer": "!Use sklearn.impute.SimpleImputer. scikit-learn 0.21 is the last release that has it."
        },
    },
}

_FRAMES = {
    "append": f"{_OURS}:append",
    "as_matrix": f"{_OURS}:as_matrix",
    "clip_lower": f"{_OURS}:clip_lower",
    "clip_upper": f"{_OURS}:clip_upper",
    "get_value": f"{_OURS}:get_value",
    "get_values": f"{_OURS}:get_values",
    "ix": "!Use x.loc[...] for labels, x.iloc[...] for positions.",
    "mad": "!Use (x - x.mean()).abs().mean().",
    "set_value": f"{_OURS}:set_value",
}
# Library -> "module:Class" -> removed attribute -> current home, or "!" and what to do instead.
_METHODS: dict[str, dict[str, dict[str, str]]] = {
    "h5py": {"h5py:Dataset": _ours("value")},
    "matplotlib": {"matplotlib.backends.backend_agg:FigureCanvasAgg": _ours("tostring_rgb")},
    "Pillow": {
        "PIL.ImageDraw:ImageDraw": _ours("multiline_textsize", "textsize"),
        "PIL.ImageFont:FreeTypeFont": _ours("getoffset", "getsize", "getsize_multiline"),
        "PIL.ImageFont:ImageFont": {"getsize": f"{_OURS}:getsize_of_bitmaps"},
        "PIL.ImageFont:TransposedFont": {"getsize": f"{_OURS}:getsize_transposed"},
    },
    "pandas": {
        "pandas:DataFrame": {
            **_FRAMES,
            "applymap": "pandas:DataFrame.map",
            "iteritems": "pandas:DataFrame.items",
            "lookup": "!Use x.at[row, column] for each pair.",
            "to_sparse": "!Use x.astype(pd.SparseDtype(float)).",
        },
        "pandas:Index": {
            "get_values": f"{_OURS}:get_values",
            "is_monotonic": "pandas:Index.is_monotonic_increasing",
        },
        "pandas:Series": {
            **_FRAMES,
            "is_monotonic": "pandas:Series.is_monotonic_increasing",
            "iteritems": "pandas:Series.items",
            "nonzero": f"{_OURS}:nonzero",
            "ravel": f"{_OURS}:ravel",
        },
    },
}
# As _METHODS, for methods that are there and have changed, and for functions of modules. The home gets the changed
# method or function as its first argument.
_CHANGED: dict[str, dict[str, dict[str, str]]] = {
    "h5py": {"h5py:AttributeManager": {"__getitem__": f"{_OURS}:read_attribute"}},
    "librosa": {
        f"librosa.{module}": dict.fromkeys(functions, f"{_OURS}:with_positions")
        for module, functions in (
            ("core.audio", ("load", "resample")),
            ("core.spectrum", ("griffinlim", "istft", "stft")),
            ("effects", ("pitch_shift", "time_stretch")),
            ("feature.spectral", ("melspectrogram", "mfcc")),
            ("filters", ("mel",)),
        )
    },
    "matplotlib": {
        "matplotlib.figure:Figure": {"add_subplot": f"{_OURS}:with_digits"},
        "matplotlib.pyplot": {"subplot": f"{_OURS}:with_digits"},
    },
    "nibabel": {"nibabel.dataobj_images:DataobjImage": {"get_data": f"{_OURS}:get_data"}},
    "PyYAML": {"yaml": dict.fromkeys(("load", "load_all"), f"{_OURS}:with_loader")},
    "pandas": {"pandas:Series.str": _ours("replace")},
}

NAMES = {module: names for library in _NAMES.values() for module, names in library.items()}
METHODS = {owner: names for library in _METHODS.values() for owner, names in library.items()}
CHANGED = {owner: names for library in _CHANGED.values() for owner, names in library.items()}
# Modules that are gone.
MODULES: dict[str, Gone] = {
    "librosa.output": Gone((), "Use soundfile.write(path, y, sr). librosa 0.7 is the last release that has it."),
    "sklearn.externals.joblib": Gone(("joblib",), "scikit-learn 0.22 is the last release that has it."),
    "sklearn.externals.six": Gone(("six",), "scikit-learn 0.22 is the last release that has it."),
    "sklearn.lda": Gone(("sklearn.discriminant_analysis",), "scikit-learn 0.18 is the last release that has it."),
    "sklearn.utils.linear_assignment_": Gone((_OURS,), "scikit-learn 0.22 is the last release that has it."),
    **{
        f"sklearn.{name}": Gone(("sklearn.model_selection",), "scikit-learn 0.19 is the last release that has it.")
        for name in ("cross_validation", "grid_search", "learning_curve")
    },
    "pkg_resources": Gone(
        ("staging_tf1.legacy.shim.package_resources",),
        "Releases of setuptools before 82 have it: pip install 'setuptools<82'.",
    ),
}
