"""The CaRe-BN paper as data: what it is about, and every table and figure with the numbers that it prints.

Numbers of tables and figures count the paper's captions in order. Needs no torch, and no other room.
"""

import re

from carebn.errors import unknown_name
from carebn.paper.figures import FIGURES
from carebn.paper.own import OWN
from carebn.paper.records import Study
from carebn.paper.tables import TABLES

__all__ = ["FIGURES", "OWN", "STUDIES", "TABLES", "find_study"]

STUDIES: dict[str, Study] = {study.name: study for study in (*TABLES, *FIGURES)}  # the paper's


def find_study(name: str) -> Study:
    """By name, or by where it stands in the paper: ``table-1``, ``figure-5-top``. Our own go by their names."""
    key = re.sub(r"[\s_-]+", "-", name.strip().lower())
    places = {study.where.lower().replace(" ", "-"): study for study in STUDIES.values()}
    own = {study.name: study for study in OWN}
    found = STUDIES.get(key) or places.get(key) or own.get(key)
    if found is None:
        raise ValueError(unknown_name("study", name, STUDIES | own))
    return found
