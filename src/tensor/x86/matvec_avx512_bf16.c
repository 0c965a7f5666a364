/* The product of matvec.h with AVX-512 and its bf16. */
#define MATVEC_LEVEL avx512_bf16
#include "matvec_body.h"
