// Runs a test as a Linux program: as many rounds as the program has arguments, its name included, so that the same
// code is executed by one engine after the other. Between rounds what the test has changed is set back; only words that
// differ are written, because writing to code makes an engine forget its translations.
  .section .rounds, "ax"
  .globl _start
_start:
  ld t0, 0(sp)
  la t1, conformance_round
  sd t0, 0(t1)
  la a0, conformance_begin
  la a1, conformance_end
  la a2, conformance_kept
1:
  ld t0, 0(a0)
  sd t0, 0(a2)
  addi a0, a0, 8
  addi a2, a2, 8
  bltu a0, a1, 1b
2:
  la a0, conformance_begin
  la a1, conformance_end
  la a2, conformance_kept
3:
  ld t0, 0(a2)
  ld t1, 0(a0)
  beq t0, t1, 4f
  sd t0, 0(a0)
4:
  addi a0, a0, 8
  addi a2, a2, 8
  bltu a0, a1, 3b
  fence.i
  fscsr zero
  la t0, conformance_test
  jr t0

// The end of a round that went well: the signature, if there is one, to standard output.
  .globl conformance_halt
conformance_halt:
  .weak begin_signature
  .weak end_signature
  lla t0, 9f
  ld a1, 0(t0)
  ld a2, 8(t0)
  sub a2, a2, a1
5:
  blez a2, 6f
  li a0, 1
  li a7, 64
  ecall
  blez a0, 7f
  add a1, a1, a0
  sub a2, a2, a0
  j 5b
6:
  la t1, conformance_round
  ld t0, 0(t1)
  addi t0, t0, -1
  sd t0, 0(t1)
  bgtz t0, 2b
  li a0, 0
  j 8f
7:
  li a0, 255

// The end of a test that failed, with its number in a0.
  .globl conformance_exit
conformance_exit:
8:
  li a7, 94
  ecall

  .balign 8
9:
  .dword begin_signature, end_signature
