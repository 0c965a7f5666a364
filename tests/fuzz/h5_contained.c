/* What HDF5 itself does with hostile bytes harms nobody: kvfold's own files, changed in a few
 * places with all checksums made right again, go to `kvfold inspect`. It may describe them or
 * refuse them; where HDF5 crashes or runs wild in the process that tries the file, that is a
 * refusal too. Any other end of the command is a failure, and the input is kept.
 *
 * Usage: h5_contained KVFOLD COUNT SEED FILE... ; works in a folder of its own, which is removed.
 */
#include "fuzz_mutate.h"
#include "infile.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_FILES = 16, MAX_SUMS = 256, MAX_CHANGES = 4, PATH_BYTES = 512 };

extern char **environ;

typedef struct subject {
    kvf__buf file;
    fuzz_h5_sum sums[MAX_SUMS];
    size_t n_sums;
} subject;

typedef struct tally {
    int described, refused, crashed, failed;
} tally;

static char folder[] = "/tmp/h5_contained_XXXXXX";
static char input[PATH_BYTES], lines[PATH_BYTES];

static bool put(const char *path, const uint8_t *bytes, size_t n)
{
    FILE *file = fopen(path, "wb");
    bool ok = file && fwrite(bytes, 1, n, file) == n;
    if (file && fclose(file)) ok = false;
    return ok;
}

/* The status of waitpid. */
static int inspect(char *program)
{
    char *const argv[] = {program, "inspect", input, NULL};
    posix_spawn_file_actions_t actions;
    int ended = -1;
    pid_t pid;

    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 2, lines, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (!posix_spawn(&pid, program, &actions, NULL, argv, environ))
        while (waitpid(pid, &ended, 0) < 0 && errno == EINTR)
            ;
    posix_spawn_file_actions_destroy(&actions);
    return ended;
}

static bool lines_have(kvf_ctx *ctx, const char *part)
{
    kvf__buf text = {0};
    bool found = !kvf__read_file(ctx, lines, 1 << 20, &text) && strstr(text.data, part);
    kvf__buf_done(&text);
    return found;
}

static void judge(kvf_ctx *ctx, int ended, tally *t)
{
    if (WIFEXITED(ended) && WEXITSTATUS(ended) == 0)
        t->described++;
    else if (WIFEXITED(ended) && WEXITSTATUS(ended) == 1 &&
             lines_have(ctx, "in a process of its own"))
        t->crashed++;
    else if (WIFEXITED(ended) && WEXITSTATUS(ended) == 1 && lines_have(ctx, "kvfold: inspect: "))
        t->refused++;
    else
        t->failed++;
}

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

static void try_one(kvf_ctx *ctx, char *program, const subject *s, kvf__rng *rng, tally *t)
{
    uint8_t *bytes = malloc(s->file.n);
    int failed = t->failed;
    char kept[PATH_BYTES];

    if (!bytes) abort();
    memcpy(bytes, s->file.data, s->file.n);
    change(rng, s, bytes);
    if (!put(input, bytes, s->file.n)) abort();
    judge(ctx, inspect(program), t);
    snprintf(kept, sizeof kept, "h5_contained-%d.h5", t->failed);
    if (t->failed > failed && put(kept, bytes, s->file.n)) printf("kept %s\n", kept);
    free(bytes);
}

static int read_subjects(kvf_ctx *ctx, char **paths, int n, subject *out)
{
    for (int i = 0; i < n; i++) {
        if (kvf__read_file(ctx, paths[i], 1 << 24, &out[i].file)) {
            printf("%s\n", kvf_ctx_error(ctx));
            return 1;
        }
        out[i].n_sums = fuzz_h5_sums((uint8_t *)out[i].file.data, out[i].file.n, out[i].sums,
                                     MAX_SUMS);
        if (out[i].n_sums < 2) {
            printf("%s: %zu checksums, want the superblock's and more\n", paths[i], out[i].n_sums);
            return 1;
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    static subject subjects[MAX_FILES];
    kvf_ctx *ctx = NULL;
    tally t = {0};
    int n = argc - 4;

    if (n < 1 || n > MAX_FILES || kvf_ctx_create(NULL, &ctx) || !mkdtemp(folder)) return 2;
    snprintf(input, sizeof input, "%s/input.h5", folder);
    snprintf(lines, sizeof lines, "%s/lines", folder);
    kvf__rng rng = kvf__rng_make((uint64_t)atoll(argv[3]), 0);
    int code = read_subjects(ctx, argv + 4, n, subjects);
    for (int i = 0; !code && i < atoi(argv[2]); i++)
        try_one(ctx, argv[1], &subjects[i % n], &rng, &t);
    printf("%d described, %d refused, %d refused because HDF5 failed on them, %d failures\n",
           t.described, t.refused, t.crashed, t.failed);
    unlink(input);
    unlink(lines);
    rmdir(folder);
    for (int i = 0; i < n; i++)
        kvf__buf_done(&subjects[i].file);
    kvf_ctx_free(ctx);
    return code || t.failed > 0;
}
