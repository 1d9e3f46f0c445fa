"""No normaliser: the identity, under the name ``none``."""

from torch import nn

from carebn.introspection import stands_for


@stands_for("no norm", "forward")
class NoNorm(nn.Identity):
    """No normaliser: passes an input of any shape on as it is."""

    recalibrates = False
