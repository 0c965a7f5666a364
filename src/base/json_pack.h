/* JSON values from a format, and from arrays of numbers. */
#ifndef KVF_JSON_PACK_H
#define KVF_JSON_PACK_H

#include "base_int.h"

/* Builds a value by a format as jansson's json_pack, "{s:s, s:I, s:[o, o]}". s: a UTF-8 text; I: an
 * int64_t; b: an int; f: a finite double; n: null; o: a kvf_json, whose ownership passes even on
 * failure. s? and o? turn NULL into null. Returns NULL on any failure, so the check may wait as in
 * <kvfold/json.h>. */
kvf_json *kvf__json_pack(const char *format, ...);

/* Return arrays of numbers [n]. */
kvf_json *kvf__json_ints(const int64_t *values, int64_t n);
kvf_json *kvf__json_reals(const double *values, int64_t n);

#endif
