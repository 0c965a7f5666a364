/* Facts for a report that need a base: the words nearest to the virtual tokens. With data also the
 * share of attention on these, and completions without and with the trained values. It uses the
 * code of the commands words, eval and generate. Only the first rows of the data are run, except
 * for classifiers (report_answers.c), which run all. */
#include "report_facts.h"

#include "evaluation.h"
#include "generate.h"
#include "json_pack.h"

#include <math.h>

enum { MOST_TOKENS = 48 };

/* Returns a view of the first groups with at most `most` rows in all, but at least one. */
static kvf__dataset first_rows(const kvf__dataset *set, int64_t most)
{
    kvf__dataset first = *set;

    if (set->n <= most) return first;
    first.n_groups = most;
    while (set->group && first.n_groups > 1 && set->group[first.n_groups] > most)
        first.n_groups--;
    first.n = set->group ? set->group[first.n_groups] : most;
    first.n_labels = 0;
    for (int64_t i = 0; i < first.n; i++)
        first.n_labels += kvf__example_labels(set, i);
    return first;
}

/* ---- words ----------------------------------------------------------------------------------- */

static kvf_status add_words(kvf__report_facts *r)
{
    const kvf_words_options options = {.top = r->options->words};
    kvf_json *words = NULL;

    if (!options.top) return KVF_OK;
    if (r->prefix->file.prefix.P && kvf__model_desc(r->base->model)->by_layer.shape) {
        kvf__report_note(r,
                         "No nearest words: they are not supported on a base whose layers differ.");
        return KVF_OK;
    }
    KVF_TRY(kvf_words(r->ctx, r->base, r->prefix, &options, NULL, &words));
    kvf_json_set(r->facts, "words", words);
    return KVF_OK;
}

/* ---- shares of attention --------------------------------------------------------------------- */

/* Converts share [L, H] to an array of rows, divided by the number of labels. */
static kvf_json *share_json(double *share, int64_t L, int64_t H, double labels)
{
    kvf_json *rows = kvf_json_array();

    for (int64_t i = 0; i < L * H; i++)
        share[i] /= labels;
    for (int64_t l = 0; l < L; l++)
        kvf_json_add(rows, kvf__json_reals(share + l * H, H));
    return rows;
}

/* Measures the loss of the rows without the prefix, if they are the same rows: for a language model
 * with the prefix before rows. */
static kvf_status loss_before(kvf__report_facts *r, kvf__evaluator *evaluator, kvf_json *found)
{
    const kvf__subject bare = {0};
    double loss = NAN;

    if (r->prefix->task != KVF__TASK_LM || r->prefix->file.vectors.P || r->prefix->file.id.infix)
        return KVF_OK;
    KVF_TRY(kvf__evaluator_run(r->ctx, evaluator, &bare, &loss, NULL));
    kvf_json_set(found, "before", kvf_json_new_real(loss));
    return KVF_OK;
}

static kvf_status run_shares(kvf__report_facts *r, const kvf__dataset *set, kvf__head *head)
{
    const kvf__desc *d = kvf__model_desc(r->base->model);
    const kvf__evaluator_options how = {.P = r->prefix->file.id.P,
                                        .neurons = r->prefix->file.id.neurons.N,
                                        .infix = r->prefix->file.id.infix};
    kvf__subject subject = kvf__subject_of(r->prefix, head);
    kvf__evaluator *evaluator = NULL;
    double loss = NAN;

    kvf_status st = kvf__alloc_array(r->ctx, (size_t)(d->L * d->H), sizeof *subject.share,
                                     &subject.share);
    if (!st) st = kvf__evaluator_create(r->ctx, r->base, set, &how, &evaluator);
    if (!st) st = kvf__evaluator_run(r->ctx, evaluator, &subject, &loss, NULL);
    if (!st) {
        kvf_json *found = kvf__json_of("data:s share:o labels:I rows:I after:f",
                                       kvf__path_end(r->options->data),
                                       share_json(subject.share, d->L, d->H, (double)set->n_labels),
                                       set->n_labels, set->n, loss);
        kvf_json_set(r->facts, "attention", found);
        st = loss_before(r, evaluator, found);
    }
    kvf__evaluator_free(evaluator);
    kvf__free(subject.share);
    return st;
}

static kvf_status add_shares(kvf__report_facts *r)
{
    const kvf_eval_options options = kvf__report_data(r->options);
    kvf__evaluation trial = {.task = r->prefix->task};
    kvf__head *head = NULL;

    kvf_status st = kvf__evaluation_rows(r->ctx, r->base, r->prefix, &options,
                                         r->prefix->task != KVF__TASK_LM, &trial);
    if (!st) st = kvf__prefix_head(r->ctx, r->base, r->prefix, &head);
    const kvf__dataset first = st ? (kvf__dataset){0} : first_rows(&trial.set, r->options->rows);
    if (!st && first.n_labels) st = run_shares(r, &first, head);
    if (!st && !first.n_labels)
        kvf__report_note(r,
                         "No share of attention: the first %lld rows of the data have no "
                         "labels.",
                         (long long)first.n);
    kvf__head_free(head);
    kvf__evaluation_done(&trial);
    return st;
}

/* ---- samples --------------------------------------------------------------------------------- */

static kvf_json *reference_list(const kvf__dataset *set, int64_t row)
{
    const kvf__source *source = set->sources ? &set->sources->group[row] : NULL;
    kvf_json *list = kvf_json_array();
    for (int64_t i = 0; source && i < source->n; i++)
        kvf_json_add(list, kvf_json_new_strn(source->items[i], kvf__source_item_bytes(source, i)));
    return list;
}

/* Completes the first prompts. If not NULL, also returns the prompts as the base reads them, and
 * the references of each. Arrays of options.samples; elements past *n are not changed. */
static kvf_status complete(kvf__report_facts *r, const kvf_prefix *prefix, char **prompts,
                           kvf_json *references, char **texts, size_t *n)
{
    const kvf_report_options *o = r->options;
    kvf_generate_options generate = kvf_generate_defaults();
    kvf_eval_options options = kvf__report_data(o);
    kvf__renderer renderer = {0};
    kvf__dataset_options load;
    kvf__dataset set = {0};

    generate.max_tokens = o->max_tokens ? o->max_tokens : MOST_TOKENS;
    const bool of_run = !o->map || !*o->map;
    if (of_run) options.map = kvf__map_of(r->prefix); /* rows of the bare base are the same */
    options.chat_template = r->prefix->file.id.chat_template;
    kvf_status st = kvf__eval_rows(r->ctx, r->base, prefix, &options, &renderer, &load);
    renderer.map.of_run = of_run;
    kvf__renderer_follow(&renderer, r->prefix, NULL);
    load.render = renderer.render;
    load.prompt_only = load.references = true; /* equal consecutive prompts count once */
    if (!st) st = kvf__dataset_load(r->ctx, o->data, &load, &set);
    const kvf__dataset first = st ? set : first_rows(&set, o->samples);
    for (int64_t i = 0; prompts && !st && i < first.n; i++) {
        kvf__buf text = {0};
        st = kvf__decode(r->ctx, r->base->tokenizer, set.ids + set.start[i],
                         (size_t)(set.start[i + 1] - set.start[i]), false, &text);
        if (!st) st = kvf__text_make(r->ctx, &text, &prompts[i]);
        kvf__buf_done(&text);
    }
    for (int64_t i = 0; references && !st && i < first.n; i++)
        kvf_json_add(references, reference_list(&set, i));
    if (!st)
        st = kvf__generate_set(r->ctx, r->base, prefix, &first, &renderer.chat, &generate, texts,
                               NULL);
    if (!st) *n = (size_t)first.n;
    kvf__dataset_done(&set);
    kvf__renderer_done(&renderer);
    return st;
}

/* Replaces a base that includes the trained values by the bare one. */
static kvf_status bare_base(kvf__report_facts *r)
{
    const kvf_base_options how = {.precision = r->options->precision, .lora = r->options->lora};

    if (!kvf_prefix_changes_base(r->prefix)) return KVF_OK;
    kvf_base_free(r->base);
    r->base = NULL;
    return kvf_base_open(r->ctx, r->options->base, &how, &r->base);
}

static kvf_json *new_text(const char *text)
{
    return kvf_json_new_strn(text, kvf_text_bytes(text));
}

static void put_samples(kvf__report_facts *r, char *const *prompts, const kvf_json *references,
                        char *const *before, char *const *after, size_t n)
{
    kvf_json *rows = kvf_json_array();
    int64_t most = r->options->max_tokens;

    for (size_t i = 0; i < n; i++)
        kvf_json_add(rows,
                     kvf__json_of("prompt:o before:o after:o references:o", new_text(prompts[i]),
                                  new_text(before[i]), new_text(after[i]),
                                  kvf__json_copy(kvf_json_at(references, i))));
    kvf_json_set(r->facts, "samples",
                 kvf__json_of("data:s max_tokens:I rows:o", kvf__path_end(r->options->data),
                              most ? most : (int64_t)MOST_TOKENS, rows));
}

static kvf_status add_samples(kvf__report_facts *r)
{
    size_t most = (size_t)r->options->samples, n = 0;
    char **texts = NULL; /* [3, most]: prompts, before, after */

    if (r->prefix->task != KVF__TASK_LM) return KVF_OK;
    KVF_TRY(kvf__alloc_array(r->ctx, most, 3 * sizeof *texts, &texts));
    char **before = texts + most, **after = before + most;
    kvf_json *references = kvf_json_array();
    kvf_status st = complete(r, r->prefix, NULL, NULL, after, &n);
    if (!st) st = bare_base(r);
    if (!st) st = complete(r, NULL, texts, references, before, &n);
    if (!st) put_samples(r, texts, references, before, after, n);
    kvf_json_free(references);
    kvf_texts_free(texts, 3 * most);
    kvf__free(texts);
    return st;
}

kvf_status kvf__report_with_base(kvf__report_facts *r)
{
    bool has_virtual = r->prefix->file.prefix.P || r->prefix->file.vectors.P;

    if (has_virtual) KVF_TRY(add_words(r));
    if (has_virtual && r->options->data && r->options->rows) KVF_TRY(add_shares(r));
    if (r->options->data && r->options->rows) KVF_TRY(kvf__report_answers(r));
    if (r->options->data && r->options->samples) KVF_TRY(add_samples(r));
    return KVF_OK;
}
