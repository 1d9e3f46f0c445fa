"""From a trained network to a policy that runs anywhere: folding, runtime, exports.

``carebn.deploy.load(path).predict(obs)`` needs numpy alone; torch is imported only where a network is folded.
"""

from carebn.deploy.graph import PolicyGraph
from carebn.deploy.integer import IntegerPolicy
from carebn.deploy.loading import load
from carebn.deploy.runtime import DeployedPolicy

__all__ = ["DeployedPolicy", "IntegerPolicy", "PolicyGraph", "load"]
