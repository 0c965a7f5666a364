/* One lock around HDF5, which may be built without thread safety (as in the wheel).
 *
 * A file holds it from its opening to its close, because the settings changed meanwhile belong to
 * the process, as does the error stack without thread safety. The same thread may open another file
 * in between, from a log callback. If the process is forked while another thread holds the lock,
 * the child cannot know the state of HDF5 and refuses to open files. */
#include "h5_raw.h"

#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local int depth; /* number of open files of this thread */
static bool lost;               /* this process is such a child */

/* Settings of the host, saved while the lock is held. */
static struct {
    H5E_auto2_t print;
    void *print_user;
    unsigned plugins;
    bool broken;
} host;

static void look_after_fork(void)
{
    if (depth) return;
    lost = pthread_mutex_trylock(&lock) != 0;
    if (!lost) pthread_mutex_unlock(&lock);
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, look_after_fork);
}

/* Disables HDF5's cleanup at exit: every file is closed here, and after a damaged file the cleanup
 * may crash. */
static void hush(void)
{
    H5dont_atexit();
    H5Eget_auto2(H5E_DEFAULT, &host.print, &host.print_user);
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    H5PLget_loading_state(&host.plugins);
    H5PLset_loading_state(0);
    host.broken = false;
}

static void unhush(void)
{
    H5PLset_loading_state(host.plugins);
    if (!host.broken) H5Eset_auto2(H5E_DEFAULT, host.print, host.print_user);
}

bool kvf__h5_enter(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, watch_forks);
    if (lost) return false;
    if (depth++) return true;
    pthread_mutex_lock(&lock);
    hush();
    return true;
}

void kvf__h5_leave(bool broken)
{
    host.broken |= broken;
    if (--depth) return;
    unhush();
    pthread_mutex_unlock(&lock);
}
