"""CaRe-BN in CrossQ of sb3-contrib, wherever it has a BatchRenorm.

    model = CrossQ(CaReCrossQPolicy, "Pendulum-v1")
    model.learn(10_000, callback=RecalibrateCallback(1000))

CrossQ switches its normalisers between training and evaluation by their type; here it switches these.
"""

from typing import Any

from gymnasium import spaces
from torch import nn

from carebn.norm import CaReBN

try:
    from sb3_contrib.common.torch_layers import BatchRenorm
    from sb3_contrib.crossq.policies import Actor, CrossQCritic, CrossQPolicy
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"carebn.integrations.crossq needs sb3-contrib ({error}): pip install sb3-contrib", name=error.name
    ) from None


def replace_renorm(network: nn.Module) -> int:
    """A CaReBN in place of every BatchRenorm, with its ε; says how many. γ and β start alike, at 1 and 0."""
    found = 0
    for module in list(network.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, BatchRenorm):
                setattr(module, name, CaReBN(child.num_features, eps=child.eps))
                found += 1
    return found


def _switch(network: nn.Module, mode: bool) -> None:
    for module in network.modules():
        if isinstance(module, CaReBN):
            module.train(mode)


class CaReActor(Actor):  # type: ignore[misc,unused-ignore]
    """CrossQ's actor with a CaReBN in place of every BatchRenorm."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        replace_renorm(self)

    def set_bn_training_mode(self, mode: bool) -> None:
        _switch(self, mode)


class CaReCritic(CrossQCritic):  # type: ignore[misc,unused-ignore]
    """CrossQ's critics with a CaReBN in place of every BatchRenorm."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        replace_renorm(self)

    def set_bn_training_mode(self, mode: bool) -> None:
        _switch(self, mode)


class CaReCrossQPolicy(CrossQPolicy):  # type: ignore[misc,unused-ignore]
    """CrossQ's own policy with CaRe-BN; BatchRenorm's momentum and warm-up mean nothing to it."""

    def __init__(self, observation_space: Any, *args: Any, **kwargs: Any) -> None:
        if isinstance(observation_space, spaces.Dict):
            raise ValueError(
                "CrossQ of sb3-contrib takes no observations in parts (Dict): wrap it in FlattenObservation"
            )
        super().__init__(observation_space, *args, **kwargs)

    def make_actor(self, features_extractor: Any = None) -> CaReActor:
        actor = CaReActor(**self._update_features_extractor(self.actor_kwargs, features_extractor))
        actor.to(self.device)
        return actor

    def make_critic(self, features_extractor: Any = None) -> CaReCritic:
        critic = CaReCritic(**self._update_features_extractor(self.critic_kwargs, features_extractor))
        critic.to(self.device)
        return critic
