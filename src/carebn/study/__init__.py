"""The paper as data, sweeps over it, and what is read back from run directories."""
