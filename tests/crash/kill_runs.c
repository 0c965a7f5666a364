/* Kills training with SIGKILL at random instants and checks three promises. The newest file opens.
 * Training resumes from it. The finished run equals an unbroken one byte for byte.
 *
 * Every kind of run goes through rounds of its own: begun, killed, looked at, finished from a copy,
 * then resumed where it was killed and killed again, until it ends by itself. Instants are uniform
 * over the time that an unbroken run takes, and drawn from a seed. Two workers with folders of
 * their own share the kills, because most of the time is spent waiting for the disk.
 *
 * Usage: kill_runs KVFOLD MAKE_TINY COUNT [SEED]; in a folder of its own, which is removed. */
#include "chance.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_ARGUMENTS = 48, PATH_BYTES = 4096 };

/* Each run saves after every step, so that about half of the kills meet a save. */
typedef struct variant {
    const char *name, *model, *data, *options;
} variant;

static const variant VARIANTS[] = {
    {"mlp", "llama", "train.jsonl",
     "--encoder-hidden 16 --valid valid.jsonl --eval-every 3 --steps 10"},
    {"direct", "llama", "train.jsonl", "--method direct --prefix-dropout 0.1 --steps 12"},
    {"head", "bert", "classes.jsonl",
     "--task seq-cls --valid classes.jsonl --eval-every 2 --early-stop 9 --steps 10"},
};
enum { N_VARIANTS = sizeof VARIANTS / sizeof VARIANTS[0], WORKERS = 2 };

/* Counts of the kills' outcomes. */
typedef struct tally {
    int kills, in_save, before_first, finished, failures;
} tally;

/* ---- processes ------------------------------------------------------------------------------- */

/* Runs a command with output to the file `log`. */
static pid_t start(const char *program, char *const *arguments)
{
    pid_t pid = fork();
    if (pid) return pid;
    int log = open("log", O_WRONLY | O_CREAT | O_TRUNC, 0666);
    dup2(log, 1);
    dup2(log, 2);
    execv(program, arguments);
    _exit(127);
}

/* Exit status, or 1000 + the signal that ended it. */
static int finish(pid_t pid)
{
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

/* Splits `line` at its blanks, in place. */
static void split(char *line, char *arguments[MAX_ARGUMENTS])
{
    int n = 0;
    for (char *at = strtok(line, " "); at && n < MAX_ARGUMENTS - 1; at = strtok(NULL, " "))
        arguments[n++] = at;
    arguments[n] = NULL;
}

static pid_t start_line(const char *program, const char *line)
{
    char copy[2048], *arguments[MAX_ARGUMENTS];
    snprintf(copy, sizeof copy, "%s", line);
    split(copy, arguments);
    return start(program, arguments);
}

static pid_t start_train(const char *kvfold, const variant *v, const char *out)
{
    char line[2048];
    snprintf(line, sizeof line,
             "kvfold train --base %s --data %s --out %s --resume --threads 1 --quiet "
             "--precision f32 --prefix-length 4 --save-every 1 --schedule constant %s",
             v->model, v->data, out, v->options);
    return start_line(kvfold, line);
}

static int train(const char *kvfold, const variant *v, const char *out)
{
    return finish(start_train(kvfold, v, out));
}

/* ---- files ----------------------------------------------------------------------------------- */

static bool exists(const char *path)
{
    return access(path, F_OK) == 0;
}

static void copy_file(const char *from, const char *to)
{
    char bytes[65536];
    size_t n;
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    while (in && out && (n = fread(bytes, 1, sizeof bytes, in)) > 0)
        if (fwrite(bytes, 1, n, out) != n) abort();
    if (!in || !out || fclose(in) || fclose(out)) abort();
}

static bool same_bytes(const char *a, const char *b)
{
    FILE *x = fopen(a, "rb"), *y = fopen(b, "rb");
    bool same = x && y;
    for (int p = 0; same && p != EOF;)
        same = (p = getc(x)) == getc(y);
    if (x) fclose(x);
    if (y) fclose(y);
    return same;
}

/* Files next to run.h5 whose names begin with its own: temporaries and locks. */
static int count_leftovers(const char *folder)
{
    int n = 0;
    DIR *dir = opendir(folder);
    for (struct dirent *entry; dir && (entry = readdir(dir)) != NULL;)
        n += !strncmp(entry->d_name, "run.h5.", 7);
    if (dir) closedir(dir);
    return n;
}

/* `format` takes the number of the row and a number from 0 to 2. */
static void write_rows(const char *path, int n, const char *format)
{
    FILE *file = fopen(path, "w");
    if (!file) abort();
    for (int i = 1; i <= n; i++)
        fprintf(file, format, i, i * i % 3);
    if (fclose(file)) abort();
}

static void make_inputs(const char *make_tiny)
{
    int bad = finish(start_line(make_tiny, "make_tiny llama 1 llama"));
    if (!bad) bad = finish(start_line(make_tiny, "make_tiny bert 2 bert"));
    if (bad) exit(2);
    write_rows("train.jsonl", 24, "{\"prompt\": \"after %d:\", \"completion\": \" %d\"}\n");
    write_rows("valid.jsonl", 6, "{\"prompt\": \"from %d:\", \"completion\": \" %d\"}\n");
    write_rows("classes.jsonl", 20, "{\"text\": \"word %d\", \"label\": \"%d\"}\n");
}

static void remove_folder(const char *folder)
{
    char path[PATH_BYTES];
    DIR *dir = opendir(folder);
    for (struct dirent *entry; dir && (entry = readdir(dir)) != NULL;) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (unlink(path)) remove_folder(path);
    }
    if (dir) closedir(dir);
    rmdir(folder);
}

/* ---- rounds ---------------------------------------------------------------------------------- */

static void show_log(void)
{
    char line[512];
    FILE *file = fopen("log", "r");
    while (file && fgets(line, sizeof line, file))
        printf("    %s", line);
    if (file) fclose(file);
}

static void check(tally *t, bool holds, const variant *v, const char *what)
{
    if (holds) return;
    t->failures++;
    printf("FAILED: %s, kill %d: %s\n", v->name, t->kills, what);
    show_log();
}

/* After a kill: the newest file, if any, opens and can be finished like the unbroken run. */
static void look_at(tally *t, const char *kvfold, const variant *v)
{
    char run[64], copy[64], whole[64], line[128];
    snprintf(run, sizeof run, "%s/run.h5", v->name);
    snprintf(copy, sizeof copy, "%s/copy.h5", v->name);
    snprintf(whole, sizeof whole, "%s/whole.h5", v->name);
    unlink(copy);
    if (exists(run)) {
        snprintf(line, sizeof line, "kvfold inspect %s --json", run);
        check(t, finish(start_line(kvfold, line)) == 0, v, "the newest file does not open");
        copy_file(run, copy);
    } else {
        t->before_first++;
    }
    check(t, train(kvfold, v, copy) == 0, v, "it does not resume");
    check(t, same_bytes(copy, whole), v, "the finished run differs from the unbroken one");
}

/* The run ended before it could be killed. */
static void look_at_end(tally *t, const variant *v)
{
    char run[64], whole[64];
    snprintf(run, sizeof run, "%s/run.h5", v->name);
    snprintf(whole, sizeof whole, "%s/whole.h5", v->name);
    t->finished++;
    check(t, same_bytes(run, whole), v, "the run that was killed again and again differs");
    check(t, count_leftovers(v->name) == 0, v, "a temporary or a lock is left behind");
    unlink(run);
}

/* The folder holds the temporary of a run being saved. */
static bool has_temporary(const char *folder)
{
    glob_t found;
    char pattern[64];
    snprintf(pattern, sizeof pattern, "%s/run.h5.tmp.*", folder);
    const bool any = glob(pattern, 0, NULL, &found) == 0;
    if (any) globfree(&found);
    return any;
}

static void kill_once(tally *t, const char *kvfold, const variant *v, double seconds)
{
    char run[64];
    snprintf(run, sizeof run, "%s/run.h5", v->name);
    if (exists(run)) seconds *= 0.6; /* some of it is done */
    pid_t pid = start_train(kvfold, v, run);
    wait_seconds(uniform() * seconds);
    kill(pid, SIGKILL);
    int code = finish(pid);
    if (code == 0) {
        look_at_end(t, v);
        return;
    }
    t->kills++;
    check(t, code == 1000 + SIGKILL, v, "it ended by itself, not by the kill");
    t->in_save += has_temporary(v->name);
    look_at(t, kvfold, v);
}

static double time_whole(const char *kvfold, const variant *v)
{
    char whole[64];
    mkdir(v->name, 0777);
    snprintf(whole, sizeof whole, "%s/whole.h5", v->name);
    double begin = now();
    if (train(kvfold, v, whole)) {
        printf("FAILED: %s: the unbroken run\n", v->name);
        show_log();
        exit(1);
    }
    return now() - begin;
}

static tally work(const char *kvfold, const char *make_tiny, int count)
{
    double seconds[N_VARIANTS];
    tally t = {0};
    make_inputs(make_tiny);
    for (int i = 0; i < N_VARIANTS; i++)
        seconds[i] = time_whole(kvfold, &VARIANTS[i]);
    for (int i = 0; t.kills < count && t.failures < 10; i++)
        kill_once(&t, kvfold, &VARIANTS[i % N_VARIANTS], seconds[i % N_VARIANTS]);
    return t;
}

/* A child in a folder of its own; it sends its counts at the end. */
static int start_worker(char **argv, const char *folder, int number)
{
    int ends[2], count = atoi(argv[3]);
    char name[16];
    if (pipe2(ends, O_CLOEXEC)) exit(2);
    if (fork()) {
        close(ends[1]);
        return ends[0];
    }
    snprintf(name, sizeof name, "%d", number);
    if (chdir(folder) || mkdir(name, 0777) || chdir(name)) exit(2);
    uint64_t seed = strtoull(argv[4], NULL, 10) * WORKERS + (uint64_t)number + 1;
    random_state = seed * UINT64_C(0x9E3779B97F4A7C15);
    tally t = work(argv[1], argv[2], (count + number) / WORKERS);
    if (write(ends[1], &t, sizeof t) != sizeof t) exit(2);
    exit(0);
}

static int run(char **argv, const char *folder)
{
    int ends[WORKERS];
    double begin = now();
    tally sum = {0};
    for (int i = 0; i < WORKERS; i++)
        ends[i] = start_worker(argv, folder, i);
    for (int i = 0; i < WORKERS; i++) {
        tally t = {0};
        if (read(ends[i], &t, sizeof t) != sizeof t) t.failures = 1;
        sum.kills += t.kills;
        sum.in_save += t.in_save;
        sum.before_first += t.before_first;
        sum.finished += t.finished;
        sum.failures += t.failures;
        wait(NULL);
    }
    printf("%d kills in %.0f s: %d while a file was written, %d before the first was there; "
           "%d runs came to their end between kills; %d failures\n",
           sum.kills, now() - begin, sum.in_save, sum.before_first, sum.finished, sum.failures);
    return sum.failures || sum.kills < atoi(argv[3]);
}

int main(int argc, char **argv)
{
    char folder[] = "/tmp/kvfold-kills-XXXXXX", kvfold[PATH_BYTES], make_tiny[PATH_BYTES];
    if (argc < 4 || !realpath(argv[1], kvfold) || !realpath(argv[2], make_tiny)) {
        fprintf(stderr, "usage: kill_runs KVFOLD MAKE_TINY COUNT [SEED]\n");
        return 2;
    }
    char *arguments[] = {argv[0], kvfold, make_tiny, argv[3], argc > 4 ? argv[4] : "1", NULL};
    setenv("OMP_WAIT_POLICY", "passive", 1);
    if (!mkdtemp(folder)) return 2;
    int code = run(arguments, folder);
    remove_folder(folder);
    return code;
}
