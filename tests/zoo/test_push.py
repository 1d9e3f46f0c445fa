"""What goes to the Hugging Face Hub, tried against a folder: the network is never asked."""

import base64
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType

import pytest
from said import assert_one_sentence

import carebn as package

REPOSITORY = "somebody/pendulum-care"


@pytest.fixture
def hub(tmp_path, monkeypatch) -> Path:
    """A stand-in for the library, with a folder for its repositories."""
    place = tmp_path / "hub"
    module = ModuleType("huggingface_hub")
    private = []

    def create_repo(repository, *, private: bool, exist_ok: bool):
        assert exist_ok
        (place / repository).mkdir(parents=True, exist_ok=True)
        (place / "private").write_text(str(private))
        return f"https://huggingface.co/{repository}"

    def upload_folder(*, repo_id, folder_path, commit_message):
        assert commit_message
        shutil.copytree(folder_path, place / repo_id, dirs_exist_ok=True)

    module.get_token = lambda: "hf_of_a_test"
    module.create_repo, module.upload_folder, module.private = create_repo, upload_folder, private
    monkeypatch.setitem(sys.modules, "huggingface_hub", module)
    return place


def test_a_run_and_its_card_are_uploaded(carebn, runs, hub, contents) -> None:
    said = carebn("push", runs / "seed0", REPOSITORY, "--episodes", 3)
    assert said.code == 0, said.err
    assert said.out == f"uploaded: https://huggingface.co/{REPOSITORY}\n"
    there = contents(hub / REPOSITORY)
    assert sorted(there) == [
        "README.md", "card.json", "card.md", "checksums.json", "command.txt", "config.json", "kept.json",
        "metrics.jsonl", "policy.safetensors", "spaces.json", "versions.json",
    ]  # fmt: skip
    assert there["README.md"].startswith(b"---\nlibrary_name: carebn\n")
    assert f"hf download {REPOSITORY} --local-dir pendulum-care\ncarebn evaluate pendulum-care" in (
        there["README.md"].decode()
    )
    assert (hub / "private").read_text() == "False"
    assert carebn("push", runs / "seed0", REPOSITORY, "--private").code == 0
    assert (hub / "private").read_text() == "True"
    assert contents(hub / REPOSITORY) == there  # nothing was measured again


def test_what_was_pulled_opens_and_what_is_damaged_does_not(carebn, runs, hub, tmp_path) -> None:
    carebn("push", runs / "seed0", REPOSITORY, "--episodes", 3)
    pulled = Path(shutil.copytree(hub / REPOSITORY, tmp_path / "pendulum-care"))
    said = carebn("evaluate", "pendulum-care", "--episodes", 3)
    assert said.code == 0, said.err
    assert said.out == carebn("evaluate", runs / "seed0", "--episodes", 3).out
    data = bytearray((pulled / "policy.safetensors").read_bytes())
    data[-1] ^= 1
    (pulled / "policy.safetensors").write_bytes(data)
    said = carebn("evaluate", "pendulum-care")
    assert said.code == 1
    assert "is damaged: its contents do not match their checksum" in said.err


@pytest.mark.slow
def test_a_whole_run_goes_on_where_it_is_taken_to(carebn, runs, hub, tmp_path) -> None:
    (runs / "seed0" / "diary.txt").write_text("nobody's business")
    said = carebn("push", runs / "seed0", REPOSITORY, "--episodes", 2, "--whole")
    assert said.code == 0, said.err
    there = hub / REPOSITORY
    assert not (there / "diary.txt").exists()
    assert not (there / ".lock").exists()
    assert "goes on with it" in (there / "README.md").read_text()
    for place in (there, runs / "seed0"):
        said = carebn("train", "--run-dir", place, "--total-timesteps", 90, "--quiet")
        assert said.code == 0, said.err
    for name in ("policy.safetensors", "metrics.jsonl"):
        assert (there / name).read_bytes() == (runs / "seed0" / name).read_bytes()


def test_a_folder_shows_what_would_be_uploaded(carebn, runs, hub, tmp_path, contents, monkeypatch) -> None:
    assert carebn("push", runs / "seed0", REPOSITORY, "--episodes", 3).code == 0
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)  # which it does without
    said = carebn("push", runs / "seed0", REPOSITORY, "--folder", "there")
    assert said.code == 0, said.err
    assert contents(tmp_path / "there") == contents(hub / REPOSITORY)
    assert package.load(tmp_path / "there").config.seed == 0
    said = carebn("push", runs / "seed0", REPOSITORY, "--folder", "there")
    assert_one_sentence(said)
    assert "there is there already" in said.err


BAD = ["", "name", "a/b/c", "a b/c", "somebody/", "/x", "somebody/-x", "somebody/x.", "a/b--c", "a/b..c", "a/b.git"]


@pytest.mark.parametrize("name", [*BAD, f"a/{'b' * 97}", "../x", "a/ü", "x" * 5000], ids=lambda name: name[:12])
def test_a_bad_name_is_told_before_anything_else(carebn, hub, name) -> None:
    said = carebn("push", "nowhere/at/all", name)
    assert_one_sentence(said)
    assert "is no repository of the Hugging Face Hub: expected OWNER/NAME" in said.err
    assert len(said.err) < 1000


@pytest.mark.parametrize("name", ["a/b", "A_b/c-d.e_1", f"a/{'b' * 94}", "0/1", "_a/b_"])
def test_a_good_name_is_taken_here_as_there(name) -> None:
    from carebn.zoo.hub import check_repository

    check_repository(name)
    validators = pytest.importorskip("huggingface_hub.utils")
    validators.validate_repo_id(name)


def test_what_is_lacking_is_told_before_anything_is_measured(carebn, runs, hub, monkeypatch, contents) -> None:
    before = contents(runs)
    sys.modules["huggingface_hub"].get_token = lambda: None
    said = carebn("push", runs / "seed0", REPOSITORY)
    assert_one_sentence(said)
    assert "there is no token for the Hugging Face Hub on this machine: hf auth login stores one" in said.err
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    said = carebn("push", runs / "seed0", REPOSITORY)
    assert_one_sentence(said)
    assert "carebn push needs huggingface_hub: pip install huggingface_hub" in said.err
    assert contents(runs) == before


def test_what_the_hub_says_is_told(carebn, runs, hub) -> None:
    class HfHubHTTPError(Exception):
        pass

    def refuse(*words, **more):
        raise HfHubHTTPError("403 Forbidden:\n you may not write here" + 5000 * "!")

    sys.modules["huggingface_hub"].upload_folder = refuse
    said = carebn("push", runs / "seed0", REPOSITORY, "--episodes", 1)
    assert_one_sentence(said)
    assert f"the Hugging Face Hub did not take {REPOSITORY}: 403 Forbidden: you may not write here" in said.err
    assert len(said.err) < 1000


# --- the library itself, with a server of our own ---------------------------------------------------------------------


class Server(BaseHTTPRequestHandler):
    """As much of the Hub as an upload needs; repositories are folders."""

    place: Path

    def do_POST(self) -> None:  # its name there
        data = self.rfile.read(int(self.headers["Content-Length"] or 0))
        if self.path == "/api/repos/create":
            about = json.loads(data)
            self.answer({"url": f"https://huggingface.co/{about['organization']}/{about['name']}"})
        elif self.path == "/api/validate-yaml":
            self.answer({"errors": [], "warnings": []})
        elif self.path.endswith("/preupload/main"):
            files = [{"path": each["path"], "uploadMode": "regular"} for each in json.loads(data)["files"]]
            self.answer({"files": [each | {"shouldIgnore": False, "oid": None} for each in files]})
        elif self.path.endswith("/commit/main"):
            for line in map(json.loads, data.splitlines()):
                if line["key"] == "file":
                    path = self.place / line["value"]["path"]
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(base64.b64decode(line["value"]["content"]))
            self.answer(
                {"commitUrl": f"https://huggingface.co/{REPOSITORY}/commit/1", "commitOid": "1", "success": True}
            )
        else:
            self.answer({"error": f"not known: {self.path}"}, 404)

    def do_GET(self) -> None:
        self.answer({"id": REPOSITORY, "sha": "0" * 40, "siblings": []})

    def answer(self, data: object, code: int = 200) -> None:
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(data).encode())

    def log_message(self, *words: object) -> None:
        """Nothing to say."""


@pytest.fixture
def server(tmp_path) -> Iterator[str]:
    pytest.importorskip("huggingface_hub")
    Server.place = tmp_path / "served"
    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as serving:
        threading.Thread(target=serving.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{serving.server_port}"
        serving.shutdown()


def pushed(server: str, home: Path, *words: object, **variables: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own, because the library reads its variables when it is imported."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    environment |= {"HF_ENDPOINT": server, "HF_HOME": str(home), "HF_HUB_DISABLE_XET": "1", **variables}
    command = [sys.executable, "-m", "carebn", "push", *map(str, words)]
    return subprocess.run(command, env=environment, capture_output=True, text=True)


@pytest.mark.slow
def test_the_library_uploads_it(carebn, runs, server, tmp_path, contents) -> None:
    assert carebn("push", runs / "seed0", REPOSITORY, "--episodes", 2, "--folder", "there").code == 0
    done = pushed(server, tmp_path / "home", runs / "seed0", REPOSITORY, HF_TOKEN="hf_of_a_test")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("uploaded: ")
    assert contents(tmp_path / "served") == contents(tmp_path / "there")


@pytest.mark.slow
def test_the_library_has_no_token(runs, server, tmp_path) -> None:
    done = pushed(server, tmp_path / "home", runs / "seed0", REPOSITORY)
    assert done.returncode == 1
    assert done.stderr.startswith("carebn: there is no token for the Hugging Face Hub on this machine")
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
def test_the_library_cannot_reach_the_hub(runs, server, tmp_path) -> None:
    done = pushed("http://127.0.0.1:9", tmp_path / "home", runs / "seed0", REPOSITORY, "--episodes", 1, HF_TOKEN="hf_x")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(f"carebn: the Hugging Face Hub did not take {REPOSITORY}: ")
    assert "Traceback" not in done.stderr
