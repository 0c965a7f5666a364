/* The kernels of kernels.h for avx512_bf16: ops_body.h compiled for it. */
#if !defined(__AVX512BF16__)
#error "compile with the AVX-512 flags and -mavx512bf16"
#endif

#define OPS_LEVEL avx512_bf16
#include "ops_body.h"
