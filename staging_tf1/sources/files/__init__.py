"""Record files: indexing, reading, checking and writing.

The sources in the parent package decide the order of records and the content of batches.
"""
