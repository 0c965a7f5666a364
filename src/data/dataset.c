/* Loads a file into packed lists of ids, labels and other inputs of the task's head. Everything is
 * rendered once, before training, so a bad row is reported with its line before the first step.
 * Steps use integers only. */
#include "arena.h"
#include "hash.h"
#include "infile.h"
#include "loader.h"
#include "memory_rows.h"

#include <string.h>

kvf_status kvf__task_parse(kvf_ctx *ctx, const char *name, kvf__task *out)
{
    for (kvf__task task = KVF__TASK_LM; task <= KVF__TASK_CHOICE; task++)
        if (!strcmp(name, kvf__task_name(task))) {
            *out = task;
            return KVF_OK;
        }
    return kvf__fail(ctx, KVF_EUSAGE,
                     "task \"%s\" is not known; known: lm, seq-cls, token-cls, qa, multiple-choice",
                     name);
}

/* Per task: the function that adds rows, and the lists of its data set. */
static const struct task_row {
    kvf__task_fn *add;
    bool names, spans, groups;
} TASKS[] = {
    [KVF__TASK_LM] = {.add = kvf__add_lm},
    [KVF__TASK_SEQ_CLS] = {.add = kvf__add_text, .names = true},
    [KVF__TASK_TOKEN_CLS] = {.add = kvf__add_words, .names = true},
    [KVF__TASK_QA] = {.add = kvf__add_question, .spans = true, .groups = true},
    [KVF__TASK_CHOICE] = {.add = kvf__add_choices, .groups = true},
};

/* ---- reading --------------------------------------------------------------------------------- */

static kvf_status hash_text(kvf_ctx *ctx, const void *text, size_t n, char hex[33])
{
    kvf__hash *hash = NULL;
    KVF_TRY(kvf__hash_create(ctx, &hash));
    kvf__hash_add(hash, text, n);
    kvf__hash_hex(hash, hex);
    kvf__hash_free(hash);
    return KVF_OK;
}

static kvf_status loader_init(kvf_ctx *ctx, const char *path, const kvf__dataset_options *options,
                              kvf__loader *load)
{
    *load = (kvf__loader){.ctx = ctx, .path = path, .glue.tail = -1};
    load->options = *options;
    if (options->render.pattern) load->options.max_length += options->render.pattern->P;
    load->keeps = options->task != KVF__TASK_LM || options->references || options->unlabeled;
    if (options->task == KVF__TASK_LM) return KVF_OK;
    KVF_TRY(kvf__loader_plan_joins(load));
    load->names.elsewhere = options->learnt;
    return kvf__labels_init(ctx, &load->names, options->label_set);
}

static void loader_done(kvf__loader *load)
{
    kvf__ids_done(&load->rows.ids);
    kvf__ids_done(&load->rows.labels);
    kvf__ids_done(&load->rows.types);
    kvf__ids_done(&load->glue.separator);
    kvf__buf_done(&load->word);
    kvf__ids_done(&load->a);
    kvf__ids_done(&load->b);
    kvf__ids_done(&load->context.ids);
    kvf__free(load->rows.v);
    kvf__free(load->groups.v);
    kvf__free(load->groups.end);
    kvf__free(load->groups.left);
    kvf__labels_done(&load->names);
    kvf__pool_done(&load->pool);
}

static void count_unread(kvf__unread *unread, const char *place, const char *key)
{
    char name[sizeof unread->v[0].name];
    size_t i = 0;
    snprintf(name, sizeof name, "%s%.40s", place, key);
    while (i < unread->n && strcmp(unread->v[i].name, name))
        i++;
    unread->more = unread->more || i == KVF__MOST_UNREAD;
    if (i == KVF__MOST_UNREAD) return;
    if (i == unread->n) memcpy(unread->v[unread->n++].name, name, sizeof name);
    unread->v[i].count++;
}

/* Counts fields of the current row, and of its messages, that are never read. Marks the map entries
 * that the row has. */
static void note_unread(kvf__loader *load)
{
    const bool lm = load->options.task == KVF__TASK_LM;
    const kvf__render *render = &load->options.render;
    kvf_json *row = (kvf_json *)load->row->fields; /* not modified */
    for (void *it = kvf_json_iter(row); it; it = kvf_json_next(row, it)) {
        const char *key = kvf_json_iter_key(it);
        if (lm ? !kvf__render_reads(render, row, key) : !kvf__field_read(render->map, key))
            count_unread(&load->unread, "", key);
    }
    for (size_t i = 0; render->map && i < render->map->n; i++)
        if (kvf__row_field(render->map, load->row, render->map->ours[i])) load->mapped |= 1U << i;
    const kvf_json *list = lm ? kvf__render_messages(render, row) : NULL;
    for (size_t i = 0; i < kvf_json_size(list); i++) {
        kvf_json *message = kvf_json_at(list, i);
        for (void *it = kvf_json_iter(message); it; it = kvf_json_next(message, it))
            if (!kvf__message_reads(kvf_json_iter_key(it)))
                count_unread(&load->unread, "messages' ", kvf_json_iter_key(it));
    }
}

static void say_unread(const kvf__loader *load)
{
    char text[1024] = "";
    const kvf__unread *unread = &load->unread;
    for (size_t i = 0, at = 0; i < unread->n && at < sizeof text; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%s (%lld)", i ? ", " : "",
                               unread->v[i].name, (long long)unread->v[i].count);
    if (unread->n)
        kvf__log(load->ctx, KVF_LOG_WARN, "%s: ignored fields: %s%s", load->path, text,
                 unread->more ? " and others" : "");
}

/* Warns about map entries that no row has; they are probably misspelt. */
static void say_unmapped(const kvf__loader *load)
{
    const kvf__field_map *map = load->options.render.map;
    for (size_t i = 0; map && i < map->n; i++)
        if (!map->of_run && !(load->mapped >> i & 1))
            kvf__log(load->ctx, KVF_LOG_WARN,
                     "%s: no row has the field \"%s\", which --map names for %s", load->path,
                     map->theirs[i], map->ours[i]);
}

static kvf_status add_row(void *user, const kvf__file_row *row)
{
    kvf__loader *load = user;
    if (load->options.limit && load->counts.read == load->options.limit) return KVF_ESTOPPED;
    load->counts.read++;
    load->row = row;
    if (kvf_json_typeof(row->fields) != KVF_JSON_OBJECT)
        return kvf__loader_fail(load, "want a JSON object");
    KVF_TRY(TASKS[load->options.task].add(load));
    note_unread(load);
    if (load->options.task != KVF__TASK_LM || load->options.split_text) return KVF_OK;
    return kvf__render_form(load->ctx, &load->options.render, row->fields, &load->form);
}

static kvf_status unpack(const kvf__loader *load, kvf__buf *text)
{
    kvf__buf packed = *text;
    *text = (kvf__buf){0};
    kvf_status st = kvf__gunzip(load->ctx, load->path, &packed, text);
    kvf__buf_done(&packed);
    return st;
}

/* Reads the file again, now that the labels that mean "no label" are known. */
static kvf_status read_again(kvf__loader *load, kvf__file *file)
{
    const kvf__labels names = load->names;
    kvf__label_set_done(&load->names.learnt);
    kvf__map_done(&load->names.index);
    load->names = (kvf__labels){.dash = names.dash, .minus_one = names.minus_one};
    load->rows.n = load->groups.n = 0;
    load->rows.ids.n = load->rows.labels.n = load->rows.types.n = load->groups.n_left = 0;
    load->counts = (kvf__load_counts){0};
    return kvf__read_rows(file);
}

static kvf_status read_file(kvf__loader *load, const char *path, char hash[33], bool *delimited)
{
    kvf__buf text = {0};
    kvf_status st = kvf__read_file(load->ctx, path, (size_t)1 << 40, &text);
    if (!st) st = hash_text(load->ctx, text.data, text.n, hash);
    if (!st && kvf__is_gzip(text.data, text.n)) st = unpack(load, &text);
    kvf__file file = {.ctx = load->ctx,
                      .path = load->path,
                      .text = text.n ? text.data : "",
                      .bytes = text.n,
                      .options = &load->options,
                      .row = add_row,
                      .user = load};
    if (!st) st = kvf__read_rows(&file);
    if ((!st || st == KVF_ESTOPPED) && load->options.task == KVF__TASK_SEQ_CLS &&
        kvf__labels_find_none(&load->names))
        st = read_again(load, &file);
    *delimited = file.delimited;
    if (load->options.split_text) kvf__row_form_add(&load->form, "text", file.text, file.bytes);
    kvf__buf_done(&text);
    return st == KVF_ESTOPPED ? kvf__ctx_check_stop(load->ctx) : st; /* limit reached */
}

/* Writes a note on ambiguous labels: groups left out without a label, and numbers read as indices
 * of the given names. */
static void say_labels(const kvf__loader *load, char *out, size_t bytes)
{
    const kvf__label_set *given = load->names.given;
    const kvf__load_counts *counts = &load->counts;
    if (counts->none)
        snprintf(out, bytes, "%.100s:%lld: label \"%s\" means no label: %lld row%s left out%s",
                 load->path, (long long)counts->none_line, counts->none_text,
                 (long long)counts->none, counts->none == 1 ? "" : "s",
                 *counts->none_text ? " (list it in --labels if it is a class)" : "");
    const size_t at = strlen(out);
    if (load->names.numbers)
        snprintf(out + at, bytes - at, "%s%.100s: labels are numbers: 0 is %.40s, 1 is %.40s, ...",
                 at ? "; " : "", load->path, given->names[0], given->names[1]);
}

static kvf_status check_rows(const kvf__loader *load)
{
    if (!load->rows.n && load->counts.none)
        return kvf__fail(load->ctx, KVF_EDATA,
                         "%s:%lld: label \"%s\" means no label, and no row has another", load->path,
                         (long long)load->counts.none_line, load->counts.none_text);
    if (!load->rows.n)
        return kvf__fail(load->ctx, KVF_EDATA, "%s: no rows%s", load->path,
                         load->counts.skipped ? " fit (all were longer than --max-length)" : "");
    return KVF_OK;
}

/* ---- learnt labels --------------------------------------------------------------------------- */

static void renumber_source(kvf__source *source, const int32_t *order)
{
    if (source->gold >= 0) source->gold = order[source->gold];
    for (int64_t i = 0; source->tags && i < source->n; i++)
        if (source->tags[i] >= 0) source->tags[i] = order[source->tags[i]];
}

/* Replaces ids in the order met by indices of the sorted names, in rows and sources. */
static void renumber(kvf__loader *load, const int32_t *order)
{
    for (size_t i = 0; i < load->rows.labels.n; i++)
        if (load->rows.labels.data[i] >= 0)
            load->rows.labels.data[i] = order[load->rows.labels.data[i]];
    for (int64_t g = 0; g < load->groups.n; g++)
        renumber_source(&load->groups.v[g], order);
    for (size_t i = 0; i < load->groups.n_left; i++)
        renumber_source(&load->groups.left[i].source, order);
}

static kvf_status settle_names(kvf__loader *load, kvf__dataset *set)
{
    int32_t *order = NULL;
    if (!TASKS[load->options.task].names || load->options.regression) return KVF_OK;
    if (load->names.given) return kvf__label_set_copy(load->ctx, load->names.given, &set->names);
    if (!load->names.learnt.n) return KVF_OK; /* no row has gold: there is nothing to learn */
    kvf_status st = kvf__labels_sort(load->ctx, &load->names, &order);
    if (!st) {
        renumber(load, order);
        set->names = load->names.learnt;
        load->names.learnt = (kvf__label_set){0};
    }
    kvf__free(order);
    return st;
}

/* ---- lists of the data set ------------------------------------------------------------------- */

static void lay_lists(void *object, kvf__carver *c)
{
    const kvf__dataset_lists *has = object;
    kvf__dataset *set = has->set;
    set->start = kvf__carve(c, set->n + 1, 1, sizeof *set->start);
    if (has->values) set->values = kvf__carve(c, set->n, 1, sizeof *set->values);
    if (has->spans) set->spans = kvf__carve(c, set->n, 2, sizeof *set->spans);
    if (has->group) set->group = kvf__carve(c, set->n_groups + 1, 1, sizeof *set->group);
    if (!has->sources) return;
    kvf__sources made = {0};
    if (has->spans) made.windows = kvf__carve(c, set->n, 1, sizeof *made.windows);
    if (has->first_row)
        made.first_row = kvf__carve(c, set->n_groups + 1, 1, sizeof *made.first_row);
    set->sources = kvf__carve(c, 1, 1, sizeof made);
    if (set->sources) *set->sources = made;
}

kvf_status kvf__dataset_alloc(kvf_ctx *ctx, kvf__dataset_lists lists)
{
    return kvf__carve_block(ctx, lay_lists, &lists, &lists.set->memory);
}

kvf_status kvf__dataset_alloc_rows(kvf_ctx *ctx, kvf__dataset *set, int64_t rows, int64_t tokens)
{
    kvf__dataset made = {.task = set->task, .n = rows};
    kvf_status st = kvf__dataset_alloc(ctx, (kvf__dataset_lists){.set = &made});
    if (!st) st = kvf__alloc_array(ctx, (size_t)tokens, sizeof *made.ids, &made.ids);
    if (!st) st = kvf__alloc_array(ctx, (size_t)tokens, sizeof *made.labels, &made.labels);
    KVF__GIVE(st, set, made, kvf__dataset_done(&made));
    return st;
}

static void fill_rows(const kvf__loader *load, kvf__dataset *set)
{
    for (int64_t i = 0; i < set->n; i++) {
        const kvf__row_info *row = &load->rows.v[i];
        set->start[i + 1] = row->start;
        if (set->values) set->values[i] = row->value;
        if (set->spans) memcpy(set->spans + 2 * i, row->span, sizeof row->span);
        if (set->sources && set->sources->windows) set->sources->windows[i] = row->window;
    }
}

/* Writes the first rows of the groups, first [n_groups + 1]. */
static void fill_groups(const kvf__loader *load, int64_t *first)
{
    if (first) memcpy(first + 1, load->groups.end, (size_t)load->groups.n * sizeof *first);
}

/* Moves the sources from the loader to the data set. */
static void move_sources(kvf__loader *load, kvf__sources *s)
{
    fill_groups(load, s->first_row);
    s->labelled = !load->counts.no_gold;
    s->group = load->groups.v;
    s->left = load->groups.left;
    s->n_left = (int64_t)load->groups.n_left;
    s->pool = load->pool;
    load->groups.v = NULL;
    load->groups.left = NULL;
    load->pool = (kvf__pool){0};
}

/* Moves the token types, unless all are 0. Causal bases have none. */
static void move_types(kvf__loader *load, kvf__dataset *set)
{
    bool any = false;
    for (size_t i = 0; i < load->rows.types.n && !any; i++)
        any = load->rows.types.data[i] != 0;
    if (!any || load->options.causal) return;
    set->types = load->rows.types.data;
    load->rows.types = (kvf__ids){0};
}

static kvf_status move_lists(kvf__loader *load, kvf__dataset *set)
{
    const struct task_row *task = &TASKS[set->task];
    const kvf__dataset_lists lists = {.set = set,
                                      .values = load->options.regression || set->phrases,
                                      .spans = task->spans,
                                      .group = task->groups || set->phrases,
                                      .sources = load->keeps,
                                      .first_row = load->options.windows};
    KVF_TRY(settle_names(load, set));
    set->n = load->rows.n;
    set->n_groups = load->groups.n;
    KVF_TRY(kvf__dataset_alloc(load->ctx, lists));
    fill_rows(load, set);
    fill_groups(load, set->group);
    if (set->sources) move_sources(load, set->sources);
    move_types(load, set);
    set->ids = load->rows.ids.data;
    set->labels = load->rows.labels.data;
    load->rows.ids = load->rows.labels = (kvf__ids){0};
    for (int64_t i = 0; i < set->n; i++)
        set->n_labels += kvf__example_labels(set, i);
    if (set->n_labels || load->options.prompt_only) return KVF_OK;
    return kvf__fail(load->ctx, KVF_EDATA, "%s: no token of any row has a label", load->path);
}

/* Returns true if the head pools all tokens of a row, not the [MASK] of a template. */
static bool is_pooled(const kvf__dataset_options *options)
{
    const kvf__row_template *pattern = options->render.pattern;
    return options->pooled && !(pattern && pattern->n && pattern->mask >= 0) &&
           (options->task == KVF__TASK_SEQ_CLS || options->task == KVF__TASK_CHOICE);
}

kvf_status kvf__dataset_load(kvf_ctx *ctx, const char *path, const kvf__dataset_options *options,
                             kvf__dataset *out)
{
    kvf__loader load;
    kvf__dataset set = {.task = options->task,
                        .regression = options->regression,
                        .pooled = is_pooled(options),
                        .phrases = options->phrases != NULL};

    kvf_status st = loader_init(ctx, kvf__shown_path(path), options, &load);
    if (!st) st = read_file(&load, path, set.hash, &set.delimited);
    if (!st) st = check_rows(&load);
    if (!st) {
        say_unread(&load);
        say_unmapped(&load);
        say_labels(&load, set.said, sizeof set.said);
        set.form = load.form;
        set.unlabelled = load.counts.none;
        set.skipped = load.counts.skipped;
        set.truncated = load.counts.truncated;
        set.without_label = load.counts.without_label;
        st = move_lists(&load, &set);
    }
    loader_done(&load);
    KVF__GIVE(st, out, set, kvf__dataset_done(&set));
    return st;
}

void kvf__phrases_done(kvf__phrases *phrases)
{
    kvf__free(phrases->start);
    kvf__free(phrases->ids);
    *phrases = (kvf__phrases){0};
}

kvf_status kvf__dataset_share(kvf_ctx *ctx, kvf__dataset *dataset, kvf__dataset *out)
{
    if (!dataset->sharers) {
        KVF_TRY(kvf__alloc(ctx, sizeof *dataset->sharers, &dataset->sharers));
        *dataset->sharers = 1;
    }
    ++*dataset->sharers;
    *out = *dataset;
    return KVF_OK;
}

void kvf__dataset_done(kvf__dataset *dataset)
{
    if (dataset->sharers && --*dataset->sharers) {
        *dataset = (kvf__dataset){0};
        return;
    }
    kvf__free(dataset->sharers);
    kvf__free(dataset->ids);
    kvf__free(dataset->labels);
    kvf__free(dataset->types);
    kvf__label_set_done(&dataset->names);
    if (dataset->sources) {
        kvf__free(dataset->sources->group);
        kvf__free(dataset->sources->left);
        kvf__pool_done(&dataset->sources->pool);
    }
    kvf__free(dataset->memory);
    *dataset = (kvf__dataset){0};
}
