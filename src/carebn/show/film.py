"""Films: frames in, an MP4 or a GIF out, complete or not at all."""

import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from imageio_ffmpeg import write_frames

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
    options: dict[str, Any]  # of ffmpeg


FORMATS = {
    ".mp4": Format(
        (1920, 1080),
        _mp4_timing,
        {
            "codec": "libx264",
            "pix_fmt_out": "yuv420p",  # what every player and browser shows
            "output_params": ["-crf", "20", "-preset", "veryfast", "-movflags", "+faststart", "-f", "mp4"],
        },
    ),
    ".gif": Format(
        (1280, 720),
        _gif_timing,
        {
            "codec": "gif",
            "pix_fmt_out": "pal8",
            "output_params": ["-lavfi", GIF_COLOURS, "-loop", "0", "-f", "gif"],
        },
    ),
}


def format_of(path: Path) -> Format:
    if path.suffix.lower() not in FORMATS:
        raise ValueError(unknown_name("film format", path.suffix or path.name, FORMATS))
    return FORMATS[path.suffix.lower()]


class Film:
    """``with Film(path, fps) as film: film.add(frame)``. The file appears when the film is complete."""

    def __init__(self, path: Path, fps: float, size: tuple[int, int]) -> None:
        form = format_of(path)
        self.path = writable_file(path)
        self.hidden = path.with_name(f".{path.name}.part")
        self.frames = 0
        self._writer = write_frames(
            str(self.hidden), size, fps=fps, quality=None, macro_block_size=2, ffmpeg_log_level="error", **form.options
        )

    def __enter__(self) -> Self:
        try:
            self._writer.send(None)
        except RuntimeError as error:  # there is no program for this machine in the package
            raise ValueError(f"a film needs the program ffmpeg: {error}") from error
        return self

    def add(self, frame: Picture) -> None:
        try:
            self._writer.send(frame)
        except OSError as error:  # whose text is the whole command
            raise OSError(f"ffmpeg stopped, so {self.path} could not be written (is the disk full?)") from error
        self.frames += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._writer.close()
            if error is None:
                os.replace(self.hidden, self.path)
                flush_directory(self.path.parent)
        finally:
            self.hidden.unlink(missing_ok=True)
