"""Spiking policies for Stable-Baselines3, whose own TD3, DDPG, SAC and DQN train, save, load and resume them.

    model = TD3(SpikingTD3Policy, "Pendulum-v1", policy_kwargs={"spiking": {"neuron": "lif"}})
    model.learn(10_000, callback=RecalibrateCallback(1000))

``net_arch`` has the hidden sizes, as for SB3's own policies; ``spiking`` the other options of ``SpikingActor`` or
``SpikingQNetwork``. It is plain data, so that a saved model holds nothing of ours but names and tensors.

Moving statistics move in the pass of the network's own loss, and only there: acting, evaluating and target passes use
them as they are. SB3 hands them to target networks whole, not averaged with ``tau`` as ``carebn train`` does.
"""

import json
from contextlib import nullcontext
from copy import deepcopy
from inspect import signature
from numbers import Integral
from typing import Any, ClassVar

import torch
from gymnasium import spaces
from torch import Tensor, nn

from carebn.algorithm.sac import LOG_STD_RANGE, log_std_network
from carebn.errors import unknown_name
from carebn.network import SpikingActor, SpikingQNetwork
from carebn.network.bounds import ActionBounds
from carebn.network.inference import moving_statistics
from carebn.norm import Norm, recalibrate

try:
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
    from stable_baselines3.common.policies import BasePolicy
    from stable_baselines3.common.preprocessing import get_action_dim, is_image_space
    from stable_baselines3.common.torch_layers import BaseFeaturesExtractor, CombinedExtractor, FlattenExtractor
    from stable_baselines3.common.type_aliases import PyTorchObs, Schedule
    from stable_baselines3.dqn.policies import DQNPolicy, QNetwork
    from stable_baselines3.sac.policies import Actor as SACActor
    from stable_baselines3.sac.policies import SACPolicy
    from stable_baselines3.td3.policies import Actor as TD3Actor
    from stable_baselines3.td3.policies import TD3Policy
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"carebn.integrations.sb3 needs Stable-Baselines3 ({error}): pip install stable-baselines3", name=error.name
    ) from None

HIDDEN = [256, 256]  # the paper's, for actor and critic
GIVEN = {"self", "obs_dim", "action_dim", "actions", "low", "high", "hidden"}  # by SB3: spaces and net_arch
UNASKED = {"observation_space", "action_space", "lr_schedule"}  # what policy_kwargs does not hold


def _checked(spiking: dict[str, Any] | None, network: type[nn.Module]) -> dict[str, Any]:
    """Options of the network that the user may choose, and that a file can hold."""
    options = spiking or {}
    if not isinstance(options, dict):
        raise ValueError(f"'spiking' in policy_kwargs must be a dictionary, as {{'neuron': 'clif'}}, got {options!r}")
    known = signature(network).parameters.keys() - GIVEN
    for name in options:
        if name == "hidden":
            raise ValueError("hidden sizes are policy_kwargs' own net_arch, as for other policies: leave 'hidden' out")
        if name not in known:
            raise ValueError(unknown_name("option of 'spiking' in policy_kwargs", name, known))
        if name.endswith("_options") and not isinstance(options[name], dict):
            raise ValueError(f"{name!r} of 'spiking' in policy_kwargs must be a dictionary, got {options[name]!r}")
    if options.get("encoder_options", {}).get("observation") == "zscore":
        raise ValueError(
            "observation='zscore' is learnt by carebn's own agents only: wrap the environment, as VecNormalize"
        )
    try:
        json.dumps(options)
    except TypeError:
        raise ValueError(
            f"'spiking' in policy_kwargs must be plain data, which a saved model can hold: names, numbers, lists and "
            f"dictionaries, got {options}"
        ) from None
    return options


def _extractor(space: spaces.Space[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Observations in parts are put side by side, which SB3 has policies of other names for."""
    usual = CombinedExtractor if isinstance(space, spaces.Dict) else FlattenExtractor
    return {"features_extractor_class": usual, **kwargs}


class _SpikingPolicy(BasePolicy):
    network: ClassVar[type[nn.Module]] = SpikingActor  # whose options ``spiking`` has
    made_for: ClassVar[str]
    acts_in: ClassVar[type[spaces.Space[Any]]] = spaces.Box
    spiking: dict[str, Any]

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        lr_schedule: Schedule,
        net_arch: list[int] | dict[str, list[int]] | None = None,
        spiking: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        order = type(self).__mro__
        own = order[order.index(_SpikingPolicy) + 1]  # SB3's
        known = signature(own).parameters.keys() - UNASKED | {"spiking"}
        for name in kwargs:
            if name not in known:  # misspelt, or from an algorithm that this policy is not for
                raise ValueError(unknown_name(f"option of {type(self).__name__} (for {self.made_for})", name, known))
        if not isinstance(action_space, self.acts_in):
            raise ValueError(
                f"{type(self).__name__} is for {self.made_for} and {self.acts_in.__name__} actions, got {action_space}"
            )
        self.spiking = _checked(spiking, self.network)
        kwargs = _extractor(observation_space, kwargs)
        super().__init__(observation_space, action_space, lr_schedule, net_arch or HIDDEN, **kwargs)

    def train(self, mode: bool = True) -> Any:
        """Targets stay in evaluation mode, however the others are switched."""
        super().train(mode)
        for name in ("actor_target", "critic_target", "q_net_target"):
            target = self._modules.get(name)
            if target is not None:
                target.eval()
        return self

    def _get_constructor_parameters(self) -> dict[str, Any]:
        return {**super()._get_constructor_parameters(), "spiking": self.spiking}


class SpikingTD3Actor(TD3Actor):
    """SB3's actor of TD3 and DDPG, spiking; ``mu`` is a ``SpikingActor``."""

    def __init__(self, *, net_arch: list[int], spiking: dict[str, Any], **kwargs: Any) -> None:
        super().__init__(net_arch=[], **kwargs)
        self.net_arch, self.spiking = net_arch, spiking
        size = get_action_dim(self.action_space)
        self.mu = SpikingActor(self.features_dim, size, hidden=net_arch, **spiking)  # type: ignore[assignment]

    def _get_constructor_parameters(self) -> dict[str, Any]:
        return {**super()._get_constructor_parameters(), "spiking": self.spiking}


class SpikingTD3Policy(_SpikingPolicy, TD3Policy):
    """For ``TD3`` and ``DDPG``: a spiking actor beside SB3's own critics."""

    made_for = "TD3 and DDPG"

    def make_actor(self, features_extractor: BaseFeaturesExtractor | None = None) -> SpikingTD3Actor:
        kwargs = self._update_features_extractor(self.actor_kwargs, features_extractor)
        return SpikingTD3Actor(**kwargs, spiking=self.spiking).to(self.device)


class SpikingSACActor(SACActor):
    """SB3's actor of SAC: the mean from a ``SpikingActor`` (``mu``), the spread from an ordinary network."""

    def __init__(self, *, net_arch: list[int], spiking: dict[str, Any], **kwargs: Any) -> None:
        if kwargs.get("use_sde"):
            raise ValueError("a spiking actor has no features for state-dependent exploration: leave use_sde=True out")
        super().__init__(net_arch=[], **kwargs)
        self.net_arch, self.spiking = net_arch, spiking
        size = get_action_dim(self.action_space)
        self.mu = SpikingActor(self.features_dim, size, hidden=net_arch, **spiking)
        self.log_std = log_std_network(self.features_dim, size)  # type: ignore[assignment]
        self._norms = [module for module in self.mu.modules() if isinstance(module, Norm)]

    def _get_constructor_parameters(self) -> dict[str, Any]:
        return {**super()._get_constructor_parameters(), "spiking": self.spiking}

    def get_action_dist_params(self, obs: PyTorchObs) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        features = self.extract_features(obs, self.features_extractor)
        # SB3 asks for the target's next actions in training mode too, without gradients: nothing is learnt from those
        for_target = self.training and not torch.is_grad_enabled()
        with moving_statistics(self._norms) if for_target else nullcontext():
            mean = self.mu.potential(features)  # type: ignore[operator]
        log_std: Tensor = self.log_std(features)  # type: ignore[operator]
        return mean, log_std.clamp(*LOG_STD_RANGE), {}


class SpikingSACPolicy(_SpikingPolicy, SACPolicy):
    """For ``SAC``: a spiking mean beside SB3's own critics."""

    made_for = "SAC"

    def make_actor(self, features_extractor: BaseFeaturesExtractor | None = None) -> SpikingSACActor:
        kwargs = self._update_features_extractor(self.actor_kwargs, features_extractor)
        return SpikingSACActor(**kwargs, spiking=self.spiking).to(self.device)


class SpikingDQNNetwork(QNetwork):
    """SB3's Q-network, spiking; ``q_net`` is a ``SpikingQNetwork``. Bytes that are no image are divided by 255."""

    def __init__(self, *, net_arch: list[int], spiking: dict[str, Any], **kwargs: Any) -> None:
        super().__init__(net_arch=[], **kwargs)
        self.net_arch, self.spiking = net_arch, spiking
        self.q_net = SpikingQNetwork(  # type: ignore[assignment]
            self.features_dim, int(self.action_space.n), hidden=net_arch, **spiking
        )
        space = self.observation_space
        self._bytes = space.dtype == "uint8" and not is_image_space(space) and not spiking.get("raw_bytes")

    def _get_constructor_parameters(self) -> dict[str, Any]:
        return {**super()._get_constructor_parameters(), "spiking": self.spiking}

    def extract_features(self, obs: PyTorchObs, features_extractor: BaseFeaturesExtractor) -> Tensor:
        features = super().extract_features(obs, features_extractor)
        return features / 255 if self._bytes else features


class SpikingDQNPolicy(_SpikingPolicy, DQNPolicy):
    """For ``DQN``: a spiking Q-network."""

    network = SpikingQNetwork
    made_for = "DQN"
    acts_in = spaces.Discrete

    def make_q_net(self) -> SpikingDQNNetwork:
        kwargs = self._update_features_extractor(self.net_args, features_extractor=None)
        return SpikingDQNNetwork(**kwargs, spiking=self.spiking).to(self.device)


def _acting(model: Any) -> Any:
    """The network of a model that acts."""
    network = getattr(model, "actor", None) or getattr(model, "q_net", None)
    if network is None:
        raise ValueError(
            f"a {type(model).__name__} has no actor and no Q-network of its own; use TD3, DDPG, SAC or DQN"
        )
    return network


class RecalibrateCallback(BaseCallback):
    """Exact moving statistics of what acts, from replay: every ``interval`` environment steps, and at the end.

    Before an ``EvalCallback`` in the list of callbacks, and as often, it acts just before each evaluation, as in the
    paper. Batches are as large as the model's own. Works for any normaliser, torch's own too.
    """

    def __init__(self, interval: int = 5000, batches: int = 100, verbose: int = 0) -> None:
        if not all(isinstance(count, Integral) and count >= 1 for count in (interval, batches)):
            raise ValueError(
                f"interval and batches must be whole numbers of at least 1, got {interval!r:.40} and {batches!r:.40}; "
                "learn() takes a callback that was made: RecalibrateCallback()"
            )
        super().__init__(verbose)
        self.interval, self.batches = interval, batches
        self._passed = 0  # multiples of the interval

    def _on_training_start(self) -> None:
        self._passed = self.model.num_timesteps // self.interval
        if not any(hasattr(module, "running_mean") for module in _acting(self.model).modules()):
            raise ValueError("RecalibrateCallback has nothing to do: the network that acts has no normaliser")

    def _on_step(self) -> bool:
        passed = self.model.num_timesteps // self.interval  # in steps of as many as there are environments
        if passed > self._passed:
            self._passed = passed
            self._recalibrate()
        return True

    def _on_training_end(self) -> None:
        self._recalibrate()

    def _recalibrate(self) -> None:
        model: Any = self.model
        assert isinstance(model, OffPolicyAlgorithm)
        if model._n_updates == 0:
            return  # the start is not to be described by what was random
        sample = model.replay_buffer.sample  # type: ignore[union-attr]
        normalised = model._vec_normalize_env
        recalibrate(
            _acting(model),
            (sample(model.batch_size, env=normalised).observations for _ in range(self.batches)),
            forward=lambda network, obs: network._predict(obs, deterministic=True),  # type: ignore[operator]
        )


def deployable(model: Any) -> SpikingActor | SpikingQNetwork:
    """A copy of what acts, from the environment's observations to its own actions, for ``carebn.export`` and others.

    (SB3's actor gives actions in [−1, 1], which ``predict`` scales.)
    """
    network = _acting(model)
    space, actions = network.observation_space, network.action_space
    if not isinstance(network, (SpikingTD3Actor, SpikingSACActor, SpikingDQNNetwork)):
        raise ValueError(f"expected a model with a spiking policy, got one with a {type(network).__name__}")
    if not isinstance(network.features_extractor, FlattenExtractor) or not isinstance(space, spaces.Box):
        raise ValueError(
            f"a network of its own before the spiking one, or observations as {space}, cannot be taken along"
        )
    if model.get_vec_normalize_env() is not None and model.get_vec_normalize_env().norm_obs:
        raise ValueError(
            "VecNormalize changes the observations outside of the network: train without norm_obs to export"
        )
    inner = deepcopy(network.q_net if isinstance(network, SpikingDQNNetwork) else network.mu).eval()
    if isinstance(inner, SpikingActor):
        low, high = torch.from_numpy(actions.low.flatten()), torch.from_numpy(actions.high.flatten())
        inner.bounds = ActionBounds(len(low), low, high).to(network.device)
    assert isinstance(inner, (SpikingActor, SpikingQNetwork))
    return inner
