"""What is known about this machine's processor, and what about its set-up makes measurements noisy."""

from __future__ import annotations

import ctypes
import os
import platform
import re
from pathlib import Path

_ROOT = Path("/")
SAME_ADDRESSES = 0x0040000
"""Personality of a process whose addresses the kernel does not draw at random (ADDR_NO_RANDOMIZE)."""
_ASK = 0xFFFFFFFF


def identity(root: Path = _ROOT) -> dict[str, str]:
    """What identifies the machine for results: runs on another one are not taken for runs on this one."""
    text = _text(root / "proc/cpuinfo")
    fields = {}
    for key in ("model name", "cpu family", "model", "stepping", "microcode", "CPU implementer", "CPU part"):
        found = re.search(rf"^{re.escape(key)}\s*:\s*(.*)$", text, re.MULTILINE)
        if found:
            fields[key] = found[1].strip()
    return {**fields, "architecture": platform.machine(), "kernel": platform.release(), "host": platform.node()}


def model(root: Path = _ROOT) -> str:
    """The processor in a few words."""
    known = identity(root)
    return known.get("model name") or f"{known['architecture']} processor"


def default_processor() -> int:
    """The processor that programs run on unless told otherwise: the last that this process may use, for the kernel
    gives most of its own work to the first."""
    return max(os.sched_getaffinity(0))


def can_fix_addresses() -> bool:
    """Whether the kernel's randomisation of addresses can be switched off for programs; containers may forbid it."""
    library = ctypes.CDLL(None)
    now = library.personality(ctypes.c_ulong(_ASK))
    if now < 0 or library.personality(ctypes.c_ulong(now | SAME_ADDRESSES)) < 0:
        return False
    library.personality(ctypes.c_ulong(now))
    return True


def warnings(processor: int, root: Path = _ROOT) -> list[str]:
    """What makes measurements on ``processor`` noisy, each with what to do about it."""
    here = root / f"sys/devices/system/cpu/cpu{processor}"
    found = []
    governor = _text(here / "cpufreq/scaling_governor").strip()
    if governor and governor != "performance":
        found.append(
            f"the frequency of processor {processor} changes (governor {governor}): "
            "`cpupower frequency-set -g performance` as root"
        )
    if _text(root / "sys/devices/system/cpu/intel_pstate/no_turbo").strip() == "0" or (
        _text(root / "sys/devices/system/cpu/cpufreq/boost").strip() == "1"
    ):
        found.append("turbo is on, so that the frequency depends on load and temperature: switch it off")
    siblings = _text(here / "topology/thread_siblings_list").strip()
    if siblings and siblings != str(processor):
        found.append(
            f"processor {processor} shares its core (threads {siblings}), so that other programs disturb it: leave the "
            "other thread idle, or switch SMT off"
        )
    isolated = _text(root / "sys/devices/system/cpu/isolated").strip()
    if not isolated:
        found.append("no processor is isolated (`isolcpus=`), so that other programs are scheduled on it")
    if not can_fix_addresses():
        found.append(
            "the kernel's randomisation of addresses cannot be switched off here, so that runs of a pair differ in the "
            "places of stack and heap: containers forbid it unless their seccomp profile allows `personality`"
        )
    if re.search(r"^flags\s*:.*\bhypervisor\b", _text(root / "proc/cpuinfo"), re.MULTILINE):
        found.append("this is a virtual machine: its host's other work disturbs measurements, and cannot be seen")
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""
