"""The directory that a command finds itself in: trained runs, alien files, pipes, devices, full disks."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from .damage import ALIEN_JSON, make_node, picture

TINY = {
    "--total-timesteps": ["30"], "--learning-starts": ["20"], "--hidden": ["8"], "--batch-size": ["8"],
    "--eval-episodes": ["1"], "--eval-interval": ["30"], "--recalibration-batches": ["2"],
    "--checkpoint-interval": ["15"],
}  # fmt: skip
RUNS = {
    "td3": {"--env-id": ["InvertedPendulum-v4"], "--measure": ["wasserstein"]},
    "dqn": {"--env-id": ["CartPole-v1"], "--algo": ["dqn"]},
    "sac": {"--env-id": ["InvertedPendulum-v4"], "--algo": ["sac"], "--method": ["vanilla"]},
    "ann": {"--env-id": ["InvertedPendulum-v4"], "--method": ["ann"]},
    "crpi": {"--env-id": ["InvertedPendulum-v4"], "--method": ["crpi"]},
}  # fmt: skip
LONG = "n" * 300


def words_of(options: dict[str, list[str]]) -> list[str]:
    return [word for flag, values in options.items() for word in (flag, *values)]


class Template:
    """Runs trained once by the real command; every case gets a copy."""

    def __init__(self, root: Path, names: Sequence[str] = tuple(RUNS)) -> None:
        self.root = root
        self.names = names
        self.runs = root / "template"
        for name in names:
            if (self.runs / name).exists():  # of an earlier session
                continue
            words = ["train", *words_of(TINY | RUNS[name]), "--quiet", "--run-dir", str(self.runs / name)]
            subprocess.run([sys.executable, "-m", "carebn", *words], check=True, capture_output=True, text=True)
        self.full = self._mounted("full", "size=32k")
        self.read_only = self._mounted("read-only", "size=32k,ro")

    def _mounted(self, name: str, options: str) -> Path:
        """A small file system of its own, where that is allowed; else a plain directory."""
        place = self.root / name
        place.mkdir(exist_ok=True)
        command = ["mount", "-t", "tmpfs", "-o", options, "none", str(place)]
        if shutil.which("mount") and hasattr(os, "geteuid") and os.geteuid() == 0:
            subprocess.run(command, check=False, capture_output=True)
        return place

    def close(self) -> None:
        for place in (self.full, self.read_only):
            if place.is_mount():
                subprocess.run(["umount", "--lazy", str(place)], check=False)

    def world(self, name: str) -> Path:
        """A fresh world to do one command in."""
        here = self.root / name
        shutil.rmtree(here, ignore_errors=True)
        here.mkdir()
        shutil.copytree(self.runs, here / "runs")
        self._fill()
        (here / "full").symlink_to(self.full)
        (here / "read-only").symlink_to(self.read_only)
        (here / "empty").touch()
        (here / "picture.png").write_bytes(picture())
        (here / "text.txt").write_text("to be or not to be\n")
        (here / "crowded").mkdir()
        (here / "crowded" / "letter.txt").write_text("dear reader\n")
        (here / "directory").mkdir()
        (here / "[/bold] {0} %s").mkdir(parents=True)
        for kind in ("array", "deep", "other"):
            (here / f"{kind}.json").write_text(ALIEN_JSON[kind])
        os.mkfifo(here / "pipe")
        os.mkfifo(here / "pipe.png")
        os.mkfifo(here / "pipe.mp4")
        make_node(here / "zero", 5)
        make_node(here / "full-device", 7)
        make_node(here / "null.png", 3)
        (here / "loop").symlink_to("loop")
        (here / "dangling").symlink_to("nowhere")
        (here / "module_that_fails.py").write_text("1 / 0\n")
        (here / "module_that_ends.py").write_text("raise SystemExit(3)\n")
        return here

    def _fill(self) -> None:
        """The full disk has room for a few kilobytes, and nothing of the case before."""
        if not self.full.is_mount():
            return
        for path in self.full.iterdir():
            if path.name != "filler":
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        if not (self.full / "filler").exists():
            (self.full / "filler").write_bytes(bytes(24 * 1024))


PATHS = (
    "absent", "absent/deeper/still", "empty", "picture.png", "text.txt", "crowded", "directory", "pipe", "pipe.png",
    "pipe.mp4", "zero", "full-device", "null.png", "loop", "dangling", "loop/inside", "text.txt/inside", "pipe/inside",
    "full", "full/x", "full/x.png", "full/x.mp4", "full/deeper/x.html", "read-only/x", "read-only/x.png", "read-only",
    "/proc/none/x", "/proc/self/x.png", "/sys/x", "", ".", "..", "~", "*", LONG, f"{LONG}.png",
    "d/" * 2500, "[/bold] {0} %s", "[/bold] {0} %s/x.png", "ünïcødé ☃.png", "\udcff.png", "\udcff", "new\nline.png",
    "x.PNG", "x.mp4", "x.gif", "x.pdf", "x.html", "x.", ".png", "runs", "runs/td3", "runs/dqn", "runs/sac", "runs/ann",
    "runs/crpi", "runs/td3/policy.safetensors", "runs/td3/config.json", "runs/td3/checkpoint", "runs/td3/x",
    "runs/td3/config.json/x", "array.json", "deep.json", "other.json", "con", "-", "--", "x" * 250 + ".png",
)  # fmt: skip
