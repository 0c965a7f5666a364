/* One request on its way from its first line to the last byte of its answer: http.c receives and
 * sends it, routes.c decides what is answered. */
#ifndef KVF_CALL_H
#define KVF_CALL_H

#include "server.h"

struct MHD_Connection;

typedef struct kvf__call {
    kvf__server *server;
    const struct kvf__route *route; /* NULL: the path leads nowhere */
    const char *url;                /* the path */
    kvf__buf body;
    kvf__problem problem; /* status 0: none so far */
    /* what routes.c answers: one of these, or the problem */
    kvf__buf reply;
    const char *type;   /* of the reply */
    const char *policy; /* Content-Security-Policy of a page; NULL: none */
    kvf__job *job;

    /* http.c's own */
    struct MHD_Connection *connection;
    size_t discarded;
    const char *origin; /* of a page that may read the answer (--cors); NULL: none */
    bool preflight;     /* it asks what such a page may send */
    char method[8];
    double arrived;
    unsigned status; /* that was sent; 0: none yet */
    size_t sent;     /* bytes of the answer's body */
} kvf__call;

typedef struct kvf__route {
    const char *method, *path;
    /* With the body whole. A failure closes the connection. */
    kvf_status (*answer)(kvf__call *call);
    bool open;              /* needs no token */
    bool subpath;           /* what follows path is an argument */
    kvf__request_kind kind; /* of a job */
} kvf__route;
/* NULL: there is none. */
const kvf__route *kvf__route_find(const char *url);

#endif
