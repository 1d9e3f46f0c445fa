"""From the paper's tables to ours: cells that are trained, runs that are read back, numbers, and how they are shown.

In this order: ``cells`` (the configuration of a run), ``worker`` (one run in a process of its own), ``sweep`` (all runs
of a study), ``evidence`` (what runs and measurements say), ``views`` (the numbers of every table and figure),
``report`` (the same numbers in a terminal, on a page, in Markdown, in print). ``plan`` and ``claims`` say beforehand
which runs are to be made and what follows from them; ``results`` writes docs/results.md.
"""
