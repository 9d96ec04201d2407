// What riscv-tests asks of its environment, for programs of user mode under Linux: a pass ends the round, a failure the
// program with the number of the test case as its status.
#ifndef CONFORMANCE_RISCV_TEST_H
#define CONFORMANCE_RISCV_TEST_H

#define TESTNUM gp

#define RVTEST_RV64U
#define RVTEST_RV64UF

#define RVTEST_CODE_BEGIN  .section .text.init; .globl conformance_test; conformance_test: li TESTNUM, 0;
#define RVTEST_CODE_END
#define RVTEST_PASS  la t0, conformance_halt; jr t0;
#define RVTEST_FAIL  mv a0, TESTNUM; la t0, conformance_exit; jr t0;

#define RVTEST_DATA_BEGIN
#define RVTEST_DATA_END

#endif
