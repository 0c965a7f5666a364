/* The functions of wide.h with AVX-512. */
#define WIDE_TABLE kvf__wide_avx512
#define WIDE_LEVEL "avx512"
#include "wide_body.h"
