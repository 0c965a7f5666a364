/* Detection of fork() after computing. OpenMP's threads stay in the parent, so the child would wait
 * for them forever; it gets an error instead. A child of a parent that has not computed may
 * compute. */
#include "ctx_int.h"

#include <pthread.h>
#include <stdatomic.h>

static atomic_bool computed; /* this process has computed with several threads */
static bool lost;            /* a parent process had such threads */

static void look_after_fork(void)
{
    lost = lost || computed;
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, look_after_fork);
}

kvf_status kvf__check_fork(kvf_ctx *ctx)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, watch_forks);
    if (lost)
        return kvf__fail(ctx, KVF_EUSAGE,
                         "this process was forked after computing and lacks the parent's threads: "
                         "fork earlier, or start a program by exec");
    if (ctx && ctx->threads > 1) computed = true;
    return KVF_OK;
}
