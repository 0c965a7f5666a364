/* The product of matvec.h with AVX-512. */
#define MATVEC_LEVEL avx512
#include "matvec_body.h"
