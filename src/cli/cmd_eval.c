/* kvfold eval. */
#include "cli_model.h"
#include "cli_progress.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

typedef struct eval_values {
    cli_model_options model;
    kvf_eval_options eval;
    const char *spans;
    bool force;
} eval_values;

#define MODEL(field) offsetof(eval_values, model.field)
#define EVAL(field)  offsetof(eval_values, eval.field)
static const kvf__option_row OPTIONS[] = {
    CLI_EVAL_OPTIONS(MODEL, EVAL, "data to measure on; -: standard input",
                     "prefix or run file; if repeated, the probabilities are averaged; without "
                     "it: the bare base, or a base file with a head"),
    {"generate", "N", "off", KVF_COUNT, EVAL(generate),
     "lm: also generate up to N tokens per prompt and report BLEU and ROUGE-L"},
    {"per-class", NULL, "", KVF_FLAG, EVAL(per_class),
     "seq-cls, token-cls: also report precision, recall, F1 and support of each class or tag, "
     "and of each entity type"},
    {"drop-spans", "OUT.html", "", KVF_TEXT, offsetof(eval_values, spans),
     "instead measure without the adapters of every span of layers, and draw heat maps"},
    {"force", NULL, "", KVF_FLAG, offsetof(eval_values, force), "replace an existing OUT.html"}};

static kvf_json *classes_json(const kvf_class_scores *list)
{
    kvf_json *object = kvf_json_object();
    for (size_t i = 0; i < list->n; i++) {
        const kvf_class_score *s = &list->item[i];
        kvf_json_set(object, s->name,
                     kvf__json_of("precision:f recall:f f1:f support:I", s->precision, s->recall,
                                  s->f1, s->support));
    }
    return object;
}

static int print_json(const cli_call *call, const kvf_eval_result *r)
{
    kvf_json *object = kvf__json_of("task:s loss:f", r->task, r->loss);
    if (!isnan(r->perplexity)) kvf__json_put(object, "perplexity:f", r->perplexity);
    for (size_t i = 0; i < r->n_scores; i++)
        kvf_json_set(object, r->scores[i].name, kvf_json_new_real(r->scores[i].value));
    if (r->classes.n) kvf__json_put(object, "classes:o", classes_json(&r->classes));
    if (r->entity_types.n) kvf__json_put(object, "entity_types:o", classes_json(&r->entity_types));
    kvf__json_put(object, "label_tokens:I examples:I skipped:I truncated:I", r->label_tokens,
                  r->examples, r->skipped, r->truncated);
    if (r->without_label) kvf__json_put(object, "without_label:I", r->without_label);
    kvf__json_put(object, "seconds:f", r->seconds);
    return cli_print_json(call, object);
}

static void print_classes(const char *title, const kvf_class_scores *list)
{
    int width = (int)strlen(title);
    for (size_t i = 0; i < list->n; i++)
        if ((int)strlen(list->item[i].name) > width) width = (int)strlen(list->item[i].name);
    if (list->n) printf("%-*s  precision    recall        f1   support\n", width, title);
    for (size_t i = 0; i < list->n; i++) {
        const kvf_class_score *s = &list->item[i];
        cli_print_padded(s->name, width);
        printf("  %9.6f %9.6f %9.6f %9lld\n", s->precision, s->recall, s->f1,
               (long long)s->support);
    }
}

static void print_text(const kvf_eval_result *r)
{
    if (!isnan(r->perplexity)) printf("loss %.6f, perplexity %.4f\n", r->loss, r->perplexity);
    for (size_t i = 0; i < r->n_scores; i++)
        printf("%-14s %.6f\n", r->scores[i].name, r->scores[i].value);
    print_classes(r->entity_types.n ? "tag" : "class", &r->classes);
    print_classes("entity type", &r->entity_types);
    char counts[64];
    printf("%s", cli_counts_text(r->task, r->examples, r->label_tokens, counts));
    if (r->skipped) printf(", %lld skipped", (long long)r->skipped);
    if (r->truncated) printf(", %lld truncated", (long long)r->truncated);
    if (r->without_label) printf(" (%lld have no label left)", (long long)r->without_label);
    printf(", %.1f s\n", r->seconds);
}

static void print_spans(const char *out, const kvf_json *found)
{
    const kvf_json *spans = kvf_json_get(found, "spans"), *added = kvf_json_get(found, "added");
    const char *metric = kvf__text_at(found, "metric");
    const double loss = kvf__real_at(found, "loss"), value = kvf__real_at(found, "value");
    printf("%11s %12s %12s\n", "without", "loss", metric);
    printf("%11s %12.6f %12.6f\n", "-", loss, value);
    for (size_t i = 0; i < kvf_json_size(spans); i++) {
        const kvf_json *span = kvf_json_at(spans, i);
        printf("%5lld-%-5lld %12.6f %12.6f\n", kvf__int_at(span, "first"),
               kvf__int_at(span, "last"), kvf__real_at(span, "loss"), kvf__real_at(span, "value"));
    }
    printf("%11s %12s %12s   norm of what an adapter adds over that of what it reads\n", "layer",
           "attention", "feed-forward");
    for (size_t l = 0; l < kvf_json_size(added); l++)
        printf("%11zu %12.6f %12.6f\n", l, kvf__real_at(kvf_json_at(added, l), "attn"),
               kvf__real_at(kvf_json_at(added, l), "ffn"));
    printf("%s: %zu spans\n", out, kvf_json_size(spans));
}

static int measure_spans(cli_call *call, const eval_values *v, const cli_model *model)
{
    cli_progress progress = cli_progress_make(&call->common);
    const kvf_drop_spans_options options = {.eval = v->eval,
                                            .out = v->spans,
                                            .force = v->force,
                                            .progress = cli_progress_items,
                                            .user = &progress};
    kvf_json *found = NULL;
    if (!model->n)
        return cli_misuse(call->command, "no adapters to leave out: %s carries none",
                          v->model.base);
    kvf_status st = kvf_drop_spans(call->ctx, model->base, model->prefixes[0], &options, &found);
    cli_progress_clear(&progress);
    if (st) return cli_fail_status(call, st);
    if (call->common.json) {
        kvf_json_set(found, "out", kvf_json_new_str(v->spans));
        return cli_print_json(call, found);
    }
    print_spans(v->spans, found);
    kvf_json_free(found);
    return CLI_OK;
}

static int measure(cli_call *call, const eval_values *v)
{
    cli_model model;
    kvf_eval_result result;
    int code = cli_model_open(call, &v->model, &model);
    if (code) return code;
    if (v->spans && *v->spans) {
        code = measure_spans(call, v, &model);
        cli_model_close(&model);
        return code;
    }
    kvf_status st = kvf_eval(call->ctx, model.base, model.prefixes, model.n, &v->eval, &result);
    cli_model_close(&model);
    if (st) return cli_fail_status(call, st);
    if (call->common.json)
        code = print_json(call, &result);
    else
        print_text(&result);
    kvf_eval_result_done(&result);
    return code;
}

static int run(cli_call *call)
{
    eval_values v = {.model.open.own_head = true};
    int code = cli_set_values(call, &v);
    if (!code && v.spans && (v.model.open.drop_layers || v.eval.generate || v.eval.per_class))
        code = cli_misuse(call->command,
                          "--drop-spans: not with --drop-layers, --generate or --per-class");
    if (!code && v.force && !v.spans)
        code = cli_misuse(call->command, "--force is for --drop-spans");
    if (!code) code = cli_check_paths(call);
    return code ? code : measure(call, &v);
}

const cli_command cli_eval = {
    .name = "eval",
    .group = CLI_USE,
    .synopsis = "--base PATH [--prefix FILE] --data FILE [options]",
    .summary = "Measures loss and metrics of a base with or without a prefix.",
    .required = "base data",
    CLI_ROWS(OPTIONS),
    .run = run,
};
