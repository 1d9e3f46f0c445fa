"""Films can be read back, and are complete or not there."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import imageio_ffmpeg
import numpy as np
import pytest

from carebn.show.film import Film, format_of

pytestmark = pytest.mark.slow


def read(path: Path) -> tuple[dict[str, Any], list[Any]]:
    frames = imageio_ffmpeg.read_frames(str(path))
    meta = next(frames)
    return meta, [np.frombuffer(f, np.uint8).reshape(*meta["size"][::-1], 3) for f in frames]


@pytest.mark.parametrize(("name", "fps"), [("film.mp4", 20.0), ("film.mp4", 41.67), ("film.gif", 20.0)])
def test_frames_come_back(tmp_path: Path, name: str, fps: float) -> None:
    """As many, as large, and each showing what was put in."""
    rng = np.random.default_rng(0)
    given = []
    for i in range(13):
        frame = np.full((90, 160, 3), (20, 20, 30), np.uint8)
        frame[:, : 10 * (i + 1)] = (230, 230, 90)
        frame[40:48] = np.where(rng.random((1, 20, 1)) < 0.5, 255, 0).astype(np.uint8).repeat(8, 1).repeat(8, 0)
        given.append(frame)
    with Film(tmp_path / name, fps, (160, 90)) as film:
        for frame in given:
            film.add(frame)
    assert film.frames == 13
    meta, back = read(tmp_path / name)
    assert len(back) == 13
    assert meta["size"] == (160, 90)
    assert meta["fps"] == pytest.approx(fps, abs=0.02)
    for a, b in zip(given, back, strict=True):
        assert np.abs(a.astype(int) - b).mean() < 8
        np.testing.assert_array_equal(a[44, 4::8, 0] > 128, b[44, 4::8, 0] > 128)
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", ["film.mp4", "film.gif"])
def test_a_film_that_fails_leaves_nothing_and_keeps_the_old_one(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"the old film")
    with suppress(ZeroDivisionError), Film(tmp_path / name, 20, (64, 64)) as film:
        film.add(np.zeros((64, 64, 3), np.uint8))
        1 / 0  # noqa: B018  # anything that goes wrong
    assert (tmp_path / name).read_bytes() == b"the old film"
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_stop_in_the_middle_of_a_frame_says_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with suppress(KeyboardInterrupt), Film(tmp_path / "film.mp4", 20, (64, 64)) as film:
        film.add(np.zeros((64, 64, 3), np.uint8))
        film.add(np.zeros((7, 5, 3), np.uint8))  # as much as was written of it
        raise KeyboardInterrupt
    assert capfd.readouterr() == ("", "")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("frames", [1, 2000])
def test_the_reason_of_ffmpeg_is_told(tmp_path: Path, frames: int, capfd: pytest.CaptureFixture[str]) -> None:
    """Whether it is met while frames are added or at the end; and the film before is kept."""
    (tmp_path / "film.mp4").write_bytes(b"the old film")
    film = Film(tmp_path / "film.mp4", 20, (64, 64))
    film._words[-1] = str(tmp_path / "nowhere" / "film.mp4")

    def make() -> None:
        with film:
            for _ in range(frames):
                film.add(np.zeros((64, 64, 3), np.uint8))

    with pytest.raises(OSError, match=r"ffmpeg stopped, so .*film\.mp4 could not be written \(.*No such file"):
        make()
    assert (tmp_path / "film.mp4").read_bytes() == b"the old film"
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", ["film.avi", "film", "film.mp5"])
def test_unknown_formats(name: str) -> None:
    with pytest.raises(ValueError, match=r"unknown film format .*[Kk]nown: \.gif, \.mp4"):
        format_of(Path(name))


def test_paths_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="cannot make the directory"):
        Film(tmp_path / "file" / "film.mp4", 20, (64, 64))
    (tmp_path / "directory.mp4").mkdir()
    with pytest.raises(OSError, match="is a directory"):
        Film(tmp_path / "directory.mp4", 20, (64, 64))


@pytest.mark.parametrize(
    ("name", "rate", "every", "fps"),
    [("a.mp4", 20, 1, 20), ("a.mp4", 125, 3, 125 / 3), ("a.mp4", 50, 1, 50), ("a.MP4", 5, 1, 5),
     ("a.gif", 20, 1, 20), ("a.gif", 125, 5, 25), ("a.gif", 15, 1, 100 / 7), ("a.gif", 60, 3, 20)],
)  # fmt: skip
def test_speed_is_kept(name: str, rate: float, every: int, fps: float) -> None:
    timing = format_of(Path(name)).timing(rate)
    assert timing.every == every
    assert timing.fps == pytest.approx(fps)
    assert timing.fps * timing.every == pytest.approx(rate, rel=0.05)
