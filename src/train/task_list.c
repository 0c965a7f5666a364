/* The list of tasks of a run: their options, files and validations, and the stored form. Usually
 * there is one unnamed task; --data NAME=FILE makes several. */
#include "hash.h"
#include "train_rows.h"
#include "verbalizer.h"

#include <string.h>

/* ---- data ------------------------------------------------------------------------------------ */

bool kvf__tasks_are_named(const kvf__train_rows *rows)
{
    return rows->task[0].name != NULL;
}

static kvf_status decide_kind(const kvf__run *run, kvf__train_task *task, const char *kind)
{
    const kvf_train_options *o = &run->options;
    KVF_TRY(kvf__task_parse(run->ctx, kind, &task->kind));
    task->metric = kvf__metric_find(task->kind, o->regression,
                                    o->metric && *o->metric ? o->metric : NULL);
    if (!task->metric)
        return kvf__fail(run->ctx, KVF_EUSAGE, "--metric \"%s\": task %s has no such metric",
                         o->metric, kind);
    if (!strcmp(task->metric->name, "bleu") || !strcmp(task->metric->name, "rouge_l"))
        return kvf__fail(run->ctx, KVF_EUSAGE,
                         "--metric %s: not available in training, only in eval --generate",
                         task->metric->name);
    if (task->kind == KVF__TASK_LM && !kvf__model_desc(run->base->model)->block.causal)
        return kvf__fail(run->ctx, KVF_EUSAGE,
                         "%s: a %s does not predict the next token: use a --task other than lm",
                         o->base, kvf_base_architecture(run->base));
    return KVF_OK;
}

/* Sets the metric that selects the best checkpoint: --metric, or the default of a single task, or
 * the loss for several; averaged over the tasks. */
static void decide_metric(kvf__run *run, kvf__train_rows *rows)
{
    bool given = run->options.metric && *run->options.metric;
    for (size_t i = 0; i < rows->n; i++) {
        kvf__train_task *task = &rows->task[i];
        if (task->name && !given)
            task->metric = kvf__metric_find(task->kind, run->options.regression, "loss");
        run->progress.metric = task->metric;
    }
}

kvf_status kvf__tasks_create(kvf__run *run, kvf__train_rows *rows)
{
    const kvf_train_options *o = &run->options;
    const size_t named = o->named_data.n;
    KVF_TRY(kvf__alloc_array(run->ctx, named ? named : 1, sizeof *rows->task, &rows->task));
    rows->now = rows->task;
    rows->n = named ? named : 1;
    if (!named) {
        *rows->task = (kvf__train_task){.path = o->data, .labels = o->labels};
        KVF_TRY(decide_kind(run, rows->task, o->task));
    }
    for (size_t i = 0; i < named; i++) {
        kvf__train_task *task = &rows->task[i];
        const char *item = o->named_data.item[i];
        task->path = kvf__named_value(&o->named_data, item);
        task->labels = kvf__named_value(&o->named_labels, item);
        KVF_TRY(kvf__strndup(run->ctx, item, kvf__task_name_length(item), &task->name));
        KVF_TRY(decide_kind(run, task, kvf__named_kind(o, i)));
    }
    decide_metric(run, rows);
    return KVF_OK;
}

/* Returns the labels of the task in the resumed run. */
static kvf__label_set stored_labels(const kvf__run *run, const kvf__train_task *task)
{
    const kvf__head_values *head = &run->output.resumed.head;
    for (size_t i = 0; task->name && i < head->n_tasks; i++)
        if (!strcmp(head->tasks[i].name, task->name))
            return (kvf__label_set){head->tasks[i].n_labels, head->tasks[i].labels};
    return (kvf__label_set){head->n_labels, head->labels};
}

/* --verbalizer, if each class needs its own row: sets its labels, unless given, and its tokens. */
static kvf_status plan_phrases(const kvf__run *run, kvf__label_set *given, kvf__phrases *tokens,
                               kvf__dataset_options *load)
{
    const char *text = run->options.verbalizer;
    kvf__label_set labels = {0};
    char **words = NULL;
    if (!text || !*text) return KVF_OK;
    kvf_status st = load->label_set ? kvf__label_set_copy(run->ctx, load->label_set, &labels)
                                    : kvf__verbalizer_labels(run->ctx, text, &labels);
    if (!st) st = kvf__verbalizer_words(run->ctx, text, labels.names, labels.n, &words);
    if (!st) st = kvf__verbalizer_tokens(run->ctx, run->base, words, labels.n, tokens);
    kvf__strings_free(words, labels.n);
    if (st || !kvf__phrases_needed(run->base, tokens)) {
        kvf__label_set_done(&labels);
        return st;
    }
    load->phrases = tokens;
    if (load->label_set) {
        kvf__label_set_done(&labels);
        return KVF_OK;
    }
    *given = labels;
    load->label_set = given;
    return KVF_OK;
}

/* Returns the labels: given, or learnt from the training data and stored in the run. *given: a copy
 * that the caller frees. */
static kvf_status known_labels(const kvf__run *run, const kvf__train_task *task,
                               const kvf__dataset *out, kvf__label_set *given,
                               kvf__dataset_options *load)
{
    kvf__label_set stored = {0};
    if (out != &task->data) {
        load->label_set = task->data.names.n ? &task->data.names : NULL;
        load->learnt = !run->output.is_resumed && !task->labels;
        return KVF_OK;
    }
    if (task->labels) KVF_TRY(kvf__label_set_parse(run->ctx, "labels", task->labels, given));
    if (run->output.is_resumed) stored = stored_labels(run, task);
    if (task->labels && stored.n && !kvf__label_set_same(given, &stored))
        return kvf__fail(run->ctx, KVF_EUSAGE,
                         "%s: --labels differ from those of the run; --resume cannot change them",
                         run->options.out);
    if (!task->labels && stored.n) KVF_TRY(kvf__label_set_copy(run->ctx, &stored, given));
    load->label_set = given->n ? given : NULL;
    return KVF_OK;
}

/* Returns the longest row in tokens for which the base has positions. Virtual tokens of port embed
 * count as part of the row. */
static kvf_status longest_row(const kvf__run *run, int64_t *out)
{
    const kvf_train_options *o = &run->options;
    int64_t inside = run->method->port == KVF__PORT_EMBED ? run->id.P : 0;
    int64_t start = run->id.position_start + (run->id.infix ? run->id.P : 0);
    int64_t longest = kvf__longest_row(run->base, start) - inside;
    if (longest < 2 && start > run->id.P)
        return kvf__fail(
            run->ctx, KVF_EUSAGE,
            "--position-start %lld leaves no position for text: the base has %lld positions",
            (long long)start, (long long)kvf__model_desc(run->base->model)->position.max);
    if (longest < 2)
        return kvf__fail(run->ctx, KVF_EUSAGE, "--prefix-length %lld leaves no position for text",
                         (long long)run->id.P);
    if (o->max_length > longest)
        return kvf__fail(run->ctx, KVF_EUSAGE,
                         "--max-length %lld: at most %lld tokens fit after the prefix",
                         (long long)o->max_length, (long long)longest);
    *out = o->max_length ? o->max_length : longest;
    return KVF_OK;
}

static void note_cut_rows(kvf__run *run, const char *path, const kvf__dataset *set,
                          int64_t max_length)
{
    if (set->skipped || set->truncated)
        kvf__run_note(run, "%s: %lld rows skipped, %lld truncated to %lld tokens", path,
                      (long long)set->skipped, (long long)set->truncated, (long long)max_length);
    if (*set->said) kvf__run_note(run, "%s", set->said);
    if (set->without_label)
        kvf__run_note(run, "%s: %lld of the truncated rows have no label left", path,
                      (long long)set->without_label);
}

/* True for rows beside training rows that are chats: their prompts become chats too. */
static bool is_chat(const kvf__train_task *task, const kvf__dataset *out)
{
    const char *form = task->data.form.name;
    return out != &task->data && form && !strcmp(form, "chat");
}

kvf_status kvf__task_load(kvf__run *run, const kvf__train_rows *rows, const kvf__train_task *task,
                          const char *path, kvf__dataset *out)
{
    kvf__label_set given = {0};
    kvf__phrases tokens = {0};
    enum { MOST_GROUPED = 65536 };
    const kvf_train_options *o = &run->options;
    kvf__dataset_options load = {
        .render = rows->renderer.render,
        .vocab = (int32_t)kvf__model_desc(run->base->model)->V,
        .format = o->format,
        .no_header = o->no_header,
        .columns = o->columns,
        .delimiter = o->delimiter,
        .task = task->kind,
        .causal = kvf__model_desc(run->base->model)->block.causal,
        .pooled = kvf__model_desc(run->base->model)->mean_pooled,
        .regression = o->regression,
        .doc_stride = o->doc_stride,
        .split_text = o->split_text,
        .overlong = o->overlong,
        .limit = out == &task->data ? o->limit : 0,
        .most_grouped = out == &task->data ? MOST_GROUPED : 0,
    };
    if (is_chat(task, out)) load.render.wrap_prompts = true;
    KVF_TRY(longest_row(run, &load.max_length));
    kvf_status st = known_labels(run, task, out, &given, &load);
    if (!st) st = plan_phrases(run, &given, &tokens, &load);
    if (!st)
        st = rows->reads ? kvf__reads_load(run->ctx, rows->reads, o, path, &load, out)
                         : kvf__dataset_load(run->ctx, path, &load, out);
    kvf__label_set_done(&given);
    kvf__phrases_done(&tokens);
    if (st) return st;
    note_cut_rows(run, path, out, load.max_length);
    return run->id.infix ? kvf__infix_check_rows(run->ctx, path, out) : KVF_OK;
}

typedef struct class_count {
    const char *name;
    int64_t n, line; /* line of the first row */
} class_count;

static void count_class(class_count *count, int32_t id, int64_t line)
{
    if (id >= 0 && !count[id].n++) count[id].line = line;
}

/* Reports the sizes of classes, "no 12, yes 12; the largest of 2 classes has 50.0 %", and the
 * places of rare ones. */
static void say_classes(kvf__run *run, const char *path, const class_count *count, size_t n,
                        bool tags)
{
    enum { MOST_NAMED = 20, MOST_RARE = 5, RARE = 2 };
    char list[448];
    int64_t all = 0, most = 0, rare = 0;
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        all += count[i].n;
        if (count[i].n > most) most = count[i].n;
        if (i < MOST_NAMED && at + 8 < sizeof list)
            at += (size_t)snprintf(list + at, sizeof list - at, "%s%.40s %lld", i ? ", " : "",
                                   count[i].name, (long long)count[i].n);
    }
    if (at >= sizeof list) at = sizeof list - 1;
    kvf__run_note(run, "%s: %s%s; the largest of %zu classes has %.1f %%", path, list,
                  n > MOST_NAMED ? ", ..." : "", n, 100.0 * (double)most / (double)(all ? all : 1));
    for (size_t i = 0; i < n; i++) {
        const bool one = count[i].n == 1;
        if (!count[i].n || count[i].n > RARE || most <= RARE || rare++ >= MOST_RARE) continue;
        kvf__run_note(run, "warning: %.100s: %lld %s%s, %s:%lld", count[i].name,
                      (long long)count[i].n, tags ? "word" : "row", one ? "" : "s", path,
                      (long long)count[i].line);
    }
    if (rare > MOST_RARE)
        kvf__run_note(run, "warning: %s: %lld more labels with one or two rows", path,
                      (long long)(rare - MOST_RARE));
}

static kvf_status note_classes(kvf__run *run, const char *path, const kvf__dataset *set)
{
    const bool tags = set->task == KVF__TASK_TOKEN_CLS;
    const size_t n = set->names.n;
    class_count *count = NULL;
    bool typed = !tags;
    if (!n || !set->sources) return KVF_OK;
    KVF_TRY(kvf__alloc_array(run->ctx, n, sizeof *count, &count));
    for (size_t i = 0; i < n; i++) {
        count[i] = (class_count){.name = set->names.names[i]};
        typed = typed || (kvf__tag_has_scheme(count[i].name) && count[i].name[1]);
    }
    for (int64_t g = 0; g < kvf__group_count(set); g++) {
        const kvf__source *s = &set->sources->group[g];
        if (!tags) count_class(count, s->gold, s->line);
        for (int64_t i = 0; tags && i < s->n; i++)
            count_class(count, s->tags[i], s->line);
    }
    say_classes(run, path, count, n, tags);
    kvf__free(count);
    if (!typed)
        kvf__run_note(run,
                      "%s: no tag has a type such as B-PER, so F1 counts runs of any tag; use "
                      "--labels for tags that are numbers, or --metric accuracy",
                      path);
    return KVF_OK;
}

/* Loads data and validation rows, from a file or with --valid-split from the data. --rows then
 * chooses among the rows left to train on, so that the held-out rows do not depend on it. Refuses a
 * single class: usually the wrong column was read. */
static kvf_status load_task(kvf__run *run, const kvf__train_rows *rows, kvf__train_task *task,
                            const char *valid)
{
    const kvf_train_options *o = &run->options;
    KVF_TRY(kvf__task_load(run, rows, task, task->path, &task->data));
    if (task->data.names.n == 1)
        return kvf__fail(run->ctx, KVF_EDATA,
                         "%s: every row has the label \"%s\", want two labels or more", task->path,
                         task->data.names.names[0]);
    if (valid) KVF_TRY(kvf__task_load(run, rows, task, valid, &task->valid));
    if (!valid && o->valid_split > 0)
        KVF_TRY(kvf__dataset_split(run->ctx, task->path, &task->data, o->valid_split, o->seed,
                                   &task->valid));
    if (o->rows) KVF_TRY(kvf__dataset_choose(run->ctx, task->path, &task->data, o->rows, o->seed));
    return run->output.is_resumed ? KVF_OK : note_classes(run, task->path, &task->data);
}

static kvf_status load_fed(kvf__run *run, kvf__train_rows *rows)
{
    kvf__fed fed = {0};
    kvf_status st = rows->feed->open(rows->feed->user, run, rows, &fed);
    rows->task->data = fed.data;
    rows->task->valid = fed.valid;
    rows->teacher = fed.teacher;
    rows->beside = fed.beside;
    rows->n_beside = fed.n_beside;
    return st;
}

static kvf_status load_tasks(kvf__run *run, kvf__train_rows *rows)
{
    const kvf_train_options *o = &run->options;
    if (rows->feed) return load_fed(run, rows);
    for (size_t i = 0; i < rows->n; i++) {
        kvf__train_task *task = &rows->task[i];
        const char *valid = task->name ? kvf__named_value(&o->named_valid, o->named_data.item[i])
                                       : o->valid;
        KVF_TRY(load_task(run, rows, task, valid));
    }
    return KVF_OK;
}

static void hash_named(kvf__hash *hash, const char *name, const char set[33])
{
    kvf__hash_add(hash, name, strlen(name) + 1);
    kvf__hash_add(hash, set, 33);
}

static kvf_status hash_tasks(kvf_ctx *ctx, const kvf__train_rows *rows, bool valid, char hex[33])
{
    kvf__hash *hash = NULL;
    KVF_TRY(kvf__hash_create(ctx, &hash));
    for (size_t i = 0; i < rows->n; i++) {
        const kvf__train_task *task = &rows->task[i];
        hash_named(hash, task->name, valid ? task->valid.hash : task->data.hash);
    }
    kvf__hash_hex(hash, hex);
    kvf__hash_free(hash);
    return KVF_OK;
}

static kvf_status sum_up(kvf_ctx *ctx, kvf__train_rows *rows)
{
    kvf__rows_total *total = &rows->total;
    const kvf__train_task *first = rows->task;
    *total = (kvf__rows_total){0};
    for (size_t i = 0; i < rows->n; i++) {
        total->rows += first[i].data.n;
        total->labels += first[i].data.n_labels;
        total->truncated += first[i].data.truncated;
        total->valid_rows += first[i].valid.n;
    }
    memcpy(total->hash, first->data.hash, sizeof total->hash);
    memcpy(total->valid_hash, first->valid.hash, sizeof total->valid_hash);
    if (!first->name) return KVF_OK;
    KVF_TRY(hash_tasks(ctx, rows, false, total->hash));
    return hash_tasks(ctx, rows, true, total->valid_hash);
}

/* Refuses options for TSV and CSV if no file has that format. */
static kvf_status check_columns(const kvf__run *run, const kvf__train_rows *rows)
{
    const kvf_train_options *o = &run->options;
    const char *option = kvf__table_option(&(kvf__dataset_options){
        .columns = o->columns, .no_header = o->no_header, .delimiter = o->delimiter});
    bool any = false;
    for (size_t i = 0; i < rows->n; i++)
        any = any || rows->task[i].data.delimited || rows->task[i].valid.delimited;
    if (any || run->output.is_resumed || !option) return KVF_OK;
    return kvf__fail(run->ctx, KVF_EUSAGE, "--%s is for TSV, CSV and CoNLL files, not for %s",
                     option, o->data ? o->data : "these data files");
}

kvf_status kvf__tasks_open(kvf__run *run, kvf__train_rows *rows)
{
    const bool at_input = run->method->port == KVF__PORT_EMBED;
    const kvf__evaluator_options how = {.P = at_input ? 0 : run->id.P,
                                        .neurons = run->id.neurons.N,
                                        .share_prefixes = !run->options.share_off,
                                        .infix = run->id.infix};
    KVF_TRY(load_tasks(run, rows));
    KVF_TRY(sum_up(run->ctx, rows));
    KVF_TRY(check_columns(run, rows));
    for (size_t i = 0; i < rows->n; i++) {
        kvf__train_task *task = &rows->task[i];
        if (task->valid.n)
            KVF_TRY(
                kvf__evaluator_create(run->ctx, run->base, &task->valid, &how, &task->evaluator));
    }
    return KVF_OK;
}

/* ---- the run file ---------------------------------------------------------------------------- */

kvf_status kvf__tasks_describe(kvf_ctx *ctx, const kvf__train_rows *rows, kvf__head_values *out)
{
    const kvf__train_task *first = rows->task;
    if (!first->name) {
        out->labels = first->data.names.names;
        out->n_labels = first->data.names.n;
        out->words = first->words;
        out->regression = first->data.regression;
        return KVF_OK;
    }
    KVF_TRY(kvf__alloc_array(ctx, rows->n, sizeof *out->tasks, &out->tasks));
    out->n_tasks = rows->n;
    for (size_t i = 0; i < rows->n; i++)
        out->tasks[i] = (kvf__head_task){.name = first[i].name,
                                         .task = (char *)kvf__task_name(first[i].kind),
                                         .n_labels = first[i].data.names.n,
                                         .labels = first[i].data.names.names,
                                         .regression = first[i].data.regression};
    return KVF_OK;
}

kvf_status kvf__tasks_compare(const kvf__run *run, const kvf__train_rows *rows,
                              const kvf__head_values *stored)
{
    const kvf__train_task *task = rows->task;
    bool same = stored->n_tasks == (task->name ? rows->n : 0);
    for (size_t i = 0; same && i < stored->n_tasks; i++)
        same = !strcmp(stored->tasks[i].name, task[i].name) &&
               !strcmp(stored->tasks[i].task, kvf__task_name(task[i].kind));
    if (same) return KVF_OK;
    return kvf__fail(run->ctx, KVF_EUSAGE,
                     "%s: the tasks differ from those of the run; --resume cannot change them",
                     run->options.out);
}

static void task_done(kvf__train_task *task)
{
    const size_t n = task->head ? kvf__head_params(task->head)->n : 0;
    for (size_t k = 0; task->names && k < n; k++)
        kvf__free(task->names[k]);
    for (int k = 0; k < 2; k++) {
        kvf__free((char *)task->low[k].name);
        kvf__free(task->low[k].value);
        kvf__free(task->low[k].grad);
    }
    kvf__free(task->names);
    kvf__free(task->name);
    kvf__evaluator_free(task->evaluator);
    kvf__sampler_done(&task->sampler);
    kvf__head_free(task->head);
    kvf__strings_free(task->words, task->data.names.n);
    kvf__dataset_done(&task->data);
    kvf__dataset_done(&task->valid);
}

void kvf__tasks_done(kvf__train_rows *rows)
{
    for (size_t i = 0; i < rows->n; i++)
        task_done(&rows->task[i]);
    kvf__free(rows->task);
}
