/* The kernels of kernels.h for avx2: ops_body.h compiled for it. */
#if !defined(__AVX2__) || !defined(__FMA__)
#error "compile with -mavx2 -mfma"
#endif

#define OPS_LEVEL avx2
#include "ops_body.h"
