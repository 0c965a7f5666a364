/* The listening socket of the server (listen.c). */
#ifndef KVF_LISTEN_H
#define KVF_LISTEN_H

#include <kvfold/serve.h>

#include "base_int.h"

typedef struct kvf__listener {
    int fd;
    int port;      /* actual port if options->port is 0 */
    bool loopback; /* reachable only from this machine */
} kvf__listener;
/* Listens on options->host and port. EUSAGE, EIO. */
kvf_status kvf__listen(kvf_ctx *ctx, const kvf_serve_options *options, kvf__listener *out);
kvf_status kvf__listen_fail(kvf_ctx *ctx, const kvf_serve_options *options, const char *why);

#endif
