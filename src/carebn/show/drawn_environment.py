"""The environment as pictures, on a machine without a screen."""

import os
import subprocess
import sys
import warnings
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from carebn.training.environment import Env
from carebn.training.worlds import MakeEnv

Picture = NDArray[np.uint8]  # [height, width, 3]

BACKENDS = ("egl", "osmesa", "glfw")  # the last one needs a screen
ATARI_HERTZ = 60


def working_backend(candidates: Sequence[str] = BACKENDS) -> str | None:
    """A way in which MuJoCo can draw here. Each is tried in a process of its own: a failure cannot be undone."""
    for name in candidates:
        trial = f"from mujoco.{name} import GLContext; context = GLContext(8, 8); context.make_current()"
        done = subprocess.run(
            [sys.executable, "-P", "-c", trial], env={**os.environ, "MUJOCO_GL": name}, capture_output=True, check=False
        )
        if done.returncode == 0:
            return name
    return None


def _prepare_mujoco() -> None:
    chosen = os.environ.get("MUJOCO_GL")
    if chosen:
        if chosen not in BACKENDS or working_backend([chosen]) is None:
            raise ValueError(
                f"MuJoCo cannot draw with MUJOCO_GL={chosen}; unset it, and what works is found ({', '.join(BACKENDS)})"
            )
        return
    backend = working_backend()
    if backend is None:
        raise ValueError(
            "MuJoCo cannot draw on this machine, because neither EGL nor OSMesa works; install one of them, on Debian "
            "or Ubuntu by: apt-get install libegl1 libgl1-mesa-dri (or libosmesa6)"
        )
    os.environ["MUJOCO_GL"] = backend


def is_mujoco(env_id: str) -> bool:
    spec = gym.registry.get(env_id)
    return spec is not None and str(spec.entry_point).startswith("gymnasium.envs.mujoco")


class DrawnEnvironment:
    """An environment that can be looked at. ``rate``: decisions per second of its time; None if it does not say.

    ``fine``: MuJoCo's shadows, reflections and smooth edges, which take ten times as long without a graphics card.
    """

    def __init__(self, env_id: str, make: MakeEnv, size: int, fine: bool = False) -> None:
        self.env_id = env_id
        options: dict[str, Any] = {"render_mode": "rgb_array"}
        if is_mujoco(env_id):
            _prepare_mujoco()
            options |= {"width": size, "height": size}
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", ".*possible render_modes", UserWarning)  # what fails is told below
                self.env: Env = make(**options)
        except ValueError as error:
            if "'render_mode'" in str(error) or "takes no arguments" in str(error):
                raise ValueError(
                    f"{env_id} cannot be drawn: its class takes no render_mode; let it take render_mode='rgb_array', "
                    f"and its render() return the picture"
                ) from error
            raise ValueError(f"{env_id} cannot be drawn: {error}") from error
        if is_mujoco(env_id) and not fine:
            model: Any = getattr(self.env.unwrapped, "model")  # noqa: B009  # not every environment has one
            model.light_castshadow[:] = 0
            model.mat_reflectance[:] = 0
            model.vis.quality.offsamples = 0
        self.rate = self._rate()

    def _rate(self) -> float | None:
        frameskip = getattr(self.env.unwrapped, "_frameskip", None)
        if self.env_id.startswith("ALE/") and isinstance(frameskip, int):
            return ATARI_HERTZ / frameskip  # what the metadata say is not the speed of the game
        rate = self.env.metadata.get("render_fps")
        return float(rate) if rate else None

    def look(self) -> Picture:
        try:
            picture: Any = self.env.render()
        except NotImplementedError as error:
            raise ValueError(f"{self.env_id} cannot be drawn: its class has no render() that makes pictures") from error
        except Exception as error:  # of any library that draws
            reason = str(error).strip().splitlines() or [type(error).__name__]
            raise ValueError(f"{self.env_id} cannot be drawn: {reason[0]}") from error
        if not isinstance(picture, np.ndarray) or picture.ndim != 3 or picture.shape[2] != 3:
            raise ValueError(f"{self.env_id} cannot be drawn: its render() gave no picture")
        return np.ascontiguousarray(picture, dtype=np.uint8)
