"""The way of a run to the Hugging Face Hub: put together in a directory, which is what is uploaded."""

import importlib
import re
from pathlib import Path
from typing import Any

from carebn.errors import LONGEST
from carebn.training.files import write_file
from carebn.training.worlds import Trust
from carebn.zoo.card import NAME as CARD
from carebn.zoo.card import card
from carebn.zoo.keeping import copy_whole, keep
from carebn.zoo.record import make_record, record_of

PART = r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?"
REPOSITORY = re.compile(rf"{PART}/{PART}")
LONGEST_NAME = 96  # of a repository
README = "README.md"  # where the Hub looks for a card


def check_repository(repository: str) -> None:
    """Before anything is measured; the Hub has the last word."""
    name = repository.partition("/")[2]
    well_formed = REPOSITORY.fullmatch(repository) and len(name) <= LONGEST_NAME
    if not well_formed or "--" in repository or ".." in repository or repository.endswith(".git"):
        raise ValueError(
            f"{repository[:LONGEST]!r} is no repository of the Hugging Face Hub: expected OWNER/NAME, of letters, "
            f"digits, -, _ and ., as in somebody/hopper-care"
        )


def find_hub() -> Any:
    """The library, with a token to upload with."""
    try:
        hub = importlib.import_module("huggingface_hub")
    except ModuleNotFoundError as error:
        if error.name != "huggingface_hub":
            raise
        raise ValueError("carebn push needs huggingface_hub: pip install huggingface_hub") from None
    if not hub.get_token():
        raise ValueError(
            "there is no token for the Hugging Face Hub on this machine: hf auth login stores one, or put one that may "
            "write into the environment variable HF_TOKEN"
        )
    return hub


def put_together(
    run_dir: Path,
    place: Path,
    repository: str,
    *,
    episodes: int | None = None,
    whole: bool = False,
    trust: Trust = False,
) -> None:
    """Fill the empty directory ``place`` with what is uploaded. Copied first: what cannot be is not measured."""
    (copy_whole if whole else keep)(run_dir, place, trust)
    record, _ = record_of(run_dir, episodes=episodes, trust=trust)
    make_record(place, record["seeds"], record, episodes=record["measured"]["return"]["episodes"], trust=trust)
    text = card(place, record, repository.partition("/")[2], repository, trust)
    for name in (README, CARD):  # the Hub looks for the one, carebn writes the other
        write_file(place / name, text.encode())


def upload(hub: Any, folder: Path, repository: str, private: bool) -> str:
    """Where it can be looked at; what is in the repository and not in the folder stays there."""
    try:
        where = hub.create_repo(repository, private=private, exist_ok=True)
        hub.upload_folder(repo_id=repository, folder_path=folder, commit_message="Upload a policy with its card")
    except Exception as error:  # it has many kinds, from several libraries and versions
        reason = " ".join(str(error).split())[:LONGEST] or type(error).__name__
        raise ValueError(f"the Hugging Face Hub did not take {repository}: {reason}") from error
    return str(where)
