/* Runs a fuzz target over the inputs of its corpus, as they are and cut off at every length (larger
 * ones at 200 lengths): the normal tests, with any compiler.
 *
 * Usage: replay_TARGET FILE|FOLDER... */
#include "fuzz.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CUTS = 200, ALARM_SECONDS = 100 };

static int n_inputs, n_runs;

/* A copy of just n bytes, so that the sanitizer sees any step beyond. */
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
    n_inputs++;
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

int main(int argc, char **argv)
{
    int code = 0;
    alarm(ALARM_SECONDS); /* a hang is a failure */
    for (int i = 1; i < argc; i++)
        code |= run_path(argv[i]);
    printf("%d inputs, %d runs\n", n_inputs, n_runs);
    return code || n_inputs == 0;
}
