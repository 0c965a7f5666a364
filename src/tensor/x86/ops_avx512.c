/* The kernels of kernels.h for avx512: ops_body.h compiled for it. */
#if !defined(__AVX512F__) || !defined(__AVX512BW__) || !defined(__AVX512DQ__) ||                   \
    !defined(__AVX512VL__)
#error "compile with -mavx512f -mavx512bw -mavx512dq -mavx512vl"
#endif

#define OPS_LEVEL avx512
#include "ops_body.h"
