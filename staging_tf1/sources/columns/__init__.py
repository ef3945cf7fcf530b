"""Caches on disk: one column file per component, and a manifest. See `sources.cached`.

A cache is a folder of `.npy` files, which `numpy.load(path, mmap_mode="r")` opens. Records whose shapes differ, and
strings, are a column of values and columns that say where each record begins.

The alternative was record files, in which each record is found, copied and parsed by itself. A column is gathered with
one copy, and other programs can read it without this package.
"""
