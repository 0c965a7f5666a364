/* Runs this program as a child process and reads its JSON, for work that must be measured alone,
 * because the peak memory of a process never decreases. */
#include "cli_compare.h"

#include <errno.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
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

void cli_arguments_done(cli_arguments *a)
{
    for (size_t i = 2; i < a->n; i++)
        free(a->at[i]);
    a->n = 2;
}

void cli_argument_option(cli_arguments *a, const kvf__option_row *row, const char *value)
{
    if (row->kind != KVF_FLAG)
        cli_argument(a, "--%s=%s", row->name, value);
    else if (!value || !strcmp(value, "true"))
        cli_argument(a, "--%s", row->name);
}

typedef struct own_process {
    pid_t id;
    FILE *output, *lines; /* its standard output; its error lines */
} own_process;

/* Starts the process with two pipes for its output. */
static bool start(const cli_arguments *a, own_process *p)
{
    int output[2], lines[2];
    char number[16];
    posix_spawn_file_actions_t actions;
    if (pipe(output)) return false;
    if (pipe(lines)) {
        close(output[0]);
        close(output[1]);
        return false;
    }
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, output[1], 1);
    posix_spawn_file_actions_addclose(&actions, output[0]);
    posix_spawn_file_actions_addclose(&actions, output[1]);
    posix_spawn_file_actions_addclose(&actions, lines[0]);
    snprintf(number, sizeof number, "%d", lines[1]);
    setenv(CLI_LINES_FD, number, 1);
    const int failed = posix_spawn(&p->id, "/proc/self/exe", &actions, NULL, a->at, environ);
    unsetenv(CLI_LINES_FD);
    posix_spawn_file_actions_destroy(&actions);
    close(output[1]);
    close(lines[1]);
    p->output = fdopen(output[0], "r");
    p->lines = fdopen(lines[0], "r");
    if (!p->output) close(output[0]);
    if (!p->lines) close(lines[0]);
    return !failed;
}

/* Runs the process. *text: its standard output, JSON without zero bytes. line: its last error line,
 * "" if none. Returns its exit status, or -1 if it did not run or was ended by a signal. */
static int run(const cli_arguments *a, char **text, char line[CLI_LINE_BYTES])
{
    own_process p = {.id = -1};
    int status = -1;
    size_t size = 0;
    *text = NULL;
    const bool started = start(a, &p);
    if (started) *line = 0;
    if (p.output && started && getdelim(text, &size, 0, p.output) < 0 && *text) **text = 0;
    while (p.lines && started && fgets(line, CLI_LINE_BYTES, p.lines))
        line[strcspn(line, "\n")] = 0;
    if (p.output) fclose(p.output);
    if (p.lines) fclose(p.lines);
    while (started && waitpid(p.id, &status, 0) < 0 && errno == EINTR)
        ;
    if (started && WIFSIGNALED(status))
        snprintf(line, CLI_LINE_BYTES, "ended by signal %d", WTERMSIG(status));
    return started && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

kvf_json *cli_run_self(const cli_call *call, const char *command, cli_arguments *a,
                       const char *what, char line[CLI_LINE_BYTES])
{
    kvf_json *object = NULL;
    char *text = NULL, own[CLI_LINE_BYTES] = "it could not be started";
    const char *threads = cli_given_value(call, "threads");
    if (threads) cli_argument(a, "--threads=%s", threads);
    cli_argument(a, "--json");
    a->at[0] = (char *)"kvfold";
    a->at[1] = (char *)command;
    int status = a->lost ? -1 : run(a, &text, own);
    if (!status && text && kvf_json_parse(call->ctx, command, text, strlen(text), &object))
        cli_fail(call->command, "%s", kvf_ctx_error(call->ctx));
    if (status) cli_fail(call->command, "%s for %s failed", command, what);
    if (line) snprintf(line, CLI_LINE_BYTES, "%s", own);
    cli_arguments_done(a);
    free(text);
    return object;
}
