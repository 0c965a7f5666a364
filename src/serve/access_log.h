/* The access log: a line of JSON for each request that was answered or given up (access_log.c). */
#ifndef KVF_ACCESS_LOG_H
#define KVF_ACCESS_LOG_H

#include "call.h"

/* Appends to the file; "-": standard output. EIO: it cannot be opened. */
kvf_status kvf__access_log_open(kvf_ctx *ctx, const char *path, int *fd);
void kvf__access_log_close(int fd); /* -1 is fine */
/* client: address that asked; reply: model and counts, model NULL: none. What cannot be written is
 * lost. Neither headers nor bodies are written. */
void kvf__access_log_write(int fd, const kvf__call *call, const char *client,
                           const kvf__reply *reply);

#endif
