"""Random networks on the compiled path and on the pure path: the same, or a small case that says where not.

    cases      what a case is, how one is drawn, and what would be simpler
    networks   the network and the observations that a case describes
    oddities   everything unusual that may be done to a network
    running    what is done with it: training steps, acting, folding, exports, re-calibration
    judging    whether two runs are the same, and when only rounding decided
    children   batches of cases in processes of their own, so that a crash or a deadlock is one more finding

``python -m fuzz --help``, with ``tests`` on PYTHONPATH; ``make fuzz`` from the top.
"""
