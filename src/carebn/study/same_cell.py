"""Which options of a run do not decide what cell of a study it belongs to. Needs no torch."""

# What makes two runs of the same cell differ: their seed, and how they were carried out, which changes no number.
NOT_OF_THE_CELL = ("seed", "threads", "device", "checkpoint_interval", "log_interval", "import_modules")
