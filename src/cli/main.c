/* kvfold: selects the command, its context and the exit status.
 *
 * libgomp reads its environment variables when it is loaded. By default its threads spin at every
 * barrier, which is several times slower once another process needs a core; threads that sleep at
 * once lose 3 to 8 % of a step to waking up. So a command that will compute sets passive waiting
 * after a short spin and executes itself again, once. An existing OMP_WAIT_POLICY stops the second
 * time and overrides the choice. Nothing may have been read before, because a pipe gives its bytes
 * only once. */
#include "cli_progress.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const cli_command *const COMMANDS[] = {&cli_train,    &cli_merge,    &cli_inspect,
                                              &cli_eval,     &cli_predict,  &cli_score,
                                              &cli_generate, &cli_import,   &cli_export,
                                              &cli_serve,    &cli_new_base, &cli_bench,
                                              &cli_compare,  &cli_sweep,    &cli_words,
                                              &cli_distill,  &cli_compose,  &cli_diff,
                                              &cli_prune,    &cli_quantize, &cli_convert_position,
                                              &cli_unmerge,  &cli_report,   &cli_completion};
enum { N_COMMANDS = sizeof COMMANDS / sizeof COMMANDS[0] };

const cli_command *cli_command_at(size_t index)
{
    return index < N_COMMANDS ? COMMANDS[index] : NULL;
}

const cli_command *cli_command_find(const char *name)
{
    for (size_t i = 0; i < N_COMMANDS; i++)
        if (!strcmp(COMMANDS[i]->name, name)) return COMMANDS[i];
    return NULL;
}

/* Opens missing standard streams, so that a file opened later does not become standard output and
 * receive results. They are opened in the wrong direction, so that using them is still an error. */
static void fill_standard_streams(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd ? O_RDONLY : O_WRONLY) < 0) return;
}

/* About 20 microseconds: the usual wait at a barrier, and no burden to a process that needs the
 * core. */
#define SPIN_COUNT "2000"
enum { PATH_BYTES = 4096 };

/* Returns the path of this program, so that ps shows its name and a tool that runs it is not
 * executed instead. Returns the link in /proc if that path does not exist any more. */
static const char *own_program(char path[PATH_BYTES])
{
    ssize_t n = readlink("/proc/self/exe", path, PATH_BYTES - 1);
    path[n > 0 ? n : 0] = 0;
    return access(path, X_OK) == 0 ? path : "/proc/self/exe";
}

/* Without /proc the program continues, only slower on a busy machine. */
static void wait_passively(char **argv)
{
    char path[PATH_BYTES];

    if (getenv("OMP_WAIT_POLICY") || setenv("OMP_WAIT_POLICY", "passive", 1)) return;
    if (setenv("GOMP_SPINCOUNT", SPIN_COUNT, 0)) return;
    execv(own_program(path), argv);
}

static int run_with_context(cli_call *call)
{
    char path[PATH_BYTES];
    const kvf_ctx_options options = {.threads = (int)call->common.threads,
                                     .log = cli_log,
                                     .log_user = call,
                                     .check_program = own_program(path)};
    kvf_status st = kvf_ctx_create(&options, &call->ctx);
    if (st == KVF_EUSAGE) return cli_misuse(call->command, "%s", call->log);
    if (st) return cli_fail(call->command, "%s", kvf_status_text(st));
    cli_stop_clean(call->ctx);
    int code = cli_check_outputs(call);
    if (!code) code = call->command->run(call);
    cli_stop_clean(NULL);
    /* Processes that train together separate when their contexts are freed. */
    code = cli_flush(call->command, code);
    kvf_ctx_free(call->ctx);
    return code;
}

static int run_parsed(cli_call *call)
{
    const char *recipe = cli_given_value(call, "recipe");
    int code = recipe ? cli_recipe_load(call, recipe) : CLI_OK;
    if (!code) code = cli_set_common(call);
    if (!code) code = cli_set_streams(call);
    if (!code) code = cli_check_given(call);
    return code ? code : run_with_context(call);
}

static int run_command(const cli_command *command, int argc, char **argv)
{
    cli_call call = {.command = command};
    int code = cli_parse(&call, argc - 2, argv + 2);
    if (!code && call.help) {
        cli_help_command(command, call.help_all);
    } else if (!code && command->lab && !kvf__has_lab) {
        code = cli_fail(command,
                        "this kvfold was built without the lab: build it with -Dlab=enabled");
    } else if (!code) {
        wait_passively(argv);
        code = run_parsed(&call);
    }
    cli_call_done(&call);
    return code;
}

static int print_version(void)
{
    char libraries[128];
    if (kvf_library_versions(libraries, sizeof libraries)) strcpy(libraries, "libraries unknown");
    printf("kvfold %s (%s)\n", KVF_VERSION, libraries);
    return CLI_OK;
}

static int help(int argc, char **argv)
{
    if (argc > 3) return cli_misuse(NULL, "help: unexpected argument \"%s\"", argv[3]);
    if (argc > 2 && strcmp(argv[2], "--help") && strcmp(argv[2], "-h"))
        return cli_help_topic(argv[2]);
    cli_help_program();
    return CLI_OK;
}

static int unknown_word(const char *word)
{
    if (*word == '-') return cli_misuse(NULL, "option \"%s\" is not known", word);
    kvf__nearest nearest = {.word = word, .n = strlen(word)};
    for (size_t i = 0; i < N_COMMANDS; i++)
        kvf__nearest_try(&nearest, COMMANDS[i]->name);
    kvf__nearest_try(&nearest, "help");
    return cli_misuse(NULL, "command \"%s\" is not known%s%s", word,
                      nearest.name ? ", the nearest is " : "", nearest.name ? nearest.name : "");
}

static int dispatch(int argc, char **argv)
{
    if (argc < 2) return cli_misuse(NULL, "no command is given");
    const char *word = argv[1];
    const cli_command *command = cli_command_find(word);
    if (command) return run_command(command, argc, argv);
    if (!strcmp(word, "--version")) return print_version();
    if (!strcmp(word, "--man") && argc <= 3) return cli_man(argv[2]); /* argv ends in NULL */
    if (!strcmp(word, "--check-hdf5") && argc == 3) return cli_check_hdf5(argv[2]);
    if (!strcmp(word, "help")) return help(argc, argv);
    if (!strcmp(word, "--help") || !strcmp(word, "-h")) return help(2, argv);
    return unknown_word(word);
}

int main(int argc, char **argv)
{
    fill_standard_streams();
    signal(SIGPIPE, SIG_IGN); /* treat a closed pipe as a write error, */
    signal(SIGXFSZ, SIG_IGN); /* and also a file above the size limit */
    const cli_command *command = argc > 1 ? cli_command_find(argv[1]) : NULL;
    return cli_finish(command, dispatch(argc, argv));
}
