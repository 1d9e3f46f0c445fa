"""Measurements on trained networks: what fires, and what it costs."""
