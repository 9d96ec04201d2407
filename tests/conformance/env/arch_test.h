// The suite's own header of this name, with what only machine mode may do taken out: under Linux floating point is on.
#ifndef CONFORMANCE_ARCH_TEST_H
#define CONFORMANCE_ARCH_TEST_H

#include_next "arch_test.h"

#undef RVTEST_FP_ENABLE
#define RVTEST_FP_ENABLE()  csrwi fcsr, 0

#endif
