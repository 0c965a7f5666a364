/* Gives hostile HDF5 files to the command, which may only read or refuse them. In turn, the files
 * of kvfold get a few changed bytes with corrected checksums, or false contents (h5_lies.c); some
 * are sealed. A crash or endless loop of HDF5 in the process that tries a file counts as a refusal.
 * Failures are signals, sanitizer reports, exceeded limits of time or memory, and an exit without
 * an error line. The file of a failure is kept, with the number that makes it again.
 *
 * Usage: h5_contained KVFOLD SEED FIRST COUNT, in a folder that h5_contained.sh has filled: files
 * FIRST to FIRST + COUNT - 1 of a seed. */
#include "fuzz_mutate.h"
#include "h5.h"
#include "h5_lies.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    MAX_FILES = 64,
    MAX_SUMS = 1024,
    MAX_CHANGES = 4,
    MAX_COMMANDS = 8,
    MAX_WORDS = 64,
    PATH_BYTES = 512,
    SEAL_BYTES = 50,
    MOST_SECONDS = 60,
    NAP_US = 1000,
    TIMES_FILE = 16,
};
/* The limit of the process that tries a file: TIMES_FILE times the file's size plus 64 MiB and the
 * program. Under the address sanitizer that process has no limit of its own. */
#if defined(__SANITIZE_ADDRESS__)
enum { MOST_KIB = 4 << 20 };
#else
enum { MOST_KIB = 128 << 10 };
#endif
static const char INPUT[] = "input.h5", LINES[] = "lines";

extern char **environ;

typedef struct subject {
    char path[PATH_BYTES];
    kvf__buf file, lines; /* without a seal; its commands */
    const char *commands[MAX_COMMANDS];
    size_t n_commands;
    fuzz_h5_sum sums[MAX_SUMS];
    size_t n_sums;
} subject;

typedef struct tally {
    int read, refused, crashed, unwritten, failed;
    long most_kib;
} tally;

static void need(bool fine, const char *what)
{
    if (fine) return;
    fprintf(stderr, "h5_contained: %s: %s\n", what, strerror(errno));
    exit(2);
}

static void put(const char *path, const void *bytes, size_t n)
{
    FILE *file = fopen(path, "wb");
    need(file && fwrite(bytes, 1, n, file) == n && !fclose(file), path);
}

/* ---- commands -------------------------------------------------------------------------------- */

/* Splits the line in place: argv[1] on, with INPUT in place of FILE. */
static void split(char *line, char **argv)
{
    size_t n = 1;
    for (char *word = strtok(line, " "); word && n + 1 < MAX_WORDS; word = strtok(NULL, " "))
        argv[n++] = strcmp(word, "FILE") ? word : (char *)INPUT;
    argv[n] = NULL;
}

/* The status of waitpid; a process that takes too long is killed. */
static int wait_for(pid_t pid, struct rusage *used)
{
    int ended = 0;
    for (long naps = 0; wait4(pid, &ended, WNOHANG, used) == 0; naps++) {
        if (naps == MOST_SECONDS * (1000000L / NAP_US)) kill(pid, SIGKILL);
        usleep(NAP_US);
    }
    return ended;
}

static int run(char *program, const char *command, struct rusage *used)
{
    char line[PATH_BYTES * 2], *argv[MAX_WORDS] = {program};
    posix_spawn_file_actions_t actions;
    pid_t pid = 0;

    snprintf(line, sizeof line, "%s", command);
    split(line, argv);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 2, LINES, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    need(!posix_spawn(&pid, program, &actions, NULL, argv, environ), program);
    posix_spawn_file_actions_destroy(&actions);
    return wait_for(pid, used);
}

/* Sanitizers, if any, write reports to files. Crashes are left to the system. Invalid copies inside
 * HDF5 are not reported; their effects are detected as in other builds. */
static void set_sanitizers(void)
{
    static const char suppressed[] = "interceptor_via_lib:libhdf5\n";
    put("suppressions", suppressed, sizeof suppressed - 1);
    setenv("UBSAN_OPTIONS", "log_path=report:exitcode=99:halt_on_error=1:print_stacktrace=1", 1);
    setenv("ASAN_OPTIONS",
           "log_path=report:exitcode=99:handle_segv=0:handle_sigbus=0:handle_sigfpe=0:"
           "allocator_may_return_null=1:suppressions=suppressions",
           1);
}

/* More than a warning, such as one for a refused allocation. */
static bool has_reports(void)
{
    glob_t found;
    const bool any = !glob("report.*", 0, NULL, &found);
    globfree(&found);
    return any && !system("grep -q -e ERROR -e 'runtime error' report.*");
}

/* A refusal has a line of the command; diff has another status for files that differ. */
static void judge(const char *command, int ended, const char *said, tally *t)
{
    const int code = WIFEXITED(ended) ? WEXITSTATUS(ended) : -1;
    const bool has_line = !strncmp(said, "kvfold: ", 8), diff = !strncmp(command, "diff ", 5);
    if (has_reports())
        t->failed++;
    else if (code == 0 || (code == 1 && diff && !*said))
        t->read++;
    else if (code == 1 && strstr(said, "in a separate process"))
        t->crashed++;
    else if ((code == 1 || code == 2) && has_line)
        t->refused++;
    else
        t->failed++;
}

/* Runs the command on INPUT; returns its outcome as text. */
static const char *try_command(kvf_ctx *ctx, char *program, const char *command, tally *t)
{
    static char text[PATH_BYTES * 2];
    struct rusage used = {0};
    kvf__buf said = {0};
    struct stat info;
    need(!stat(INPUT, &info), INPUT);
    const int ended = run(program, command, &used);
    need(!kvf__read_file(ctx, LINES, 1 << 20, &said), LINES);
    judge(command, ended, said.data, t);
    if (used.ru_maxrss > t->most_kib) t->most_kib = used.ru_maxrss;
    t->failed += used.ru_maxrss > MOST_KIB + TIMES_FILE * (info.st_size >> 10);
    snprintf(text, sizeof text, "status %d, %ld KiB, %.200s", ended, used.ru_maxrss, said.data);
    kvf__buf_done(&said);
    return text;
}

/* ---- files ----------------------------------------------------------------------------------- */

static void change(kvf__rng *rng, const subject *s, uint8_t *bytes)
{
    for (uint64_t changes = 1 + kvf__rng_below(rng, MAX_CHANGES); changes; changes--) {
        const fuzz_h5_sum *block = &s->sums[kvf__rng_below(rng, s->n_sums)];
        if (kvf__rng_below(rng, 4)) /* mostly in metadata, of constant length */
            fuzz_mutate(rng, bytes + block->at, block->n, block->n);
        else
            fuzz_mutate(rng, bytes, s->file.n, s->file.n);
    }
    if (kvf__rng_below(rng, 8)) fuzz_h5_repair(bytes, s->sums, s->n_sums);
}

static void damage(kvf__rng *rng, const subject *s)
{
    uint8_t *bytes = malloc(s->file.n);
    need(bytes != NULL, "memory");
    memcpy(bytes, s->file.data, s->file.n);
    change(rng, s, bytes);
    put(INPUT, bytes, s->file.n);
    free(bytes);
}

static void seal(kvf_ctx *ctx)
{
    const int fd = open(INPUT, O_RDWR);
    need(fd >= 0 && !kvf__h5_seal(ctx, fd, INPUT), INPUT);
    close(fd);
}

/* Runs in a process of its own, because HDF5 may crash while it writes false contents, and keeps
 * memory. Returns false after a crash. */
static bool lie(kvf_ctx *ctx, kvf__rng *rng, const subject *s)
{
    int ended = 0;
    const pid_t pid = fork();
    need(pid >= 0, "fork");
    if (!pid) {
        const bool fine = h5_lies_copy(rng, s->path, INPUT);
        if (fine && kvf__rng_below(rng, 2)) seal(ctx);
        _exit(!fine);
    }
    need(waitpid(pid, &ended, 0) == pid, "fork");
    return ended == 0;
}

/* Makes INPUT, file `number` of the seed, with the same bytes every time. Returns a command that
 * reads it, or NULL if HDF5 cannot write it. */
static const char *make(kvf_ctx *ctx, const char *seed, long number, const subject *all, size_t n)
{
    kvf__rng rng = kvf__rng_make(strtoull(seed, NULL, 10), (uint64_t)number);
    const subject *s = &all[kvf__rng_below(&rng, n)];
    const char *command = s->commands[kvf__rng_below(&rng, s->n_commands)];
    unlink(INPUT);
    if (number % 2) return lie(ctx, &rng, s) ? command : NULL;
    damage(&rng, s);
    return command;
}

/* Keeps INPUT, made again because the command may have replaced it, and prints the sanitizers'
 * reports. */
static void keep(const char *seed, long number, const char *command, const char *how)
{
    char text[PATH_BYTES];
    snprintf(text, sizeof text, "h5_contained-%s-%ld.h5", seed, number);
    printf("%s: kvfold %s: %s\n", text, command, how);
    need(!rename(INPUT, text), text);
    if (!has_reports()) return;
    fflush(stdout);
    need(!system("cat report.*; rm -f report.*"), "reports");
}

static void try_one(kvf_ctx *ctx, char *program, const char *seed, long number, const subject *all,
                    size_t n, tally *t)
{
    const char *command = make(ctx, seed, number, all, n);
    const int failed = t->failed;
    if (!command) {
        printf("file %ld of seed %s: HDF5 cannot write it\n", number, seed);
        t->unwritten++;
        return;
    }
    const char *how = try_command(ctx, program, command, t);
    if (t->failed == failed) return;
    make(ctx, seed, number, all, n);
    keep(seed, number, command, how);
}

/* ---- subjects -------------------------------------------------------------------------------- */

static void read_commands(kvf_ctx *ctx, subject *s)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%.*s.commands", (int)strlen(s->path) - 3, s->path);
    need(!kvf__read_file(ctx, path, 1 << 16, &s->lines), path);
    for (char *line = strtok(s->lines.data, "\n"); line; line = strtok(NULL, "\n")) {
        need(s->n_commands < MAX_COMMANDS, path);
        s->commands[s->n_commands++] = line;
    }
}

/* Checks that each command reads the unchanged file; otherwise later results prove nothing. */
static void check_commands(kvf_ctx *ctx, char *program, const subject *s)
{
    for (size_t i = 0; i < s->n_commands; i++) {
        tally t = {0};
        put(INPUT, s->file.data, s->file.n);
        const char *how = try_command(ctx, program, s->commands[i], &t);
        if (t.read == 1) continue;
        printf("%s: kvfold %s: %s\n", s->path, s->commands[i], how);
        exit(2);
    }
}

static size_t read_subjects(kvf_ctx *ctx, subject *out)
{
    glob_t found;
    need(!glob("*.commands", 0, NULL, &found) && found.gl_pathc <= MAX_FILES, "*.commands");
    for (size_t i = 0; i < found.gl_pathc; i++) {
        subject *s = &out[i];
        const int n = (int)(strlen(found.gl_pathv[i]) - strlen(".commands"));
        snprintf(s->path, sizeof s->path, "%.*s.h5", n, found.gl_pathv[i]);
        need(!kvf__read_file(ctx, s->path, 1 << 24, &s->file), s->path);
        if (!memcmp(s->file.data + s->file.n - SEAL_BYTES, "\nkvfold ", 8)) s->file.n -= SEAL_BYTES;
        s->n_sums = fuzz_h5_sums((uint8_t *)s->file.data, s->file.n, s->sums, MAX_SUMS);
        need(s->n_sums > 1, "checksums");
        read_commands(ctx, s);
    }
    const size_t n = found.gl_pathc;
    globfree(&found);
    return n;
}

int main(int argc, char **argv)
{
    static subject subjects[MAX_FILES];
    kvf_ctx *ctx = NULL;
    tally t = {0};

    if (argc != 5 || kvf_ctx_create(NULL, &ctx)) return 2;
    const long first = atol(argv[3]), count = atol(argv[4]);
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
    set_sanitizers();
    const size_t n = read_subjects(ctx, subjects);
    for (size_t i = 0; i < n; i++)
        check_commands(ctx, argv[1], &subjects[i]);
    for (long i = first; i < first + count; i++)
        try_one(ctx, argv[1], argv[2], i, subjects, n, &t);
    printf("%d read, %d refused, %d refused because HDF5 failed on them, %d that HDF5 cannot "
           "write, %d "
           "failures; at most %ld MiB\n",
           t.read, t.refused, t.crashed, t.unwritten, t.failed, t.most_kib >> 10);
    for (size_t i = 0; i < n; i++) {
        kvf__buf_done(&subjects[i].file);
        kvf__buf_done(&subjects[i].lines);
    }
    kvf_ctx_free(ctx);
    return t.failed > 0;
}
