// What riscv-arch-test asks of the model under test, for programs of user mode under Linux.
#ifndef CONFORMANCE_MODEL_TEST_H
#define CONFORMANCE_MODEL_TEST_H

#define RVMODEL_BOOT  .globl conformance_test; .set conformance_test, rvtest_entry_point;
#define RVMODEL_HALT  la t0, conformance_halt; jr t0;

#define RVMODEL_DATA_BEGIN  .align 4; .globl begin_signature; begin_signature:
#define RVMODEL_DATA_END    .align 4; .globl end_signature; end_signature:

#define RVMODEL_IO_INIT
#define RVMODEL_IO_CHECK()
#define RVMODEL_IO_WRITE_STR(_R, _STR)
#define RVMODEL_IO_ASSERT_GPR_EQ(_S, _R, _I)
#define RVMODEL_IO_ASSERT_SFPR_EQ(_F, _R, _I)
#define RVMODEL_IO_ASSERT_DFPR_EQ(_D, _R, _I)

#define RVMODEL_SET_MSW_INT
#define RVMODEL_CLEAR_MSW_INT
#define RVMODEL_CLEAR_MTIMER_INT
#define RVMODEL_CLEAR_MEXT_INT

#endif
