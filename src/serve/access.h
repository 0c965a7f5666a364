/* Access control: accepted host names, origins that may read answers, the API key (access.c). */
#ifndef KVF_ACCESS_H
#define KVF_ACCESS_H

#include <kvfold/serve.h>

#include "base_int.h"

/* True if a Host header names this machine, the listen address, or an allowed name. */
bool kvf__host_known(const kvf_serve_options *options, const char *host);
/* Returns the Access-Control-Allow-Origin value for an Origin header (NULL: none): the origin, "*"
 * if any page may read answers, or NULL. */
const char *kvf__origin_allowed(const kvf_serve_options *options, const char *origin);
/* EUSAGE: an element of options->cors is not an origin. */
kvf_status kvf__origins_check(kvf_ctx *ctx, const kvf_serve_options *options);
/* Compares in a time that depends only on the length of `given`. */
bool kvf__token_equal(const char *given, const char *token);
/* Reads the first line of a file without surrounding white space. EFORMAT: it is empty. */
kvf_status kvf__token_read(kvf_ctx *ctx, const char *path, char **out);

#endif
