"""Measurements of networks and training that never change what they measure."""
