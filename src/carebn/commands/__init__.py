"""A file per command of ``carebn``: a dataclass ``Config`` of its options, and ``run(config) → exit code``.

Only the module of the command that was asked for is imported.
"""
