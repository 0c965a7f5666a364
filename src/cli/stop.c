/* SIGINT and SIGTERM. While a run trains or a server answers, the first signal requests a stop
 * after saving. A second signal, or the first one in any other command, ends the program as without
 * a handler, but removes unfinished outputs. A signal that was ignored at the start, such as SIGINT
 * after a shell's `&`, stays ignored. A closed pipe is noticed by write errors rather than SIGPIPE,
 * which also comes for sockets and logs. SIGBUS is reported here, because the library installs no
 * handlers. The flag and the context are mutable globals of the command, because a handler cannot
 * get them otherwise. */
#include "cli_progress.h"

#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

static volatile int stop_flag;
static kvf_ctx *volatile open_context;

static void end(int number)
{
    if (open_context) kvf__ctx_drop_outputs(open_context);
    signal(number, SIG_DFL);
    raise(number); /* delivered when this handler returns */
}

static void say(const char *text)
{
    if (write(STDERR_FILENO, text, strlen(text)) < 0) return;
}

/* A page of a mapped file is missing: another program rewrote or truncated the file. Only the first
 * of several threads reports it. */
static void on_bus_error(int number, siginfo_t *info, void *context)
{
    static atomic_flag reported = ATOMIC_FLAG_INIT;
    const char *path = kvf__mapped_path(info->si_addr);
    (void)context;
    if (!path) {
        end(number);
        return;
    }
    while (atomic_flag_test_and_set(&reported))
        pause();
    say("kvfold: ");
    say(path);
    say(": changed while it was read; start again, and replace such a file only by renaming a new "
        "one\n");
    if (open_context) kvf__ctx_drop_outputs(open_context);
    _exit(CLI_FAILED);
}

static void watch_mapped_files(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO;
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, NULL);
}

static void on_signal(int number)
{
    if (stop_flag)
        end(number);
    else
        stop_flag = number;
}

static void install_one(int number, void (*handler)(int))
{
    struct sigaction action, before;
    if (!sigaction(number, NULL, &before) && before.sa_handler == SIG_IGN) return;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART; /* restart interrupted reads and writes */
    sigemptyset(&action.sa_mask);
    sigaction(number, &action, NULL);
}

static void install(void (*handler)(int))
{
    install_one(SIGINT, handler);
    install_one(SIGTERM, handler);
}

void cli_stop_clean(kvf_ctx *ctx)
{
    open_context = ctx;
    stop_flag = 0;
    install(ctx ? end : SIG_DFL);
    watch_mapped_files();
}

const volatile int *cli_stop_install(void)
{
    install(on_signal);
    return &stop_flag;
}

void cli_stop_unread(void)
{
    if (!stop_flag) stop_flag = SIGPIPE;
}

int cli_stop_signal(void)
{
    return stop_flag;
}

int cli_stopped(const cli_call *call, int number)
{
    if (number != SIGPIPE) cli_fail_status(call, KVF_ESTOPPED);
    return CLI_SIGNAL + number;
}
