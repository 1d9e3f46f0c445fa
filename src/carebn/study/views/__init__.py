"""The numbers of every table and figure, computed once and free of how they are shown."""
