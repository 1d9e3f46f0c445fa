"""Tuning: options are searched for in rounds of trials, each a run, that end the same however often it is killed."""
