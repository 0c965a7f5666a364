/* The functions of wide.h with AVX2. */
#define WIDE_TABLE kvf__wide_avx2
#define WIDE_LEVEL "avx2"
#include "wide_body.h"
