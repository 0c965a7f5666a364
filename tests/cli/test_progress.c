/* Progress output when stderr is not a terminal: the lines and their intervals. */
#include "ck.h"
#include "cli_progress.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

static char said[4096];

/* Sends the events of `n` seconds of a run, one step each, to cli_progress_event(), with standard
 * error in a file. The file's text is then in `said`. */
static void watch(cli_common common, int n, int validate_every)
{
    FILE *file = tmpfile();
    int kept = dup(STDERR_FILENO);
    ck_assert(file && kept >= 0 && dup2(fileno(file), STDERR_FILENO) >= 0);
    cli_progress progress = cli_progress_make(&common);
    for (int i = 1; i <= n; i++) {
        kvf_event event = {.kind = KVF_EVENT_STEP,
                           .step = i,
                           .steps = 1000,
                           .train_loss = 2.5,
                           .tokens_per_second = 300,
                           .seconds = i,
                           .seconds_left = NAN};
        cli_progress_event(&progress, &event);
        event.kind = KVF_EVENT_EVAL;
        event.valid_loss = 2.25;
        event.metric = (kvf_metric){"accuracy", 0.75};
        if (validate_every && i % validate_every == 0) cli_progress_event(&progress, &event);
    }
    cli_progress_clear(&progress);
    ck_assert(dup2(kept, STDERR_FILENO) >= 0);
    close(kept);
    rewind(file);
    said[fread(said, 1, sizeof said - 1, file)] = 0;
    fclose(file);
}

static int lines(void)
{
    int n = 0;
    for (const char *c = said; *c; c++)
        n += *c == '\n';
    return n;
}

START_TEST(a_line_about_every_minute)
{
    watch((cli_common){0}, 185, 0);
    ck_assert_int_eq(lines(), 3);
    ck_assert_ptr_eq(strstr(said, "step 60/1000  loss 2.5000  300 tokens/s  "), said);
    ck_assert_ptr_nonnull(strstr(said, "\nstep 120/1000  loss 2.5000  300 tokens/s  "));
    ck_assert_ptr_null(strchr(said, '\033'));
}
END_TEST

START_TEST(validations_count_as_lines)
{
    watch((cli_common){0}, 185, 50);
    ck_assert_int_eq(lines(), 3);
    ck_assert_ptr_eq(strstr(said, "step 50/1000  loss 2.5000  valid 2.2500  accuracy 0.7500  "),
                     said);
}
END_TEST

START_TEST(quiet_is_quiet)
{
    watch((cli_common){.quiet = true}, 185, 10);
    ck_assert_str_eq(said, "");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("progress");
    TCase *core = tcase_create("core");
    tcase_add_test(core, a_line_about_every_minute);
    tcase_add_test(core, validations_count_as_lines);
    tcase_add_test(core, quiet_is_quiet);
    suite_add_tcase(suite, core);
    return ck_main(suite);
}
