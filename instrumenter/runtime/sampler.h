/* The interval sampler that runs inside the guest: format of its trace file.
 *
 * File /measure/trace.bin, little-endian:
 *   8 bytes  magic "MSRTRC1\n"
 *   u32      number of columns c
 *   u32      columns that are hardware counters after cycle and instret
 *   then one record of c u64 a timer signal, to the end of the file:
 *     cycle, instret, hpmcounter3 .. : counted in this interval, handler excluded
 *     software counters: running totals, so that an increment cut in two by the signal is never lost
 * A last record, cut at the program's end, closes the file; its length is that of the rest of the program.
 */
#ifndef MEASURE_SAMPLER_H
#define MEASURE_SAMPLER_H

#define MEASURE_TRACE_PATH "/measure/trace.bin"
#define MEASURE_MAGIC "MSRTRC1\n"

#endif
