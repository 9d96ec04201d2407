/* The OpenMP runtime library routines (OpenMP 5.1, chapter 3) of a program that runs on one thread.

   The compiler wrapper leaves -fopenmp out, since there is no OpenMP runtime to link with; what includes this header
   then runs as the specification says of code outside of parallel regions. _OPENMP stays undefined, so that programs
   which guard their calls with it, or want pragmas to have an effect, see that they are compiled without OpenMP.

   Nothing else of the C library is declared here, as programs may have names of their own for it (`double time;`):
   what is needed is declared under another name. A lock that is set twice would wait for ever, and ends the program. */
#ifndef MEASURE_SERIAL_OMP_H
#define MEASURE_SERIAL_OMP_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#define MEASURE_OMP_DEFAULT(value) = value
#else
#define MEASURE_OMP_DEFAULT(value)
#endif
/* A word that C90 and strict modes have, too. Unused functions give no warning. */
#define MEASURE_OMP static __inline__ __attribute__((unused))

typedef struct omp_lock_t { int held; } omp_lock_t;
typedef struct omp_nest_lock_t { int depth; } omp_nest_lock_t;
typedef struct omp_depend_t { void *unused[2]; } omp_depend_t;
typedef __UINTPTR_TYPE__ omp_uintptr_t;
typedef __UINTPTR_TYPE__ omp_event_handle_t;

typedef enum omp_sched_t {
    omp_sched_static = 1, omp_sched_dynamic = 2, omp_sched_guided = 3, omp_sched_auto = 4,
    omp_sched_monotonic = (int) 0x80000000u
} omp_sched_t;
typedef enum omp_proc_bind_t {
    omp_proc_bind_false = 0, omp_proc_bind_true = 1, omp_proc_bind_primary = 2, omp_proc_bind_master = 2,
    omp_proc_bind_close = 3, omp_proc_bind_spread = 4
} omp_proc_bind_t;
typedef enum omp_sync_hint_t {
    omp_sync_hint_none = 0, omp_sync_hint_uncontended = 1, omp_sync_hint_contended = 2,
    omp_sync_hint_nonspeculative = 4, omp_sync_hint_speculative = 8,
    omp_lock_hint_none = 0, omp_lock_hint_uncontended = 1, omp_lock_hint_contended = 2,
    omp_lock_hint_nonspeculative = 4, omp_lock_hint_speculative = 8
} omp_sync_hint_t;
typedef omp_sync_hint_t omp_lock_hint_t;
typedef enum omp_pause_resource_t { omp_pause_soft = 1, omp_pause_hard = 2 } omp_pause_resource_t;
enum { omp_initial_device = -1, omp_invalid_device = -4 };

typedef enum omp_memspace_handle_t {
    omp_default_mem_space, omp_large_cap_mem_space, omp_const_mem_space, omp_high_bw_mem_space, omp_low_lat_mem_space
} omp_memspace_handle_t;
typedef enum omp_allocator_handle_t {
    omp_null_allocator, omp_default_mem_alloc, omp_large_cap_mem_alloc, omp_const_mem_alloc, omp_high_bw_mem_alloc,
    omp_low_lat_mem_alloc, omp_cgroup_mem_alloc, omp_pteam_mem_alloc, omp_thread_mem_alloc
} omp_allocator_handle_t;
typedef enum omp_alloctrait_key_t {
    omp_atk_sync_hint = 1, omp_atk_alignment, omp_atk_access, omp_atk_pool_size, omp_atk_fallback, omp_atk_fb_data,
    omp_atk_pinned, omp_atk_partition
} omp_alloctrait_key_t;
typedef enum omp_alloctrait_value_t {
    omp_atv_default = -1, omp_atv_false = 0, omp_atv_true = 1, omp_atv_contended = 3, omp_atv_uncontended,
    omp_atv_serialized, omp_atv_sequential = omp_atv_serialized, omp_atv_private, omp_atv_all, omp_atv_thread,
    omp_atv_pteam, omp_atv_cgroup, omp_atv_default_mem_fb, omp_atv_null_fb, omp_atv_abort_fb, omp_atv_allocator_fb,
    omp_atv_environment, omp_atv_nearest, omp_atv_blocked, omp_atv_interleaved
} omp_alloctrait_value_t;
typedef struct omp_alloctrait_t { omp_alloctrait_key_t key; omp_uintptr_t value; } omp_alloctrait_t;

/* --- threads and parallel regions */
MEASURE_OMP void omp_set_num_threads(int threads) { (void) threads; }
MEASURE_OMP int omp_get_num_threads(void) { return 1; }
MEASURE_OMP int omp_get_max_threads(void) { return 1; }
MEASURE_OMP int omp_get_thread_num(void) { return 0; }
MEASURE_OMP int omp_get_thread_limit(void) { return 1; }
MEASURE_OMP int omp_get_num_procs(void) { return 1; }
MEASURE_OMP int omp_in_parallel(void) { return 0; }
MEASURE_OMP void omp_set_dynamic(int dynamic) { (void) dynamic; }
MEASURE_OMP int omp_get_dynamic(void) { return 0; }
MEASURE_OMP void omp_set_nested(int nested) { (void) nested; }
MEASURE_OMP int omp_get_nested(void) { return 0; }
MEASURE_OMP int omp_get_cancellation(void) { return 0; }
MEASURE_OMP void omp_set_schedule(omp_sched_t kind, int chunk) { (void) kind; (void) chunk; }
MEASURE_OMP void omp_get_schedule(omp_sched_t *kind, int *chunk) { *kind = omp_sched_static; *chunk = 0; }
MEASURE_OMP int omp_get_supported_active_levels(void) { return 1; }
MEASURE_OMP void omp_set_max_active_levels(int levels) { (void) levels; }
MEASURE_OMP int omp_get_max_active_levels(void) { return 1; }
MEASURE_OMP int omp_get_level(void) { return 0; }
MEASURE_OMP int omp_get_active_level(void) { return 0; }
MEASURE_OMP int omp_get_ancestor_thread_num(int level) { return level == 0 ? 0 : -1; }
MEASURE_OMP int omp_get_team_size(int level) { return level == 0 ? 1 : -1; }

/* --- teams, tasks and cancellation */
MEASURE_OMP int omp_get_num_teams(void) { return 1; }
MEASURE_OMP int omp_get_team_num(void) { return 0; }
MEASURE_OMP void omp_set_num_teams(int teams) { (void) teams; }
MEASURE_OMP int omp_get_max_teams(void) { return 1; }
MEASURE_OMP void omp_set_teams_thread_limit(int threads) { (void) threads; }
MEASURE_OMP int omp_get_teams_thread_limit(void) { return 1; }
MEASURE_OMP int omp_get_max_task_priority(void) { return 0; }
MEASURE_OMP int omp_in_explicit_task(void) { return 0; }
/* A task construct has no effect, so its code is executed at once, as that of a final task. */
MEASURE_OMP int omp_in_final(void) { return 1; }
MEASURE_OMP void omp_fulfill_event(omp_event_handle_t event) { (void) event; }

/* --- affinity: no places */
MEASURE_OMP omp_proc_bind_t omp_get_proc_bind(void) { return omp_proc_bind_false; }
MEASURE_OMP int omp_get_num_places(void) { return 0; }
MEASURE_OMP int omp_get_place_num_procs(int place) { (void) place; return 0; }
MEASURE_OMP void omp_get_place_proc_ids(int place, int *ids) { (void) place; (void) ids; }
MEASURE_OMP int omp_get_place_num(void) { return -1; }
MEASURE_OMP int omp_get_partition_num_places(void) { return 0; }
MEASURE_OMP void omp_get_partition_place_nums(int *places) { (void) places; }
MEASURE_OMP void omp_set_affinity_format(const char *format) { (void) format; }
MEASURE_OMP size_t omp_get_affinity_format(char *buffer, size_t size) { if (size) *buffer = 0; return 0; }
MEASURE_OMP void omp_display_affinity(const char *format) { (void) format; }
MEASURE_OMP size_t omp_capture_affinity(char *buffer, size_t size, const char *format)
{
    (void) format;
    if (size) *buffer = 0;
    return 0;
}

/* --- devices: only the host, which is device 0 */
MEASURE_OMP int omp_get_num_devices(void) { return 0; }
MEASURE_OMP int omp_get_initial_device(void) { return 0; }
MEASURE_OMP int omp_get_device_num(void) { return 0; }
MEASURE_OMP void omp_set_default_device(int device) { (void) device; }
MEASURE_OMP int omp_get_default_device(void) { return 0; }
MEASURE_OMP int omp_is_initial_device(void) { return 1; }
MEASURE_OMP int omp_pause_resource(omp_pause_resource_t kind, int device) { (void) kind; (void) device; return 0; }
MEASURE_OMP int omp_pause_resource_all(omp_pause_resource_t kind) { (void) kind; return 0; }
MEASURE_OMP void omp_display_env(int verbose) { (void) verbose; }
MEASURE_OMP void *omp_target_alloc(size_t size, int device) { (void) device; return __builtin_malloc(size); }
MEASURE_OMP void omp_target_free(void *memory, int device) { (void) device; __builtin_free(memory); }
MEASURE_OMP int omp_target_is_present(const void *memory, int device) { (void) device; return memory != NULL; }
MEASURE_OMP int omp_target_is_accessible(const void *memory, size_t size, int device)
{
    (void) size;
    (void) device;
    return memory != NULL;
}
MEASURE_OMP void *omp_get_mapped_ptr(const void *memory, int device) { (void) device; return (void *) memory; }
MEASURE_OMP int omp_target_memcpy(void *to, const void *from, size_t size, size_t to_offset, size_t from_offset,
                                  int to_device, int from_device)
{
    (void) to_device;
    (void) from_device;
    __builtin_memmove((char *) to + to_offset, (const char *) from + from_offset, size);
    return 0;
}
/* Nothing can be associated with the host. */
MEASURE_OMP int omp_target_associate_ptr(const void *host, const void *device_memory, size_t size, size_t offset,
                                         int device)
{
    (void) host; (void) device_memory; (void) size; (void) offset; (void) device;
    return 1;
}
MEASURE_OMP int omp_target_disassociate_ptr(const void *memory, int device) { (void) memory; (void) device; return 1; }

/* --- locks */
MEASURE_OMP void omp_init_lock(omp_lock_t *lock) { lock->held = 0; }
MEASURE_OMP void omp_init_lock_with_hint(omp_lock_t *lock, omp_sync_hint_t hint) { (void) hint; lock->held = 0; }
MEASURE_OMP void omp_destroy_lock(omp_lock_t *lock) { (void) lock; }
MEASURE_OMP void omp_set_lock(omp_lock_t *lock) { if (lock->held) __builtin_abort(); lock->held = 1; }
MEASURE_OMP void omp_unset_lock(omp_lock_t *lock) { lock->held = 0; }
MEASURE_OMP int omp_test_lock(omp_lock_t *lock) { return lock->held ? 0 : (lock->held = 1); }
MEASURE_OMP void omp_init_nest_lock(omp_nest_lock_t *lock) { lock->depth = 0; }
MEASURE_OMP void omp_init_nest_lock_with_hint(omp_nest_lock_t *lock, omp_sync_hint_t hint)
{
    (void) hint;
    lock->depth = 0;
}
MEASURE_OMP void omp_destroy_nest_lock(omp_nest_lock_t *lock) { (void) lock; }
MEASURE_OMP void omp_set_nest_lock(omp_nest_lock_t *lock) { lock->depth++; }
MEASURE_OMP void omp_unset_nest_lock(omp_nest_lock_t *lock) { lock->depth--; }
MEASURE_OMP int omp_test_nest_lock(omp_nest_lock_t *lock) { return ++lock->depth; }

/* --- time: by the monotonic clock, which counts nanoseconds */
struct measure_omp_time { long seconds, nanoseconds; };
extern int measure_omp_clock(int clock, struct measure_omp_time *time) __asm__("clock_gettime");
MEASURE_OMP double omp_get_wtime(void)
{
    struct measure_omp_time now;
    measure_omp_clock(1, &now); /* CLOCK_MONOTONIC */
    return (double) now.seconds + 1e-9 * (double) now.nanoseconds;
}
MEASURE_OMP double omp_get_wtick(void) { return 1e-9; }

/* --- memory: all allocators are that of the C library */
extern void *measure_omp_aligned(size_t alignment, size_t size) __asm__("aligned_alloc");
MEASURE_OMP omp_allocator_handle_t omp_init_allocator(omp_memspace_handle_t space, int number,
                                                      const omp_alloctrait_t *traits)
{
    (void) space; (void) number; (void) traits;
    return omp_default_mem_alloc;
}
MEASURE_OMP void omp_destroy_allocator(omp_allocator_handle_t allocator) { (void) allocator; }
MEASURE_OMP void omp_set_default_allocator(omp_allocator_handle_t allocator) { (void) allocator; }
MEASURE_OMP omp_allocator_handle_t omp_get_default_allocator(void) { return omp_default_mem_alloc; }
MEASURE_OMP void *omp_alloc(size_t size, omp_allocator_handle_t allocator MEASURE_OMP_DEFAULT(omp_null_allocator))
{
    (void) allocator;
    return __builtin_malloc(size);
}
MEASURE_OMP void *omp_aligned_alloc(size_t alignment, size_t size,
                                    omp_allocator_handle_t allocator MEASURE_OMP_DEFAULT(omp_null_allocator))
{
    (void) allocator;
    return measure_omp_aligned(alignment, size);
}
MEASURE_OMP void *omp_calloc(size_t number, size_t size,
                             omp_allocator_handle_t allocator MEASURE_OMP_DEFAULT(omp_null_allocator))
{
    (void) allocator;
    return __builtin_calloc(number, size);
}
MEASURE_OMP void *omp_aligned_calloc(size_t alignment, size_t number, size_t size,
                                     omp_allocator_handle_t allocator MEASURE_OMP_DEFAULT(omp_null_allocator))
{
    void *memory;
    (void) allocator;
    if (size && number > (size_t) -1 / size) return NULL;
    memory = measure_omp_aligned(alignment, number * size);
    return memory ? __builtin_memset(memory, 0, number * size) : NULL;
}
MEASURE_OMP void *omp_realloc(void *memory, size_t size,
                              omp_allocator_handle_t allocator MEASURE_OMP_DEFAULT(omp_null_allocator),
                              omp_allocator_handle_t free_allocator MEASURE_OMP_DEFAULT(omp_null_allocator))
{
    (void) allocator;
    (void) free_allocator;
    return __builtin_realloc(memory, size);
}
MEASURE_OMP void omp_free(void *memory, omp_allocator_handle_t allocator MEASURE_OMP_DEFAULT(omp_null_allocator))
{
    (void) allocator;
    __builtin_free(memory);
}

#undef MEASURE_OMP
#undef MEASURE_OMP_DEFAULT
#ifdef __cplusplus
}
#endif

#endif
