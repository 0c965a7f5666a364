/* This program as a process of its own, whose JSON is read: for work that must be measured alone,
 * since the largest resident memory of a process never falls again. */
#include "cli_compare.h"

#include <errno.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

void cli_argument(cli_arguments *a, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    char *text = n >= 0 && a->n < CLI_MOST_ARGUMENTS ? malloc((size_t)n + 1) : NULL;
    if (!text) {
        a->lost = true;
        return;
    }
    va_start(args, fmt);
    vsnprintf(text, (size_t)n + 1, fmt, args);
    va_end(args);
    a->at[a->n++] = text;
}

void cli_argument_option(cli_arguments *a, const kvf__option_row *row, const char *value)
{
    if (row->kind != KVF_FLAG)
        cli_argument(a, "--%s=%s", row->name, value);
    else if (!value || !strcmp(value, "true"))
        cli_argument(a, "--%s", row->name);
}

/* *text: its standard output. Returns its exit status, -1 if it did not run. */
static int run(const cli_arguments *a, char **text)
{
    int ends[2], status = -1;
    size_t size = 0;
    pid_t child;
    posix_spawn_file_actions_t actions;
    *text = NULL;
    if (pipe(ends)) return -1;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    posix_spawn_file_actions_addclose(&actions, ends[0]);
    posix_spawn_file_actions_addclose(&actions, ends[1]);
    int failed = posix_spawn(&child, "/proc/self/exe", &actions, NULL, a->at, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    FILE *output = fdopen(ends[0], "r");
    if (!output) close(ends[0]);
    if (output && !failed && getdelim(text, &size, 0, output) < 0 &&
        *text) /* JSON has no zero byte */
        **text = 0;
    if (output) fclose(output);
    while (!failed && waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    return failed || !WIFEXITED(status) ? -1 : WEXITSTATUS(status);
}

kvf_json *cli_run_self(const cli_call *call, cli_arguments *a, const char *what)
{
    kvf_json *object = NULL;
    char *text = NULL;
    const char *threads = cli_given_value(call, "threads");
    if (threads) cli_argument(a, "--threads=%s", threads);
    cli_argument(a, "--json");
    int status = a->lost ? -1 : run(a, &text);
    if (!status && text && kvf_json_parse(call->ctx, a->at[1], text, strlen(text), &object))
        cli_fail(call->command, "%s", kvf_ctx_error(call->ctx));
    if (status) cli_fail(call->command, "%s for %s failed", a->at[1], what);
    for (size_t i = 0; i < a->n; i++)
        free(a->at[i]);
    *a = (cli_arguments){.n = 0};
    free(text);
    return object;
}
