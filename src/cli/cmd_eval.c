/* kvfold eval. */
#include "cli_model.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

typedef struct eval_values {
    cli_model_options model;
    kvf_eval_options eval;
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
     "and of each entity type"}};

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

static int measure(cli_call *call, const eval_values *v)
{
    cli_model model;
    kvf_eval_result result;
    int code = cli_model_open(call, &v->model, &model);
    if (code) return code;
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
