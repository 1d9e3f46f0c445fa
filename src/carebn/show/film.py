"""Films: frames in, an MP4 or a GIF out, complete or not at all."""

import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from imageio_ffmpeg import get_ffmpeg_exe

from carebn.errors import unknown_name
from carebn.show.drawn_environment import Picture
from carebn.show.outputs import writable_file
from carebn.training.files import flush_directory


class Timing(NamedTuple):
    """``every``: of so many decisions one becomes a frame."""

    every: int
    fps: float


def _mp4_timing(rate: float) -> Timing:
    every = max(1, -(-rate // 50))
    return Timing(int(every), rate / every)


def _gif_timing(rate: float) -> Timing:
    """A GIF counts in hundredths of a second."""
    every = max(1, -(-rate // 25))
    return Timing(int(every), 100 / max(4, round(100 * every / rate)))


# A palette for every frame; no dithering, which would put false spikes into a raster.
GIF_COLOURS = "split[a][b];[a]palettegen=stats_mode=single[p];[b][p]paletteuse=new=1:dither=none"


class Format(NamedTuple):
    size: tuple[int, int]
    timing: Callable[[float], Timing]  # of a number of decisions per second
    options: str  # of ffmpeg
    seconds: float  # longest film, where nobody says


FORMATS = {
    ".mp4": Format(
        (1920, 1080),
        _mp4_timing,
        # yuv420p is what every player and browser shows
        "-c:v libx264 -pix_fmt yuv420p -crf 20 -preset veryfast -movflags +faststart -f mp4",
        60.0,
    ),
    ".gif": Format(
        (1280, 720),
        _gif_timing,
        f"-c:v gif -pix_fmt pal8 -lavfi {GIF_COLOURS} -loop 0 -f gif",
        10.0,  # it takes about a megabyte a second
    ),
}


def format_of(path: Path) -> Format:
    if path.suffix.lower() not in FORMATS:
        raise ValueError(unknown_name("film format", path.suffix or path.name, FORMATS))
    return FORMATS[path.suffix.lower()]


class Film:
    """``with Film(path, fps) as film: film.add(frame)``. The file appears when the film is complete."""

    def __init__(self, path: Path, fps: float, size: tuple[int, int]) -> None:
        options = format_of(path).options.split()
        self.path = writable_file(path)
        self.hidden = path.with_name(f".{path.name}.part")
        self.frames = 0
        frames = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{size[0]}x{size[1]}", "-r", str(fps), "-i", "-"]
        self._words = ["-y", "-v", "error", *frames, "-an", *options, str(self.hidden)]

    def __enter__(self) -> Self:
        try:
            program = get_ffmpeg_exe()
        except RuntimeError as error:  # there is no program for this machine in the package
            raise ValueError(f"a film needs the program ffmpeg: {error}") from error
        self._complaints = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            [program, *self._words],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._complaints,
            start_new_session=True,  # a Ctrl-C in the terminal is for us; we end it
        )
        return self

    def add(self, frame: Picture) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(frame.tobytes())
        except OSError as error:
            self._process.wait()
            raise self._failed() from error
        self.frames += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._process.communicate()
                if self._process.returncode:
                    raise self._failed()
                os.replace(self.hidden, self.path)
                flush_directory(self.path.parent)
        finally:
            self._process.kill()  # a stop may come in the middle of a frame, which it would complain about
            self._process.communicate()
            self._complaints.close()
            self.hidden.unlink(missing_ok=True)

    def _failed(self) -> OSError:
        self._complaints.seek(0)
        lines = self._complaints.read().decode(errors="replace").split("\n")
        reason = next((line.strip() for line in lines if line.strip()), "is the disk full?")
        return OSError(f"ffmpeg stopped, so {self.path} could not be written ({reason})")
