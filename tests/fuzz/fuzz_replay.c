/* Runs a fuzz target over the inputs of its corpus, unchanged and cut at every length (larger ones
 * at 200 lengths). Works in the normal tests, with any compiler.
 *
 * With -mutations=N it then runs N blind mutations of them, where there is no libFuzzer: an input
 * on which it dies is left in the file `crash`.
 *
 * Usage: replay_TARGET [-mutations=N] FILE|FOLDER... */
#include "fuzz.h"
#include "fuzz_mutate.h"
#include "infile.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CUTS = 200, ALARM_SECONDS = 100 };

enum { MAX_INPUTS = 256, MAX_GROWTH = 64 };

static int n_inputs, n_runs;
static kvf__buf inputs[MAX_INPUTS];
static const uint8_t *now; /* the current mutation, for the signal handler */
static size_t now_n;

/* A copy of exactly n bytes, so that the sanitizer detects any access beyond. */
static void run_input(const char *bytes, size_t n)
{
    uint8_t *copy = malloc(n ? n : 1);
    if (!copy) abort();
    if (n) memcpy(copy, bytes, n);
    LLVMFuzzerTestOneInput(copy, n);
    free(copy);
    n_runs++;
}

static int run_file(const char *path)
{
    kvf__buf text = {0};
    if (kvf__read_file(fuzz_context(), path, 1 << 24, &text)) {
        printf("%s\n", kvf_ctx_error(fuzz_context()));
        return 1;
    }
    size_t step = text.n / CUTS + 1;
    for (size_t n = 0; n < text.n; n += step)
        run_input(text.data, n);
    run_input(text.data, text.n);
    if (n_inputs < MAX_INPUTS)
        inputs[n_inputs++] = text;
    else
        kvf__buf_done(&text);
    return 0;
}

static int run_path(const char *path)
{
    DIR *dir = opendir(path);
    int code = 0;
    if (!dir) return run_file(path);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        char name[4096];
        if (entry->d_name[0] == '.') continue;
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        code |= run_file(name);
    }
    closedir(dir);
    return code;
}

/* ---- mutations ------------------------------------------------------------------------------- */

static void keep_crash(int number)
{
    int fd = open("crash", O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (fd >= 0 && write(fd, now, now_n) == (ssize_t)now_n) close(fd);
    signal(number, SIG_DFL);
    raise(number);
}

static void run_mutations(long long count)
{
    kvf__rng rng = kvf__rng_make(1, 0);
    signal(SIGSEGV, keep_crash);
    signal(SIGABRT, keep_crash);
    signal(SIGFPE, keep_crash);
    signal(SIGBUS, keep_crash);
    signal(SIGALRM, keep_crash);
    for (long long i = 0; i < count; i++) {
        const kvf__buf *input = &inputs[kvf__rng_below(&rng, (uint64_t)n_inputs)];
        size_t n = input->n, room = n + MAX_GROWTH;
        uint8_t *copy = malloc(room);
        if (!copy || !n) abort();
        memcpy(copy, input->data, n);
        for (uint64_t changes = 1 + kvf__rng_below(&rng, 4); changes; changes--)
            n = fuzz_mutate(&rng, copy, n, room);
        now = copy;
        now_n = n;
        alarm(ALARM_SECONDS);
        LLVMFuzzerTestOneInput(copy, n);
        free(copy);
        n_runs++;
    }
}

int main(int argc, char **argv)
{
    int code = 0;
    long long mutations = 0;
    alarm(ALARM_SECONDS); /* a hang is a failure */
    for (int i = 1; i < argc; i++)
        if (sscanf(argv[i], "-mutations=%lld", &mutations) != 1) code |= run_path(argv[i]);
    if (n_inputs) run_mutations(mutations);
    for (int i = 0; i < n_inputs; i++)
        kvf__buf_done(&inputs[i]);
    printf("%d inputs, %d runs\n", n_inputs, n_runs);
    return code || n_inputs == 0;
}
