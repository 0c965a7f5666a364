/* A request from its first line to the last byte of its answer: http.c receives and sends it,
 * routes.c decides the answer. */
#ifndef KVF_CALL_H
#define KVF_CALL_H

#include "server.h"

struct MHD_Connection;

typedef struct kvf__call {
    kvf__server *server;
    const struct kvf__route *route; /* NULL: unknown path */
    const char *url;                /* the path */
    kvf__tenant *tenant;            /* NULL: no key was needed */
    const char *limit, *after;      /* arguments of a list; NULL: not given */
    kvf__buf body;
    kvf__problem problem; /* status 0: no problem so far */
    /* answer of routes.c: one of these, or the problem */
    kvf__buf reply;
    const char *type;   /* content type of the reply */
    const char *policy; /* Content-Security-Policy of a page; NULL: none */
    kvf__job *job;

    /* private to http.c */
    struct MHD_Connection *connection;
    size_t discarded;
    const char *origin; /* origin that may read the answer (--cors); NULL: none */
    bool preflight;     /* CORS preflight request */
    char method[8];
    double arrived;
    unsigned status; /* sent status; 0: none yet */
    size_t sent;     /* body bytes of the answer */
} kvf__call;

typedef struct kvf__route {
    const char *method, *path;
    /* Called when the body is complete. A failure closes the connection. */
    kvf_status (*answer)(kvf__call *call);
    bool open;              /* requires no API key */
    bool whole;             /* requires a key for all models, if keys are in use */
    bool subpath;           /* the rest of the path is an argument */
    kvf__request_kind kind; /* kind of the job */
} kvf__route;
/* Returns NULL for an unknown path. */
const kvf__route *kvf__route_find(const char *url);

#endif
