"""Names of numpy 1.18, the numpy of TensorFlow 1.15, that later versions removed, and the current home of each."""

from __future__ import annotations


def _in(module: str, *names: str) -> dict[str, str]:
    return {name: f"{module}:{name}" for name in names}


# Removed name -> "module:attribute"; "builtins" for Python's own types.
NAMES: dict[str, str] = {
    **_in("builtins", "bool", "complex", "float", "int", "object", "str"),
    **_in("numpy.exceptions", "AxisError", "ComplexWarning", "ModuleDeprecationWarning", "RankWarning"),
    **_in("numpy.exceptions", "TooHardError", "VisibleDeprecationWarning"),
    **_in("numpy.char", "compare_chararrays"),
    **_in(
        "staging_tf1.legacy.shim.numpy_functions",
        "alen",
        "asfarray",
        "asscalar",
        "cast",
        "disp",
        "fastCopyAndTranspose",
        "find_common_type",
        "issctype",
        "issubclass_",
        "issubsctype",
        "maximum_sctype",
        "msort",
        "nbytes",
        "obj2sctype",
        "sctype2char",
        "sctypes",
        "NINF",
        "NZERO",
        "PZERO",
    ),
    "unicode": "builtins:str",
    "long": "builtins:int",
    "bool8": "numpy:bool_",
    "bytes0": "numpy:bytes_",
    "cfloat": "numpy:complex128",
    "clongfloat": "numpy:clongdouble",
    "complex_": "numpy:complex128",
    "float_": "numpy:float64",
    "int0": "numpy:intp",
    "longcomplex": "numpy:clongdouble",
    "longfloat": "numpy:longdouble",
    "object0": "numpy:object_",
    "singlecomplex": "numpy:complex64",
    "str0": "numpy:str_",
    "string_": "numpy:bytes_",
    "typeDict": "numpy:sctypeDict",
    "uint0": "numpy:uintp",
    "unicode_": "numpy:str_",
    "void0": "numpy:void",
    "Inf": "numpy:inf",
    "Infinity": "numpy:inf",
    "infty": "numpy:inf",
    "PINF": "numpy:inf",
    "NAN": "numpy:nan",
    "NaN": "numpy:nan",
    "alltrue": "numpy:all",
    "byte_bounds": "numpy.lib.array_utils:byte_bounds",
    "cumproduct": "numpy:cumprod",
    "DataSource": "numpy.lib.npyio:DataSource",
    "format_parser": "numpy.rec:format_parser",
    "in1d": "numpy:isin",
    "loads": "pickle:loads",
    "mat": "numpy:asmatrix",
    "math": "math:",
    "product": "numpy:prod",
    "round_": "numpy:round",
    "row_stack": "numpy:vstack",
    "safe_eval": "ast:literal_eval",
    "sometrue": "numpy:any",
    "trapz": "numpy:trapezoid",
}

# numpy.lib listed most functions of numpy.
LIB: dict[str, str] = _in(
    "numpy",
    *"""angle append apply_along_axis apply_over_axes array_split average bartlett bincount blackman broadcast_arrays
    broadcast_to column_stack copy corrcoef cov delete diag diff digitize dsplit dstack ediff1d expand_dims extract eye
    fill_diagonal flip fliplr flipud genfromtxt gradient hamming hanning histogram histogram2d histogramdd hsplit imag
    insert interp intersect1d iscomplex isin isreal ix_ kron load loadtxt median meshgrid mgrid nan_to_num nanmax
    nanmean nanmin nansum ogrid pad percentile piecewise poly1d polyfit polyval r_ real roots rot90 save savetxt savez
    savez_compressed select setdiff1d sinc split take_along_axis tile tri tril trim_zeros triu union1d unique
    unravel_index unwrap vectorize vsplit""".split(),
)
