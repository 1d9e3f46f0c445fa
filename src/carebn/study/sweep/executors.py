"""Where runs may be carried out, by name."""

from collections.abc import Callable

from carebn.study.sweep.local_processes import LocalExecutor
from carebn.study.sweep.place import Executor, Place
from carebn.study.sweep.ray_cluster import RayExecutor
from carebn.study.sweep.slurm import SlurmExecutor

EXECUTORS: dict[str, Callable[[Place], Executor]] = {
    "local": LocalExecutor,
    "ray": RayExecutor,
    "slurm": SlurmExecutor,
}
