/* The access log: a line of JSON for each request that was answered or abandoned (access_log.c). */
#ifndef KVF_ACCESS_LOG_H
#define KVF_ACCESS_LOG_H

#include "call.h"

/* Opens a file for appending; "-": standard output. EIO: it cannot be opened. */
kvf_status kvf__access_log_open(kvf_ctx *ctx, const char *path, int *fd);
void kvf__access_log_close(int fd); /* -1: does nothing */
/* Writes a line. client: address of the client; reply: model and counts, model NULL: none. Write
 * errors are ignored. Headers and bodies are not logged. */
void kvf__access_log_write(int fd, const kvf__call *call, const char *client,
                           const kvf__reply *reply);

#endif
