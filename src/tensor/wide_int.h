/* Between the files that make up wide.h: its tables, from ref_wide.c and x86/wide_<level>.c. */
#ifndef KVF_WIDE_INT_H
#define KVF_WIDE_INT_H

#include "wide.h"

extern const kvf__wide kvf__wide_ref, kvf__wide_avx2, kvf__wide_avx512;

#endif
