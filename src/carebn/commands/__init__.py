"""A file per command of ``carebn``: a dataclass ``Config`` of its options, and ``run(config) → exit code``.

Only the module of the command that was asked for is imported. Its option ``run`` is the path of a run directory; for a
name of the zoo the command gets the directory that it stands for.
"""
