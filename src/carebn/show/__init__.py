"""A policy seen at work: rasters and films."""
