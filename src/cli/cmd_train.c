/* kvfold train. Options, defaults and checks are in the library's table; this file passes them on.
 */
#include "cli_progress.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const kvf__option_row OPTIONS[] = {
    {"recipe", "FILE", "", KVF_NO_FIELD, 0,
     "read options from a file of `option = value` lines; the command line takes precedence"},
    CLI_VERBOSE,
};

/* Prints "300 steps of 1.21 s, 4 validations of 3.0 s: 6:25 in all, peak memory 1.4 GiB". */
static void print_forecast(FILE *to, const kvf_forecast *f)
{
    char time[32], memory[32], file[32], valid[64] = "";
    if (f->validations)
        snprintf(valid, sizeof valid, ", %lld validations of %.3g s", (long long)f->validations,
                 f->seconds_per_validation);
    fprintf(to, "forecast: %lld steps of %.3g s%s: %s in all, peak memory %s\n",
            (long long)f->steps, f->seconds_per_step, valid, cli_time_text(f->seconds, time),
            cli_bytes_text(f->peak_rss_bytes, memory));
    fprintf(to, "forecast: %lld tokens, %lld trainable parameters, run file of %s\n",
            (long long)f->tokens, (long long)f->trainable_parameters,
            cli_bytes_text(f->file_bytes, file));
}

/* Prints a note. On a terminal the text in brackets, the tokens that carry loss, is green. */
static void print_note(FILE *to, const char *text)
{
    static const char OPEN[] = "\u27e6", CLOSE[] = "\u27e7";
    const char *no_color = getenv("NO_COLOR");
    const bool color = isatty(fileno(to)) && !(no_color && *no_color);
    for (const char *next; color && (next = strstr(text, OPEN)) != NULL; text = next) {
        const char *end = strstr(next, CLOSE);
        if (!end) break;
        fprintf(to, "%.*s\033[32m%.*s\033[0m", (int)(next - text), text,
                (int)(end - next + (int)sizeof CLOSE - 1), next);
        next = end + sizeof CLOSE - 1;
    }
    fprintf(to, "%s\n", text);
    fflush(to);
}

/* Notes, such as skipped rows, are part of the result. */
static void watch(void *user, const kvf_event *event)
{
    cli_watcher *w = user;
    cli_progress_event(&w->progress, event);
    if (event->kind == KVF_EVENT_FORECAST && w->progress.on && !w->dry_run)
        print_forecast(stderr, event->forecast);
    if (event->kind == KVF_EVENT_NOTE && w->notes) {
        kvf_json_add(w->notes, kvf_json_new_str(event->text));
    } else if (event->kind == KVF_EVENT_NOTE && w->to && (w->verbose || !event->detail)) {
        cli_progress_clear(&w->progress);
        print_note(w->to, event->text);
    }
    /* a log, or the object that is printed at the end; also if compare was killed */
    bool unread = (w->to != stdout || w->notes) && cli_is_unread(stdout);
    if (unread || cli_reader_gone()) cli_stop_unread();
}

int cli_watch_begin(const cli_call *call, kvf_train_options *options, cli_watcher *w)
{
    w->verbose = cli_is_given(call, "verbose");
    if (call->common.json) w->notes = kvf_json_array();
    if (call->common.json && !w->notes) return cli_fail(call->command, "out of memory");
    kvf_ctx_set_stop(call->ctx, cli_stop_install());
    options->event = watch;
    options->event_user = w;
    return CLI_OK;
}

static kvf_json *forecast_json(const kvf_forecast *f)
{
    kvf_json *object = kvf__json_of(
        "steps:I validations:I seconds_per_step:f seconds_per_validation:f", f->steps,
        f->validations, f->seconds_per_step, f->seconds_per_validation);
    kvf__json_put(object, "seconds_per_save:f seconds:f probe_seconds:f peak_rss_bytes:I",
                  f->seconds_per_save, f->seconds, f->probe_seconds, f->peak_rss_bytes);
    kvf__json_put(object, "tokens:I trainable_parameters:I file_bytes:I", f->tokens,
                  f->trainable_parameters, f->file_bytes);
    return object;
}

static void add_losses(kvf_json *object, const kvf_train_result *r, const kvf_train_options *o)
{
    kvf__json_put(object, "train_loss:f valid_loss:f best_valid_loss:f",
                  r->steps ? r->train_loss : NAN, r->valid_loss, r->best_valid_loss);
    if (r->best_step)
        kvf__json_put(object, "best_step:I best_metric:s best_value:f", r->best_step, r->best.name,
                      r->best.value);
    kvf__json_put(object, "bare_loss:f start_loss:f largest_class:f", r->bare_loss, r->start_loss,
                  r->largest_class);
    if (o->retention)
        kvf__json_put(object, "retention_loss:f retention_start_loss:f retention_base_loss:f",
                      r->retention_loss, r->retention_start_loss, r->retention_base_loss);
}

kvf_json *cli_train_json(const kvf_train_result *r, const kvf_train_options *o, cli_watcher *w)
{
    kvf_json *object = kvf__json_of("out:s steps:I", o->out, r->steps);
    if (o->dry_run) kvf__json_put(object, "planned_steps:I", w->progress.steps);
    add_losses(object, r, o);
    kvf__json_put(object, "stopped_early:b tokens:I computed_tokens:I step_seconds:f",
                  r->stopped_early, r->tokens, r->computed_tokens, r->step_seconds);
    kvf__json_put(object, "tokens_per_second:f seconds:f peak_rss_bytes:I trainable_parameters:I",
                  r->tokens_per_second, r->seconds, r->peak_rss_bytes, r->trainable_parameters);
    kvf__json_put(object, "parameters:I examples:I truncated:I label_tokens:I precision:s",
                  r->parameters, r->examples, r->truncated, r->label_tokens, r->precision);
    if (r->ranks > 1) kvf__json_put(object, "ranks:I wait_seconds:f", r->ranks, r->wait_seconds);
    kvf__json_put(object, "finished_before:b", r->finished_before);
    if (r->forecast.steps) kvf__json_put(object, "forecast:o", forecast_json(&r->forecast));
    kvf__json_put(object, "notes:o", w->notes);
    w->notes = NULL;
    return object;
}

static void print_losses(FILE *to, const kvf_train_result *r)
{
    fprintf(to, "train loss %.4f", r->train_loss);
    if (!isnan(r->valid_loss)) fprintf(to, ", validation loss %.4f", r->valid_loss);
    if (r->best_step && strcmp(r->best.name, "loss"))
        fprintf(to, ", best %s %.4f at step %lld with loss %.4f", r->best.name, r->best.value,
                (long long)r->best_step, r->best_valid_loss);
    else if (!isnan(r->best_valid_loss))
        fprintf(to, " (best %.4f)", r->best_valid_loss);
    fputc('\n', to);
}

/* Prints "bare 5.16, start 3.15, best 2.88 at step 18 of 60, overfits after; merge takes step 18
 * (--checkpoint last for 60)". */
static void print_verdict(FILE *to, const kvf_train_result *r)
{
    static const double WORSE = 1.005; /* relative to the best loss */
    const bool loss = !strcmp(r->best.name, "loss");
    const double best = loss ? r->best_valid_loss : r->best.value;
    if (!isnan(r->bare_loss)) fprintf(to, "bare %.4g, ", r->bare_loss);
    if (!isnan(r->start_loss)) fprintf(to, "start %.4g, ", r->start_loss);
    if (!isnan(r->largest_class)) fprintf(to, "always the largest class %.4g, ", r->largest_class);
    fprintf(to, "best %s%s%.4g at step %lld of %lld", loss ? "" : r->best.name, loss ? "" : " ",
            best, (long long)r->best_step, (long long)r->steps);
    if (r->best_step == r->steps) {
        fputc('\n', to);
        return;
    }
    fprintf(to, "%s; merge takes step %lld (--checkpoint last for %lld)\n",
            r->valid_loss > WORSE * r->best_valid_loss ? ", overfits after" : "",
            (long long)r->best_step, (long long)r->steps);
}

static void print_comparison(FILE *to, const kvf_train_result *r)
{
    char forecast[32], actual[32];
    fprintf(to, "forecast %.1f s and %s, actual %.1f s and %s\n", r->forecast.seconds,
            cli_bytes_text(r->forecast.peak_rss_bytes, forecast), r->seconds,
            cli_bytes_text(r->peak_rss_bytes, actual));
}

void cli_train_text(const kvf_train_result *r, const kvf_train_options *o, int64_t planned,
                    FILE *to)
{
    char memory[32], counts[64];
    if (o->dry_run && !r->finished_before)
        fprintf(to, "%s: dry run, nothing written: %lld steps to do\n", o->out,
                (long long)(planned - r->steps));
    else if (r->finished_before)
        fprintf(to, "%s: already finished, %lld steps\n", o->out, (long long)r->steps);
    else
        fprintf(to, "%s: %lld steps%s, %lld tokens, %.1f s, %.0f tokens/s\n", o->out,
                (long long)r->steps, r->stopped_early ? " (stopped early)" : "",
                (long long)r->tokens, r->seconds, r->tokens_per_second);
    if (r->steps) print_losses(to, r);
    if (!isnan(r->retention_loss))
        fprintf(to, "retention loss %.4f; %.4f of the bare base, %.4f at the start\n",
                r->retention_loss, r->retention_base_loss, r->retention_start_loss);
    if (r->forecast.steps && o->dry_run) print_forecast(to, &r->forecast);
    fprintf(to, "%s", cli_counts_text(o->task, r->examples, r->label_tokens, counts));
    if (r->truncated) fprintf(to, ", %lld truncated", (long long)r->truncated);
    fprintf(to, ", %lld trainable parameters, %s, peak memory %s\n",
            (long long)r->trainable_parameters, r->precision,
            cli_bytes_text(r->peak_rss_bytes, memory));
    if (r->forecast.steps && !o->dry_run) print_comparison(to, r);
    if (r->best_step) print_verdict(to, r);
}

static int report(const cli_call *call, const kvf_train_options *options,
                  const kvf_train_result *result, cli_watcher *w)
{
    if (kvf_train_rank(call->ctx)) return CLI_OK; /* rank 0 has the result */
    if (!w->notes) {
        if (w->to) cli_train_text(result, options, w->progress.steps, w->to);
        return CLI_OK;
    }
    return cli_print_json(call, cli_train_json(result, options, w));
}

static int train(cli_call *call, kvf_train_options *options, cli_watcher *w)
{
    kvf_train_result result;
    kvf_status st = kvf_train(call->ctx, options, &result);
    cli_progress_clear(&w->progress);
    if (st && st != KVF_ESTOPPED) return cli_fail_status(call, st);
    int code = report(call, options, &result, w);
    return st == KVF_ESTOPPED ? cli_stopped(call, result.signal) : code;
}

static int run(cli_call *call)
{
    kvf_train_options options = kvf_train_defaults();
    cli_watcher w = {.progress = cli_progress_make(&call->common)};
    int code = cli_set_values(call, &options);
    if (code) return code;
    w.dry_run = options.dry_run;
    w.to = !options.log || strcmp(options.log, CLI_STDOUT) ? stdout
           : call->common.quiet                            ? NULL
                                                           : stderr;
    if (w.progress.on && w.progress.terminal && options.forecast == KVF_FORECAST_AUTO)
        options.forecast = KVF_FORECAST_ON;
    code = cli_watch_begin(call, &options, &w);
    if (!code) code = train(call, &options, &w);
    kvf_json_free(w.notes);
    return code;
}

const cli_command cli_train = {
    .name = "train",
    .group = CLI_TRAIN,
    .synopsis = "--base PATH --data FILE --out RUN.h5 [options]",
    .summary = "Trains a prefix for a frozen base and writes a run file.",
    .notes =
        "--resume continues the run given by --out, or starts it. The number of steps is "
        "counted from the start. Only steps, threads, recomputation and the intervals of "
        "saving and validation may change. A resumed run gives the same bits as one that "
        "never stopped. Processes started together by mpirun or srun train one run: see "
        "help clusters.\n"
        "\n"
        "SIGINT and SIGTERM: kvfold finishes the step, saves and exits; --resume continues. "
        "A second signal ends the program at once, and the last saved file stays intact. A "
        "signal that was ignored at the start (nohup, background in a script) stays ignored.\n",
    .usual = "data: base data valid out map task labels chat-template max-length overlong\n"
             "method: method prefix-length init lr steps epochs batch-size seed\n"
             "run: eval-every resume dry-run precision threads help\n",
    .examples = "  kvfold train --base MODEL --data chats.jsonl --valid valid.jsonl --out run.h5\n"
                "  kvfold train --base MODEL --data reviews.csv --task seq-cls \\\n"
                "      --valid-split 0.1 --out run.h5\n"
                "  kvfold train --base MODEL --data train.conll --task token-cls \\\n"
                "      --valid dev.conll --out run.h5\n"
                "  kvfold train --base MODEL --data squad.json --task qa --out run.h5\n"
                "  kvfold train --base MODEL --data swag.jsonl --task multiple-choice \\\n"
                "      --out run.h5\n",
    .required = "base data out",
    .train_row = kvf__train_option_row,
    CLI_ROWS(OPTIONS),
    .run = run,
};
