"""``policy.safetensors``: the tensors of a policy, and a checksum of them in the file's own metadata."""

import hashlib
import warnings
from pathlib import Path

import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from carebn.errors import CarebnWarning
from carebn.reading import regular_file

NAME = "policy.safetensors"
CHECKSUM = "sha256"  # the only entry of the metadata: with more, their order in the file would not be fixed
FORMAT = "carebn_format"  # an entry that files have from format 2 on
THIS_FORMAT = "1"


class NoChecksum(CarebnWarning):
    """A policy written by an earlier version."""


def digest(tensors: dict[str, Tensor]) -> str:
    """SHA-256 over names, types, shapes and bytes, whatever the order and the layout of the file."""
    sha = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        values = tensor.detach().cpu().contiguous()
        sha.update(f"{name} {values.dtype} {list(values.shape)}\n".encode())
        sha.update(values.reshape(-1).view(torch.uint8).numpy().data)
    return sha.hexdigest()


def policy_bytes(tensors: dict[str, Tensor]) -> bytes:
    whole = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    return safetensors.torch.save(whole, metadata={CHECKSUM: digest(whole)})


def check_format(path: Path, number: str) -> None:
    """Refuse a file that a later version has written in another way."""
    if number != THIS_FORMAT:
        raise ValueError(
            f"{path} is a policy in format {number[:20]}, and this version of carebn reads format {THIS_FORMAT}; use a "
            f"version that reads it: the run's versions.json names the one that wrote it"
        )


def read_policy(directory: Path, remedy: str, name: str = NAME) -> dict[str, Tensor]:
    """The tensors, as they were written; ``remedy`` is what to do if they are not."""
    path = directory / name
    try:
        with safe_open(regular_file(path), framework="pt") as file:
            about = file.metadata() or {}
            check_format(path, about.get(FORMAT, THIS_FORMAT))
            expected = about.get(CHECKSUM)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # no mapping
    except FileNotFoundError:
        raise ValueError(f"{directory} has no policy yet: its first checkpoint is still to come") from None
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror or error}); {remedy}") from error
    except SafetensorError as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"{path} does not hold this run's policy: {reason}; {remedy}") from error
    if expected is not None and digest(tensors) != expected:
        raise ValueError(f"{path} is damaged: its contents do not match their checksum; {remedy}")
    if expected is None:
        text = (
            f"{path} has no checksum, so damage to it would not be noticed; {remedy.replace('restores it', 'adds one')}"
        )
        warnings.warn(text, NoChecksum, stacklevel=3)
    return tensors
