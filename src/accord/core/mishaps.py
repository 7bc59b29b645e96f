"""Errors that are no defect of Accord, as sentences: what happened, and what to do.

Modules that read a file of the user explain its errors themselves, and better. This is for what
they did not foresee.
"""

from __future__ import annotations

import errno
import os

from accord.core.errors import AccordError
from accord.core.streams import OUTPUT
from accord.core.text import one_line

AGAIN = "run the same command again"
# What to do about an error of the system.
ADVICE = {
    errno.ENOSPC: f"Free some space, and {AGAIN}",
    errno.EDQUOT: f"Free some space of your quota, and {AGAIN}",
    errno.EROFS: "Choose another folder, or make the disk writable",
    errno.EACCES: "Choose another path, or change its permissions",
    errno.EPERM: "Choose another path, or change its permissions",
    errno.ENOENT: "Check the path",
    errno.ENOTDIR: "Check the path",
    errno.EISDIR: "Name a file",
    errno.ENAMETOOLONG: "Choose a shorter name",
    errno.ELOOP: "Name the file itself, and no link",
    errno.EFBIG: "Allow larger files (ulimit -f), or choose another disk",
    errno.EIO: f"Check the disk, and {AGAIN}",
    errno.EMFILE: f"Allow more open files (ulimit -n), and {AGAIN}",
}
# Errors of libraries about the content of a file, by the names of their classes.
DAMAGED = {
    "json.decoder.JSONDecodeError",
    "yaml.error.YAMLError",
    "zipfile.BadZipFile",
    "zlib.error",
    "_lzma.LZMAError",
    "tarfile.TarError",
    "_csv.Error",
    "struct.error",
    "builtins.EOFError",
    "pyarrow.lib.ArrowException",
    "safetensors_rust.SafetensorError",
    "safetensors.SafetensorError",
    "PIL.Image.DecompressionBombError",
    "PIL.UnidentifiedImageError",
    "pydantic_core._pydantic_core.ValidationError",
    "tomllib.TOMLDecodeError",
    "onnx.onnx_cpp2py_export.checker.ValidationError",
    "google.protobuf.message.DecodeError",
}
NO_MEMORY = (
    "not enough memory",
    "can't allocate memory",
    "unable to allocate",
    "out of memory",
    "storage size calculation overflowed",
    "array is too big",
    "maximum allowed dimension exceeded",
)


def sentence_of(error: BaseException) -> str | None:
    """What happened and what to do; None if the error is a defect of Accord."""
    if isinstance(error, AccordError):
        return str(error)
    said = one_line(str(error), 300).rstrip(". ")
    about = f" ({said})" if said else ""
    if lack_of_memory(error) is not None:
        return (
            f"the memory of this machine is not sufficient{about}. Use fewer workers, a smaller "
            "budget.batch or net.backbone, or a machine with more memory; if you did not ask for "
            "so much, check the file that you gave."
        )
    if isinstance(error, RecursionError):
        return (
            "an input is nested too deeply to be read. Check the study, the overrides and the "
            "files that you gave."
        )
    if isinstance(error, UnicodeError):
        return f"a text or a name is not valid UTF-8{about}. Save the file as UTF-8, or rename it."
    if isinstance(error, OverflowError) or "integer string conversion" in said:
        return f"a number is too large{about}. Check the study, the options and the files."
    if isinstance(error, RuntimeError) and said.startswith("Symlink loop"):
        return f"a link leads back to itself ({said}). Name the file itself, and no link."
    if "embedded null" in said:
        return f"a path contains a character that no path may contain{about}. Check the path."
    if _is_damaged(error):
        return (
            f"a file cannot be read: {type(error).__name__}{about}. It may be damaged: restore it "
            "from a copy, or make it again."
        )
    if isinstance(error, OSError):
        return _of_system(error)
    return None


def lack_of_memory(error: BaseException) -> str | None:
    """The first line of an error that says that memory ran out; None for any other error."""
    text = str(error)
    told = any(one in text.lower() for one in NO_MEMORY)
    if isinstance(error, MemoryError) or (told and isinstance(error, RuntimeError | ValueError)):
        return (text.splitlines() or [type(error).__name__])[0]
    return None


def _is_damaged(error: BaseException) -> bool:
    kinds = (f"{kind.__module__}.{kind.__qualname__}" for kind in type(error).__mro__)
    return any(kind in DAMAGED for kind in kinds)


def _of_system(error: OSError) -> str:
    if error.filename == OUTPUT and error.errno == errno.EBADF:
        return f"{OUTPUT} is closed, so that nothing can be printed. Open it, and {AGAIN}."
    where = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, str | bytes) else ""
    why = error.strerror or one_line(str(error), 300).rstrip(". ") or type(error).__name__
    advice = ADVICE.get(error.errno or 0, f"Solve this problem, and {AGAIN}")
    if error.filename == OUTPUT and error.errno == errno.ENOENT:
        advice = f"Solve this problem, and {AGAIN}"
    return f"{where}{why}. {advice}."
