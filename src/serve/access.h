/* Who may ask: names by which requests come, pages that may read answers, the token (access.c). */
#ifndef KVF_ACCESS_H
#define KVF_ACCESS_H

#include <kvfold/serve.h>

#include "base_int.h"

/* Does a Host header name this machine, the address listened on, or a name that is allowed? */
bool kvf__host_known(const kvf_serve_options *options, const char *host);
/* What a page of this origin (a header Origin, NULL: none) is told that it may be: itself, "*"
 * where any page may read answers, or NULL. */
const char *kvf__origin_allowed(const kvf_serve_options *options, const char *origin);
/* EUSAGE: one of options->cors is no origin. */
kvf_status kvf__origins_check(kvf_ctx *ctx, const kvf_serve_options *options);
/* Equal, in a time that depends on the length of `given` alone. */
bool kvf__token_equal(const char *given, const char *token);
/* The first line of a file, without white space around it. EFORMAT: it is empty. */
kvf_status kvf__token_read(kvf_ctx *ctx, const char *path, char **out);

#endif
