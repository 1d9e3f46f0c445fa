"""The paper's tables and figures as data; sweeps that fill them; statistics over their runs. Imports no torch."""
