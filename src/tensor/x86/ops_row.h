/* Shared by the kernels of ops_vec.c: when to run in parallel, and the dispatch by activation type.
 * The dispatch is once per row or block inside the parallel region, where the type is a constant
 * for the compiler. */
#ifndef KVF_OPS_ROW_H
#define KVF_OPS_ROW_H

#include "kernels.h"
#include "vec_act.h"

enum {
    OPS_BLOCK = 4096, /* elements of an elementwise block: both types fit the first-level cache */
    SERIAL = 32768    /* less work is finished before other threads have woken up */
};

/* Calls f(half, ...) with the type as a constant. */
#define BY_TYPE(act, f, ...) ((act) == KVF__BF16 ? f(true, __VA_ARGS__) : f(false, __VA_ARGS__))

VEC_INLINE int64_t block_end(int64_t at, int64_t n)
{
    return n - at < OPS_BLOCK ? n : at + OPS_BLOCK;
}

#endif
