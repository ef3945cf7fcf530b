"""Record files: where their records stand, reading some of them, checking them, and writing new ones.

In which order records come, and what a batch of them looks like, is the business of the sources above.
"""
