"""Signals: masks, actions, and the frame that a handler and rt_sigreturn share."""

from __future__ import annotations

import errno
import struct

import numpy as np
import pytest

from emulator.linux.abi.numbers import signal_name
from emulator.linux.kernel.hart_protocol import GuestExit
from emulator.linux.kernel.signals import SEGV_MAPERR
from tests.emulator.linux.conftest import Guest

USR1, USR2, SEGV, KILL, CHLD, PIPE, ALRM, RT = 10, 12, 11, 9, 17, 13, 14, 40
HANDLER = 0x1_0004
PID = 1000
SIGINFO, NODEFER, ONSTACK, RESTART, RESETHAND = 4, 0x4000_0000, 0x0800_0000, 0x1000_0000, 0x8000_0000
BLOCK, UNBLOCK, SETMASK = 0, 1, 2


def bit(*signals: int) -> int:
    return sum(1 << (signal - 1) for signal in signals)


def act(guest: Guest, signal: int, handler: int = HANDLER, flags: int = 0, mask: int = 0) -> None:
    assert guest.call("rt_sigaction", signal, struct.pack("<QQQ", handler, flags, mask), 0, 8) == 0


def set_mask(guest: Guest, mask: int, how: int = SETMASK) -> None:
    assert guest.call("rt_sigprocmask", how, struct.pack("<Q", mask), 0, 8) == 0


def send(guest: Guest, signal: int) -> None:
    assert guest.call("kill", PID, signal) == 0


def test_a_handler_gets_its_frame_and_sigreturn_restores_everything(guest: Guest) -> None:
    act(guest, USR1, flags=SIGINFO)
    send(guest, USR1)
    hart, kernel = guest.hart, guest.kernel
    stack_pointer = int(hart.x[2])
    generator = np.random.default_rng(1)
    hart.x[1:2] = hart.x[3:] = 0
    hart.x[3:] = generator.integers(0, 2**64, 29, np.uint64)
    hart.f[:] = generator.integers(0, 2**64, 32, np.uint64)
    hart.pc, hart.fcsr = 0x1_0008, 0x65
    before = hart.x.copy(), hart.f.copy(), hart.pc, hart.fcsr

    assert kernel.pending_signal() == USR1
    kernel.deliver(hart)
    assert kernel.pending_signal() is None
    frame = int(hart.x[2])
    assert (hart.pc, int(hart.x[1])) == (HANDLER, guest.process.trampoline)
    assert frame % 16 == 0
    assert frame <= stack_pointer - 1088
    assert [int(v) for v in hart.x[10:13]] == [USR1, frame, frame + 128]
    number, error, code, _, pid, uid = struct.unpack("<iiiiiI", guest.memory.read(frame, 24))
    assert (number, error, code, pid, uid) == (USR1, 0, 0, PID, 1000)
    # ucontext: mcontext at 176, pc first, then x1 to x31, then f0 to f31 and fcsr
    context = frame + 128
    saved = struct.unpack("<65Q", guest.memory.read(context + 176, 520))
    assert saved[0] == before[2]
    assert list(saved[1:32]) == before[0][1:].tolist()
    assert list(saved[32:64]) == before[1].tolist()
    assert saved[64] & 0xFFFF_FFFF == before[3]
    assert guest.kernel.signals.mask == bit(USR1)

    hart.x[3:] = 7
    hart.f[:] = 8
    hart.fcsr = 0
    hart.x[17] = 139
    kernel.syscall(hart)
    assert hart.x.tolist() == before[0].tolist()
    assert hart.f.tolist() == before[1].tolist()
    assert (hart.pc, hart.fcsr) == before[2:]
    assert kernel.signals.mask == 0


def test_a_handler_may_change_what_it_returns_to(guest: Guest) -> None:
    act(guest, USR1)
    send(guest, USR1)
    guest.kernel.deliver(guest.hart)
    context = int(guest.hart.x[12])
    guest.memory.write_int(context + 176, 8, 0x1_000C)  # pc
    guest.memory.write_int(context + 176 + 8 * 10, 8, 99)  # a0
    guest.memory.write_int(context + 40, 8, bit(USR2, KILL))  # mask; KILL cannot be blocked
    guest.call("rt_sigreturn")
    assert guest.hart.pc == 0x1_000C
    assert guest.hart.x[10] == 99
    assert guest.kernel.signals.mask == bit(USR2)


@pytest.mark.parametrize(
    ("flags", "mask", "blocked"),
    [(0, 0, bit(USR1)), (NODEFER, 0, 0), (0, bit(USR2), bit(USR1, USR2)), (NODEFER, bit(USR2), bit(USR2))],
)
def test_what_is_blocked_in_a_handler(guest: Guest, flags: int, mask: int, blocked: bool) -> None:
    act(guest, USR1, flags=flags, mask=mask)
    send(guest, USR1)
    guest.kernel.deliver(guest.hart)
    assert guest.kernel.signals.mask == blocked


def test_reset_hand_works_once(guest: Guest) -> None:
    act(guest, USR1, flags=RESETHAND | NODEFER)
    send(guest, USR1)
    guest.kernel.deliver(guest.hart)
    send(guest, USR1)
    with pytest.raises(GuestExit):
        guest.kernel.deliver(guest.hart)


def test_blocked_signals_wait_and_standard_ones_coalesce(guest: Guest) -> None:
    act(guest, USR1, flags=NODEFER)
    act(guest, RT, flags=NODEFER)
    set_mask(guest, bit(USR1, RT))
    for _ in range(3):
        send(guest, USR1)
        send(guest, RT)
    assert guest.kernel.pending_signal() is None
    pending = guest.space(8)
    assert guest.call("rt_sigpending", pending, 8) == 0
    assert guest.memory.read_int(pending, 8) == bit(USR1, RT)
    start = int(guest.hart.x[2])
    set_mask(guest, 0)
    guest.kernel.deliver(guest.hart)
    frames = (start - int(guest.hart.x[2])) // 1088
    assert frames == 4  # one standard signal, three real-time ones


def test_mask_operations(guest: Guest) -> None:
    old = guest.space(8)
    set_mask(guest, bit(USR1, KILL))
    set_mask(guest, bit(USR2), BLOCK)
    set_mask(guest, bit(USR1), UNBLOCK)
    assert guest.call("rt_sigprocmask", 99, 0, old, 8) == 0
    assert guest.memory.read_int(old, 8) == bit(USR2)
    assert guest.call("rt_sigprocmask", 99, old, 0, 8) == -errno.EINVAL
    assert guest.call("rt_sigprocmask", SETMASK, old, 0, 4) == -errno.EINVAL


@pytest.mark.parametrize("signal", [1, 2, 3, 4, 6, 7, 8, 9, 10, 11, 13, 14, 15, 24, 27, 31, 34, 64])
def test_the_default_action_ends_the_guest(guest: Guest, signal: int) -> None:
    send(guest, signal)
    with pytest.raises(GuestExit) as caught:
        guest.kernel.deliver(guest.hart)
    assert (caught.value.status, caught.value.signal) == (128 + signal, signal)


@pytest.mark.parametrize("signal", [17, 18, 20, 21, 22, 23, 28])
def test_ignored_by_default_or_as_nobody_could_continue_the_guest(guest: Guest, signal: int) -> None:
    pc = guest.hart.pc
    send(guest, signal)
    guest.kernel.deliver(guest.hart)
    assert (guest.hart.pc, guest.kernel.pending_signal()) == (pc, None)


def test_ignoring_drops_what_is_pending(guest: Guest) -> None:
    set_mask(guest, bit(USR1))
    send(guest, USR1)
    act(guest, USR1, handler=1)
    set_mask(guest, 0)
    assert guest.kernel.pending_signal() is None
    send(guest, USR1)
    assert guest.kernel.pending_signal() is None


def test_sigaction_reports_the_action_before(guest: Guest) -> None:
    old = guest.space(24)
    act(guest, USR1, flags=RESTART, mask=bit(USR2, KILL))
    assert guest.call("rt_sigaction", USR1, 0, old, 8) == 0
    assert guest.words(old, 3) == (HANDLER, RESTART, bit(USR2))
    for signal in (KILL, 19, 0, 65):
        assert guest.call("rt_sigaction", signal, old, 0, 8) == -errno.EINVAL
    assert guest.call("rt_sigaction", USR1, 0, 0, 16) == -errno.EINVAL


def alternate_stack(guest: Guest, flags: int = 0, size: int = 8192) -> tuple[int, int]:
    stack = guest.space(size)
    return stack, guest.call("sigaltstack", struct.pack("<QiiQ", stack, flags, 0, size), 0)


def test_an_alternate_stack_is_used_when_asked_for(guest: Guest) -> None:
    stack, result = alternate_stack(guest)
    assert result == 0
    act(guest, USR1)
    act(guest, USR2, flags=ONSTACK)
    send(guest, USR1)
    guest.kernel.deliver(guest.hart)
    assert int(guest.hart.x[2]) > guest.process.stack_low
    send(guest, USR2)
    guest.kernel.deliver(guest.hart)
    frame = int(guest.hart.x[2])
    assert stack < frame < stack + 8192
    old = guest.space(24)
    assert guest.call("sigaltstack", 0, old) == 0
    assert struct.unpack("<QiiQ", guest.memory.read(old, 24)) == (stack, 1, 0, 8192)
    assert guest.call("sigaltstack", old, 0) == -errno.EPERM
    # already on it: the next frame goes below
    act(guest, ALRM, flags=ONSTACK)
    send(guest, ALRM)
    guest.kernel.deliver(guest.hart)
    assert int(guest.hart.x[2]) == frame - 1088


def test_sigaltstack_refusals_and_disabling(guest: Guest) -> None:
    assert alternate_stack(guest, size=100)[1] == -errno.ENOMEM
    assert alternate_stack(guest, flags=4)[1] == -errno.EINVAL
    assert alternate_stack(guest)[1] == 0
    assert alternate_stack(guest, flags=2, size=16)[1] == 0
    old = guest.space(24)
    assert guest.call("sigaltstack", 0, old) == 0
    assert struct.unpack("<QiiQ", guest.memory.read(old, 24)) == (0, 2, 0, 0)


def test_autodisarm_frees_the_stack_during_the_handler(guest: Guest) -> None:
    stack, result = alternate_stack(guest, flags=-(1 << 31))
    assert result == 0
    act(guest, USR1, flags=ONSTACK)
    send(guest, USR1)
    guest.kernel.deliver(guest.hart)
    frame = int(guest.hart.x[2])
    assert stack < frame < stack + 8192
    old = guest.space(24)
    assert guest.call("sigaltstack", 0, old) == 0
    assert guest.memory.read_int(old + 8, 4) == 2
    guest.call("rt_sigreturn")
    assert guest.call("sigaltstack", 0, old) == 0
    assert struct.unpack("<QIiQ", guest.memory.read(old, 24)) == (stack, 1 << 31, 0, 8192)


def test_overflowing_the_alternate_stack_is_a_segmentation_fault(guest: Guest) -> None:
    stack, _ = alternate_stack(guest, size=2048)
    act(guest, USR1, flags=ONSTACK)
    guest.hart.x[2] = stack + 512
    send(guest, USR1)
    with pytest.raises(GuestExit) as caught:
        guest.kernel.deliver(guest.hart)
    assert caught.value.status == 128 + SEGV


def test_no_room_for_a_frame(guest: Guest) -> None:
    act(guest, USR1)
    guest.hart.x[2] = guest.process.stack_low + 100
    send(guest, USR1)
    with pytest.raises(GuestExit) as caught:
        guest.kernel.deliver(guest.hart)
    assert caught.value.signal == SEGV


def test_no_room_for_a_frame_is_handled_on_another_stack(guest: Guest) -> None:
    stack, _ = alternate_stack(guest)
    act(guest, SEGV, flags=ONSTACK)
    act(guest, USR1)
    guest.hart.x[2] = guest.process.stack_low + 100
    send(guest, USR1)
    guest.kernel.deliver(guest.hart)
    assert int(guest.hart.x[10]) == SEGV
    assert stack < int(guest.hart.x[2]) < stack + 8192


def test_sigreturn_from_a_bad_stack_ends_the_guest(guest: Guest) -> None:
    guest.hart.x[2] = 0x100
    guest.call("rt_sigreturn")
    assert guest.kernel.pending_signal() == SEGV
    with pytest.raises(GuestExit) as caught:
        guest.kernel.deliver(guest.hart)
    assert caught.value.status == 128 + SEGV


def test_every_signal_has_a_name() -> None:
    names = [signal_name(number) for number in range(1, 65)]
    assert (names[0], names[10], names[31], names[63]) == ("SIGHUP", "SIGSEGV", "SIGRTMIN+0", "SIGRTMIN+32")
    assert len(set(names)) == 64


def test_a_forced_signal_passes_block_and_ignore(guest: Guest) -> None:
    act(guest, SEGV)
    set_mask(guest, bit(SEGV))
    guest.hart.x[2] = 0x100
    guest.call("rt_sigreturn")
    with pytest.raises(GuestExit):
        guest.kernel.deliver(guest.hart)


def test_faults_tell_the_address(guest: Guest) -> None:
    hart, kernel = guest.hart, guest.kernel
    assert not kernel.deliver_fault(hart, SEGV, SEGV_MAPERR, 0x1234)
    act(guest, SEGV, flags=SIGINFO)
    hart.pc = 0x1_0008
    assert kernel.deliver_fault(hart, SEGV, SEGV_MAPERR, 0x1234)
    frame = int(hart.x[2])
    assert struct.unpack("<iiiiQ", guest.memory.read(frame, 24)) == (SEGV, 0, SEGV_MAPERR, 0, 0x1234)
    assert guest.words(frame + 128 + 176, 1) == (0x1_0008,)
    # the second fault comes while the first is handled: it is blocked, so it ends the guest
    assert not kernel.deliver_fault(hart, SEGV, SEGV_MAPERR, 0)
    act(guest, SEGV, handler=1)
    kernel.signals.set_mask(0)
    assert not kernel.deliver_fault(hart, SEGV, SEGV_MAPERR, 0)


def test_kill_reaches_only_the_guest_itself(guest: Guest) -> None:
    assert guest.call("kill", 1, USR1) == -errno.ESRCH
    assert guest.call("tkill", 1, USR1) == -errno.ESRCH
    assert guest.call("tgkill", 1, PID, USR1) == -errno.ESRCH
    assert guest.call("kill", PID, 65) == -errno.EINVAL
    assert guest.call("kill", PID, 0) == 0
    for target in (0, -1, -PID):
        assert guest.call("kill", target, 0) == 0
    assert guest.kernel.pending_signal() is None
    act(guest, USR1)
    assert guest.call("tgkill", PID, PID, USR1) == 0
    guest.kernel.deliver(guest.hart)
    assert struct.unpack("<i", guest.memory.read(int(guest.hart.x[11]) + 8, 4)) == (-6,)


def test_waiting_for_a_signal(guest: Guest) -> None:
    set_mask(guest, bit(USR1))
    info = guest.space(128)
    wanted = struct.pack("<Q", bit(USR1))
    timeout = struct.pack("<qq", 2, 5)
    assert guest.call("rt_sigtimedwait", wanted, info, timeout, 8) == -errno.EAGAIN
    assert guest.kernel.clock.elapsed() == 2_000_000_005
    send(guest, USR1)
    assert guest.call("rt_sigtimedwait", wanted, info, 0, 8) == USR1
    assert struct.unpack("<i", guest.memory.read(info, 4)) == (USR1,)
    act(guest, USR2)
    send(guest, USR2)
    assert guest.call("rt_sigtimedwait", wanted, info, 0, 8) == -errno.EINTR


def test_sigsuspend_restores_the_mask_after_the_handler(guest: Guest) -> None:
    act(guest, ALRM)
    act(guest, USR1)
    set_mask(guest, bit(ALRM))
    seconds = struct.pack("<qqqq", 0, 0, 3, 0)
    assert guest.call("setitimer", 0, seconds, 0) == 0
    assert guest.call("rt_sigsuspend", struct.pack("<Q", bit(USR1)), 8) == -errno.EINTR
    assert guest.kernel.clock.elapsed() == 3_000_000_000
    assert guest.kernel.signals.mask == bit(USR1)
    guest.kernel.deliver(guest.hart)
    assert guest.kernel.signals.mask == bit(USR1, ALRM)
    guest.call("rt_sigreturn")
    assert guest.kernel.signals.mask == bit(ALRM)
