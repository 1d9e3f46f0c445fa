"""Trained policies to play with: names for them, cards that say what they can do, and their way to others."""
