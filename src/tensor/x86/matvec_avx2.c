/* The product of matvec.h with AVX2. */
#define MATVEC_LEVEL avx2
#include "matvec_body.h"
