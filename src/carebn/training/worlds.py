"""The environment of a run: made from its configuration, or by what Python handed over; with the user's word only.

A configuration may name modules (``import_modules``, ``wrappers``, ``module:Id-v0``). Importing one runs its code, so a
configuration that was read from a file names them and nothing more: they are imported if the user said so.
"""

import copy
from collections.abc import Callable, Collection
from typing import Any

import gymnasium as gym

from carebn.training.config import TrainConfig
from carebn.training.env_kwargs import check
from carebn.training.environment import Env, import_own, make_env
from carebn.training.flat import with_flat_spaces

MakeEnv = Callable[..., Env]
Trust = bool | Collection[str]  # the user's word: for everything, for nothing, or for these modules

OWN = "python:"  # begins the name of an environment that was given as an object
HARMLESS = "gymnasium.wrappers"  # part of what is imported anyway


class NeedsWord(ValueError):  # noqa: N818  # nothing is wrong, only not agreed to
    """The environment cannot be made without something that only the user can give."""


def modules_of(config: TrainConfig) -> tuple[str, ...]:
    """Every module that making the environment would import by name."""
    named = [*config.import_modules, *(wrapper.partition(":")[0] for wrapper in config.wrappers)]
    if ":" in config.env_id and not config.env_id.startswith(OWN):
        named.append(config.env_id.partition(":")[0])
    return tuple(name for name in dict.fromkeys(named) if name != HARMLESS)


def untrusted_modules(config: TrainConfig, trust: Trust) -> tuple[str, ...]:
    """Modules for which the user's word is missing."""
    if isinstance(trust, bool):
        return () if trust else modules_of(config)
    return tuple(name for name in modules_of(config) if name not in trust)


def require_trust(config: TrainConfig, trust: Trust) -> None:
    """Refuse, in one sentence that says what to type, to import what the user has not agreed to."""
    missing = untrusted_modules(config, trust)
    if missing:
        all_of_them = " ".join(modules_of(config))
        raise NeedsWord(
            f"{config.env_id} needs code of its own: the run's config.json names {_list(missing)}, and nothing is "
            f"imported on the word of a file; if you trust it, add --import {all_of_them}, or --trust "
            f"(in Python: trust=True)"
        )


def env_of(config: TrainConfig, trust: Trust, **options: Any) -> Env:
    """The environment, with its wrappers, flat observations and actions from zero."""
    if config.env_id.startswith(OWN):
        name = config.env_id.removeprefix(OWN)
        raise NeedsWord(
            f"this run's environment, {name}, was given to carebn as a Python object, so it has to be given again: "
            f"carebn.load(run).evaluate(env=...) or carebn.train(env, run_dir=run)"
        )
    require_trust(config, trust)
    given = () if isinstance(trust, bool) else tuple(trust)
    env = make_env(config.env_id, (*given, *config.import_modules), **{**config.env_kwargs, **options})
    for name in config.wrappers:
        env = _wrapped(env, name)
    return with_flat_spaces(env, config.env_id)


def given_env(env: Env | Callable[[], Env]) -> MakeEnv:
    """What makes an environment that Python handed over: the function itself, or copies of the instance."""
    if isinstance(env, gym.Env):
        _copied(env)  # what cannot be copied is told before anything else is done
    elif not callable(env):
        kind = type(env).__name__
        raise ValueError(f"env must be an id, a gymnasium environment or a function that makes one, got a {kind}")

    def make(**options: Any) -> Env:
        if options:
            raise ValueError("an environment that was given as an object cannot be made with other options")
        made = _copied(env) if isinstance(env, gym.Env) else env()
        if not isinstance(made, gym.Env):
            raise ValueError(f"env gave a {type(made).__name__}, not a gymnasium environment")
        return with_flat_spaces(made, name_of(made))

    return make


def name_of(env: Env) -> str:
    return f"{OWN}{env.spec.id if env.spec is not None else type(env.unwrapped).__name__}"


def id_and_arguments(env: Env) -> tuple[str, dict[str, Any]] | None:
    """Id and arguments of an environment that gymnasium.make alone has made, and would make the same; else None."""
    spec = env.spec
    if spec is None or spec.additional_wrappers or spec.id not in gym.registry:
        return None
    arguments = {name: value for name, value in spec.kwargs.items() if name != "render_mode"}
    if spec.max_episode_steps != gym.registry[spec.id].max_episode_steps:
        arguments["max_episode_steps"] = spec.max_episode_steps
    try:
        check(arguments)
        made = make_env(spec.id, **arguments)
    except ValueError:
        return None
    made.close()
    same = str(made) == str(env) and (made.observation_space, made.action_space) == (
        env.observation_space,
        env.action_space,
    )
    return (spec.id, arguments) if same else None


def _copied(env: Env) -> Env:
    try:
        return copy.deepcopy(env)
    except Exception as error:  # whatever it holds: a window, a socket, a C object
        raise ValueError(
            f"{env} cannot be copied ({type(error).__name__}: {error}), and a run needs several of it; give a function "
            f"that makes one instead"
        ) from error


def _wrapped(env: Env, name: str) -> Env:
    module, _, attribute = name.partition(":")
    wrapper = getattr(import_own(module, "--wrapper"), attribute, None)
    if not callable(wrapper):
        raise ValueError(f"--wrapper {name}: module {module!r} has no class {attribute!r}")
    try:
        made = wrapper(env)
    except Exception as error:  # whatever such a class does wrong
        raise ValueError(f"--wrapper {name} cannot wrap {env}: {type(error).__name__}: {error}") from error
    if not isinstance(made, gym.Env):
        raise ValueError(f"--wrapper {name} gave a {type(made).__name__}, not a gymnasium environment")
    return made


def _list(names: tuple[str, ...]) -> str:
    return ("module " if len(names) == 1 else "modules ") + ", ".join(names)
