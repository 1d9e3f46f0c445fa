"""Where in a user's own code something went wrong: that line helps, those of libraries and of this package do not."""

import os
import sysconfig
import traceback

import carebn

LIBRARIES = tuple(
    os.path.join(os.path.realpath(path), "")
    for path in (*map(sysconfig.get_path, ("stdlib", "purelib", "platlib")), os.path.dirname(carebn.__file__))
)


def users_line(error: BaseException) -> str:
    """File, line and what stands there: of the user's code if any of it is involved, else where it was raised."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<frozen")]
    if not frames:
        return ""
    own = [frame for frame in frames if not os.path.realpath(frame.filename).startswith(LIBRARIES)]
    frame = (own or frames)[-1]
    file = os.path.relpath(frame.filename) if own else frame.filename
    return f"{file}, line {frame.lineno}, in {frame.name}: {frame.line}"


def account(fault: BaseException) -> str:
    """What happened, and below it the user's line and what was raised, as Python ends a traceback with."""
    cause = fault.__cause__ or fault
    raised = "".join(traceback.format_exception_only(cause)).strip()
    return f"{fault}\n  {users_line(cause)}\n{raised}"
