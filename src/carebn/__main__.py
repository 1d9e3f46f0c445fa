"""``python -m carebn``: the command line."""

from carebn.cli import main

main()
