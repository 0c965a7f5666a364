/* SIGINT and SIGTERM while a run trains: the first asks it to finish its step and save, the second
 * ends the program as if there were no handler. The flag is the one mutable global of the command:
 * a handler has nowhere else to write. */
#include "cli_int.h"

#include <signal.h>
#include <string.h>

static volatile int stop_flag;

static void on_signal(int number)
{
    if (stop_flag) {
        signal(number, SIG_DFL);
        raise(number); /* delivered when this handler returns */
        return;
    }
    stop_flag = number;
}

const volatile int *cli_stop_install(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART; /* a read or write on its way is not disturbed */
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    return &stop_flag;
}

int cli_stop_signal(void)
{
    return stop_flag;
}
