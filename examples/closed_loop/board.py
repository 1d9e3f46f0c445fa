"""A policy in whole numbers as a process of its own: built from its C file, asked over a pipe or a serial line."""

import os
import re
import select
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

HERE = Path(__file__).parent
PATIENCE = 120  # seconds without a word
WINDOW = 64  # observations that are sent before their answers are read: what a serial port's buffers take


class Board(NamedTuple):
    """How a program is built and run, and how long a tick of its clock is, in instructions."""

    gcc: str
    flags: tuple[str, ...]
    link: tuple[str, ...]
    main: str
    qemu: tuple[str, ...]
    counting: tuple[str, ...] = ()  # for QEMU, so that its clock counts instructions
    tick: float = 0.0

    def missing(self):
        return [tool for tool in (self.gcc, *self.qemu[:1]) if shutil.which(tool) is None]


BOARDS = {
    "computer": Board("gcc", ("-O2",), (), "computer.c", ()),
    # with 64 ns for an instruction and a tick of 40 ns (25 MHz), 1.6 ticks are an instruction
    "cortex-m4": Board(
        "arm-none-eabi-gcc",
        ("-O2", "-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=soft", "-ffreestanding", "-fno-pic"),
        ("-nostdlib", "-T", "cortex_m4.ld"),
        "cortex_m4.c",
        ("qemu-system-arm", "-M", "mps2-an386"),
        ("-icount", "shift=6"),
        40 / 64,
    ),
    "riscv32": Board(
        "riscv64-unknown-elf-gcc",
        ("-O2", "-march=rv32imac", "-mabi=ilp32", "-mcmodel=medany", "-ffreestanding"),
        ("-nostdlib", "-Wl,--no-relax", "-T", "riscv32.ld"),
        "riscv32.c",
        ("qemu-system-riscv32", "-M", "virt", "-bios", "none"),
        ("-icount", "shift=0"),
        1.0,
    ),
}
STRICT = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-fstack-usage")


class Built:
    """A policy's C file (with its header beside it) as a program for a board."""

    def __init__(self, source: Path, board: str) -> None:
        self.board = BOARDS[board]
        if self.board.missing():
            raise ValueError(f"{board} needs {' and '.join(self.board.missing())}")
        self._directory = tempfile.TemporaryDirectory(prefix="carebn-board-")
        self.path = Path(self._directory.name)
        shutil.copy(source, self.path / "policy.c")
        shutil.copy(source.with_suffix(".h"), self.path / "policy.h")
        for file in ("serve.c", self.board.main, *[word for word in self.board.link if word.endswith(".ld")]):
            shutil.copy(HERE / file, self.path)
        text = (self.path / "policy.h").read_text()
        self.observations, self.results = (
            int(re.search(rf"^#define POLICY_{name} (\d+)$", text, re.MULTILINE)[1])
            for name in ("OBSERVATIONS", "(?:ACTIONS|VALUES)")
        )
        more = ["-DPOLICY_BYTES"] * ("const uint8_t observation" in text)
        for name in ("policy", "serve", self.board.main.removesuffix(".c")):
            dialect = STRICT if name == "policy" else ("-std=gnu99", "-Wall")
            self._run(self.board.gcc, *dialect, *self.board.flags, *more, "-c", f"{name}.c", "-o", f"{name}.o")
        objects = [f"{name}.o" for name in ("policy", "serve", self.board.main.removesuffix(".c"))]
        library = ["-lgcc"] * bool(self.board.link)
        self._run(self.board.gcc, *self.board.flags, *self.board.link, *objects, "-o", "program", *library)

    def _run(self, *words: str) -> str:
        done = subprocess.run(words, cwd=self.path, capture_output=True, text=True)
        if done.returncode:
            raise ValueError(f"{' '.join(words)}: {done.stderr.strip()}")
        return done.stdout

    def tool(self, name: str, *words: str) -> str:
        """nm, objdump or size of the same family."""
        return self._run(self.board.gcc.removesuffix("gcc") + name, *words)

    def frames(self) -> dict[str, int]:
        """Bytes on the stack for each function of the policy, as the compiler states them; all are static."""
        found = {}
        for line in (self.path / "policy.su").read_text().splitlines():
            place, size, kind = line.split("\t")
            if kind != "static":
                raise ValueError(f"the stack of {place} is {kind}")
            found[place.split(":")[-1]] = int(size)
        return found

    def start(self, counting: bool = False) -> "Line":
        words = [str(self.path / "program")]
        if self.board.qemu:
            quiet = ("-display", "none", "-monitor", "none", "-serial", "stdio")
            words = [*self.board.qemu, *quiet, *(self.board.counting if counting else ()), "-kernel", *words]
        return Line(self, words)


def drawn(count: int, size: int, seed: int) -> np.ndarray:
    """The observations that serve.c draws, of every size."""
    place = np.arange(count * size, dtype=np.uint64) + seed

    def mixed(place: np.ndarray) -> np.ndarray:
        z = place * 0x9E3779B9 & 0xFFFFFFFF
        z = (z ^ z >> 16) * 0x85EBCA6B & 0xFFFFFFFF
        z = (z ^ z >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
        return z ^ z >> 16

    number = mixed(2 * place).astype(np.uint32).astype(np.int32).astype(np.int64)
    bits = (mixed(2 * place + 1) % 24).astype(np.int64)
    return (np.sign(number) * (np.abs(number) >> bits)).reshape(count, size)


class Line:
    """A program that runs, and is asked."""

    def __init__(self, built: Built, words: list[str]) -> None:
        self._built = built
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def __enter__(self) -> "Line":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            stream.close()

    def decide(self, fixed: np.ndarray, what: bytes = b"a") -> np.ndarray:
        """[n, results + 1 (+ 1)] for whole numbers [n, observations]: command, code, and with ``i`` the ticks."""
        width = self._built.results + 1 + (what == b"i")
        found = []
        for i in range(0, len(fixed), WINDOW):
            rows = fixed[i : i + WINDOW].astype("<i4")
            self._process.stdin.write(b"".join(what + row.tobytes() for row in rows))
            self._process.stdin.flush()
            found.append(np.frombuffer(self._answer(4 * width * len(rows)), "<i4").reshape(len(rows), width))
        return np.concatenate(found).astype(np.int64)

    def decide_drawn(self, count: int, seed: int) -> np.ndarray:
        """[count, results + 1] for observations that the program draws itself: ``drawn`` gives the same."""
        self._process.stdin.write(b"r" + np.array([count, seed], "<i4").tobytes())
        self._process.stdin.flush()
        width = self._built.results + 1
        return np.frombuffer(self._answer(4 * width * count), "<i4").reshape(count, width).astype(np.int64)

    def stack_used(self) -> int:
        self._process.stdin.write(b"s")
        self._process.stdin.flush()
        return int.from_bytes(self._answer(4), "little")

    def _answer(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            ready, _, _ = select.select([self._process.stdout], [], [], PATIENCE)
            if not ready:
                raise ValueError(f"the program has not answered for {PATIENCE} s")
            part = os.read(self._process.stdout.fileno(), size - len(data))
            if not part:
                raise ValueError(
                    f"the program has ended: {self._process.stderr.read().decode(errors='replace').strip()}"
                )
            data += part
        return data
