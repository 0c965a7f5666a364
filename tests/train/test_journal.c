/* --log and --tensorboard: their contents, equality with a run without them, and the additions of a
 * resumed run. A log file that cannot be written does not stop the run. */
#include "ck.h"
#include "toy_run.h"
#include "trainer.h"

#include <dirent.h>
#include <string.h>

static char log_path[512], join_pass[512];

static void setup(void)
{
    toy_run_setup();
    toy_path(log_path, dir, "log.jsonl");
    toy_path(join_pass, dir, "board");
}

static kvf_train_options options_with(const char *path)
{
    kvf_train_options o = toy_run_options(path);
    o.log = log_path;
    o.tensorboard = join_pass;
    return o;
}

/* Counts lines of the log by event; the last one of that name, freed by the caller, in *last. */
static int count_lines(const char *event, kvf_json **last)
{
    kvf__buf text = {0};
    int n = 0;
    ck_assert_int_eq(kvf__read_file(ctx, log_path, 1 << 20, &text), KVF_OK);
    ck_assert_uint_gt(text.n, 0);
    ck_assert_int_eq(text.data[text.n - 1], '\n');
    for (char *line = strtok(text.data, "\n"); line; line = strtok(NULL, "\n")) {
        kvf_json *root = NULL;
        ck_assert_msg(!kvf_json_parse(ctx, "log", line, strlen(line), &root), "%s", line);
        if (!strcmp(kvf_json_str(kvf_json_get(root, "event"), NULL), event)) {
            n++;
            if (last) {
                kvf_json_free(*last);
                *last = root;
                continue;
            }
        }
        kvf_json_free(root);
    }
    kvf__buf_done(&text);
    return n;
}

static int files_in(const char *folder)
{
    struct dirent *entry;
    int n = 0;
    DIR *at = opendir(folder);
    if (!at) return 0;
    while ((entry = readdir(at)) != NULL)
        n += entry->d_name[0] != '.';
    closedir(at);
    return n;
}

static int64_t int_of(const kvf_json *line, const char *key)
{
    return kvf_json_int(kvf_json_get(line, key), -1);
}

START_TEST(core_lines)
{
    kvf_json *last = NULL;
    kvf_train_options o = options_with(out), bare = toy_run_options(other);
    kvf_train_result result = train(&o);
    train(&bare);
    ck_assert(equal_files(out, other)); /* the same bits */
    ck_assert_int_eq(count_lines("start", &last), 1);
    ck_assert_int_eq(int_of(last, "steps"), 6);
    ck_assert_int_eq(int_of(last, "step"), 0);
    ck_assert_int_eq(int_of(last, "trainable_parameters"), result.trainable_parameters);
    ck_assert_int_eq(int_of(last, "parameters"), result.parameters);
    ck_assert_int_gt(result.parameters, result.trainable_parameters);
    ck_assert_str_eq(kvf_json_str(kvf_json_get(kvf_json_get(last, "options"), "method"), NULL),
                     "mlp");
    ck_assert_int_eq(count_lines("step", &last), 6);
    ck_assert_int_eq(int_of(last, "step"), 6);
    ck_assert_int_eq(int_of(last, "tokens"), result.tokens);
    ck_assert(kvf_json_real(kvf_json_get(last, "train_loss"), 0) == result.train_loss);
    ck_assert(kvf_json_real(kvf_json_get(last, "prefix_norm"), 0) > 0);
    ck_assert(kvf_json_real(kvf_json_get(last, "lr"), 0) > 0);
    ck_assert_int_eq(count_lines("eval", &last), 2);
    ck_assert(kvf_json_real(kvf_json_get(last, "valid_loss"), 0) == result.valid_loss);
    ck_assert_int_eq(count_lines("save", NULL), 2);
    ck_assert_int_eq(count_lines("note", NULL), 5); /* first row, rows, match, start, parameters */
    ck_assert_int_eq(count_lines("end", &last), 1);
    ck_assert_str_eq(kvf_json_str(kvf_json_get(last, "how"), NULL), "finished");
    ck_assert_int_eq(files_in(join_pass), 1);
    kvf_json_free(last);
}
END_TEST

START_TEST(core_resume)
{
    kvf_json *last = NULL;
    kvf_train_options o = options_with(out);
    o.steps = 3;
    o.schedule_steps = 6;
    train(&o);
    o.steps = 6;
    o.resume = true;
    train(&o);
    ck_assert_int_eq(count_lines("start", &last), 2);
    ck_assert_int_eq(int_of(last, "step"), 3);
    ck_assert_int_eq(count_lines("step", &last), 6);
    ck_assert_int_eq(count_lines("end", NULL), 2);
    ck_assert_int_eq(files_in(join_pass), 2);
    train(&o); /* finished: no event */
    ck_assert_int_eq(count_lines("start", NULL), 2);
    ck_assert_int_eq(files_in(join_pass), 2);
    kvf_json_free(last);
}
END_TEST

static void stop_at_2(void *user, const kvf_event *event)
{
    if (event->kind == KVF_EVENT_STEP && event->step == 2) *(volatile int *)user = 1;
}

START_TEST(core_ends)
{
    kvf_json *last = NULL;
    volatile int stop = 0;
    kvf_train_result result;
    kvf_train_options o = options_with(out);
    kvf_ctx_set_stop(ctx, &stop);
    o.event = stop_at_2;
    o.event_user = (void *)(uintptr_t)&stop;
    ck_assert_int_eq(kvf_train(ctx, &o, &result), KVF_ESTOPPED);
    ck_assert_int_eq(count_lines("end", &last), 1);
    ck_assert_str_eq(kvf_json_str(kvf_json_get(last, "how"), NULL), "stopped");
    ck_assert_int_eq(int_of(last, "step"), 2);
    kvf_ctx_set_stop(ctx, NULL);
    o.force = true;
    o.lr = 1e30; /* runs away */
    expect_failure(&o, KVF_ENUMERIC, "step");
    ck_assert_int_eq(count_lines("start", NULL), 1); /* replaced */
    ck_assert_int_eq(count_lines("end", &last), 1);
    ck_assert_str_eq(kvf_json_str(kvf_json_get(last, "how"), NULL), "failed");
    ck_assert_str_eq(kvf_json_str(kvf_json_get(last, "error"), NULL), kvf_ctx_error(ctx));
    kvf_json_free(last);
}
END_TEST

START_TEST(errors)
{
    kvf_train_options o = options_with(out);
    o.log = data;
    expect_failure(&o, KVF_EUSAGE, "is read by this command");
    o.log = out;
    expect_failure(&o, KVF_EUSAGE, "--log and --out give the same file");
    o.log = log_path;
    ck_assert_int_eq(kvf__write_file(ctx, log_path, false, "mine\n", 5), KVF_OK);
    expect_failure(&o, KVF_EEXIST, "log.jsonl: exists");
    o.log = NULL;
    o.tensorboard = data;
    expect_failure(&o, KVF_EIO, "cannot create the folder");
    o.tensorboard = NULL;
    o.log = "/dev/null/log";
    expect_failure(&o, KVF_EIO, "cannot write");
    ck_assert(!kvf__exists(out));
    o.log = log_path;
    o.dry_run = true;
    o.force = true;
    train(&o); /* changes nothing */
    ck_assert(kvf__exists(log_path));
    kvf__buf text = {0};
    ck_assert_int_eq(kvf__read_file(ctx, log_path, 100, &text), KVF_OK);
    ck_assert_str_eq(text.data, "mine\n");
    kvf__buf_done(&text);
}
END_TEST

static void count_notes(void *user, const kvf_event *event)
{
    int *n = user;
    *n += event->kind == KVF_EVENT_NOTE &&
          strstr(event->text, "--log stopped, the run continues: /dev/full");
}

START_TEST(errors_full_disk)
{
    int notes = 0;
    kvf_train_options o = toy_run_options(out);
    o.log = "/dev/full";
    o.event = count_notes;
    o.event_user = &notes;
    ck_assert_int_eq(train(&o).steps, 6);
    ck_assert_int_eq(notes, 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("journal");
    TCase *core = tcase_create("core");
    tcase_set_timeout(core, 60);
    tcase_add_checked_fixture(core, setup, toy_run_teardown);
    tcase_add_test(core, core_lines);
    tcase_add_test(core, core_resume);
    tcase_add_test(core, core_ends);
    tcase_add_test(core, errors);
    tcase_add_test(core, errors_full_disk);
    suite_add_tcase(suite, core);
    return ck_main(suite);
}
