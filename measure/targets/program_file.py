"""The program of a run, in the layout of the run, and the files that it sees."""

from __future__ import annotations

from pathlib import Path

from common.build_cache import mark_used
from emulator.linux.vfs.files import VirtualFiles
from instrumenter.building.relink import can_relink, relinked
from instrumenter.building.relink_alike import relinked_alike
from instrumenter.errors import InstrumenterError
from instrumenter.sampler_format import TRACE_PATH
from measure.errors import RunError
from measure.run_types import RunSpec


def program_of(spec: RunSpec) -> bytes:
    """The contents of the spec's executable, linked in the spec's layout. Raises `RunError`.

    With its file name, which lies on the guest's stack, the layout of the stack would depend on the length of the path
    of the user's cache directory.
    """
    mark_used(Path(spec.binary))  # a campaign may take days
    if spec.layout_seed is None:
        return Path(spec.binary).read_bytes()
    try:
        return relinked(Path(spec.binary), spec.layout_seed)
    except InstrumenterError as error:
        raise RunError(str(error)) from None


def second_program_of(binary: Path, layout_seed: int | None, measured: bytes) -> bytes:
    """The contents of the executable of a second run, ``binary`` as it was built, with its data where ``measured`` has
    them, the program of the run as it is run, in its layout. One that cannot be linked anew is as it was built. Raises
    `RunError`."""
    mark_used(binary)
    if not can_relink(binary):
        return binary.read_bytes()
    try:
        return relinked_alike(binary, layout_seed, measured)
    except InstrumenterError as error:
        raise RunError(str(error)) from None


def files_of(spec: RunSpec) -> VirtualFiles:
    """The files that the spec's program sees."""
    stdin = Path(spec.stdin).read_bytes() if spec.stdin else b""
    capture = {TRACE_PATH} if spec.sampling_mode == "signal" else ()
    mapped = {guest: Path(host) for guest, host in spec.files}
    return VirtualFiles(mapped=mapped, capture=capture, stdin=stdin, seed=spec.seed)
