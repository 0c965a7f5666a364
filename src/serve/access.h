/* Access control: accepted host names, origins that may read answers, API keys and the models that
 * each may use (access.c). */
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

/* A client with a key of its own: a line of --token-file. */
typedef struct kvf__tenant {
    char *token;
    char **patterns; /* [n_patterns] names of its models, as of fnmatch; none: all models */
    size_t n_patterns;
    int64_t line; /* number in the file */
    /* protected by the queue's lock */
    int64_t rows, waiting;     /* choices that are computed; jobs that wait */
    double budget, filled;     /* tokens that it may use; clock of the last refill */
    int64_t accepted, refused; /* jobs; refused: by a limit of tenants */
    int64_t prompt_tokens, new_tokens;
} kvf__tenant;
typedef struct kvf__tenants {
    kvf__tenant *item; /* [n] */
    size_t n;
} kvf__tenants;
/* Reads lines of TOKEN [PATTERN ...]; blank lines are skipped. EFORMAT: there is none, or a token
 * occurs twice. */
kvf_status kvf__tenants_read(kvf_ctx *ctx, const char *path, kvf__tenants *out);
void kvf__tenants_done(kvf__tenants *tenants);
/* Returns the tenant with this token, in a time that does not depend on it; NULL: none. */
kvf__tenant *kvf__tenant_of(const kvf__tenants *tenants, const char *token);
/* Returns whether a tenant (NULL: a server without keys) may use and see a model. */
bool kvf__tenant_may(const kvf__tenant *tenant, const char *model);

#endif
