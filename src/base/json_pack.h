/* JSON values by a format, and of many numbers. */
#ifndef KVF_JSON_PACK_H
#define KVF_JSON_PACK_H

#include "base_int.h"

/* jansson's json_pack, "{s:s, s:I, s:[o, o]}": s a text, which must be UTF-8; I an int64_t, b an
 * int, f a finite double, n null; o a kvf_json, which is taken over even where packing fails. s?
 * and o? make null of NULL. NULL where anything fails, so that the check may wait as in
 * <kvfold/json.h>. */
kvf_json *kvf__json_pack(const char *format, ...);

/* Arrays of numbers [n]. */
kvf_json *kvf__json_ints(const int64_t *values, int64_t n);
kvf_json *kvf__json_reals(const double *values, int64_t n);

#endif
