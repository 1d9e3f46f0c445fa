"""Policies in whole numbers on real instruction sets, in QEMU: ``make chip-test``."""
