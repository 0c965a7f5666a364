/* Compares two files of one kind: facts (attributes, options, lineage, metadata, history) and
 * tensors. Reports tensors in only one file, different shapes, and differences of values. These are
 * the largest difference, the L2 norm of the difference relative to the first file's, and the
 * cosine, in f64. Equal bytes are equal, and so are two NaN. */
#include "diff.h"

#include "arena.h"
#include "json_pack.h"

#include <math.h>
#include <string.h>

enum { CHUNK = 4096 }; /* elements; a multiple of every type's block size */

typedef struct measure {
    int64_t unequal; /* differing elements; -1: not a number type of kvfold */
    double most, error, norm[2], dot;
} measure;

/* ---- values ---------------------------------------------------------------------------------- */

/* Converts elements first .. first + n to f64. */
static void read_values(const kvf__view *view, int64_t first, int64_t n, double *out)
{
    const int64_t block = kvf__dtype_block(view->dtype);
    const uint8_t *at = (const uint8_t *)view->data +
                        (size_t)(first / block) * kvf__dtype_block_bytes(view->dtype);
    float narrow[CHUNK];

    if (view->dtype == KVF__F64) {
        memcpy(out, at, (size_t)n * sizeof *out);
        return;
    }
    kvf__to_f32(view->dtype, at, narrow, n);
    for (int64_t i = 0; i < n; i++)
        out[i] = (double)narrow[i];
}

static void measure_values(measure *m, const double *a, const double *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (a[i] == b[i] || (isnan(a[i]) && isnan(b[i]))) {
            if (isnan(a[i])) continue;
        } else {
            m->unequal++;
        }
        const double diff = fabs(a[i] - b[i]);
        if (!(diff <= m->most) && !isnan(m->most)) m->most = diff;
        m->error += diff * diff;
        m->norm[0] += a[i] * a[i];
        m->norm[1] += b[i] * b[i];
        m->dot += a[i] * b[i];
    }
}

static bool same_shape(const kvf__view *a, const kvf__view *b)
{
    return a->rank == b->rank && !memcmp(a->dim, b->dim, (size_t)a->rank * sizeof *a->dim);
}

/* Compares two tensors of one shape. */
static measure compare_values(const kvf__view *a, const kvf__view *b)
{
    static const measure OTHER = {.unequal = -1};
    double x[CHUNK], y[CHUNK];
    measure m = {0};
    const bool numbers = kvf__dtype_is_float(a->dtype) && kvf__dtype_is_float(b->dtype);

    if (a->dtype == b->dtype && kvf__view_bytes(a) == kvf__view_bytes(b) &&
        !memcmp(a->data, b->data, kvf__view_bytes(a)))
        return m;
    if (!numbers) return OTHER;
    for (int64_t first = 0, count = kvf__view_count(a); first < count; first += CHUNK) {
        const int64_t n = count - first < CHUNK ? count - first : CHUNK;
        read_values(a, first, n, x);
        read_values(b, first, n, y);
        measure_values(&m, x, y, n);
    }
    return m;
}

/* ---- facts ----------------------------------------------------------------------------------- */

/* Adds a differing fact; a or b NULL: only the other file has it. */
static void add_fact(kvf_json *facts, const char *group, const char *name, const kvf_json *a,
                     const kvf_json *b)
{
    kvf_json *fact = kvf__json_of("group:s name:s", group, name);
    if (a) kvf_json_set(fact, "a", kvf__json_copy(a));
    if (b) kvf_json_set(fact, "b", kvf__json_copy(b));
    kvf_json_add(facts, fact);
}

static void compare_group(kvf_json *facts, const char *group, kvf_json *a, kvf_json *b)
{
    for (void *it = a ? kvf_json_iter(a) : NULL; it; it = kvf_json_next(a, it)) {
        const char *name = kvf_json_iter_key(it);
        const kvf_json *value = kvf_json_iter_value(it), *other = kvf_json_get(b, name);
        if (!other || !kvf__json_same(value, other)) add_fact(facts, group, name, value, other);
    }
    for (void *it = b ? kvf_json_iter(b) : NULL; it; it = kvf_json_next(b, it))
        if (!kvf_json_get(a, kvf_json_iter_key(it)))
            add_fact(facts, group, kvf_json_iter_key(it), NULL, kvf_json_iter_value(it));
}

/* Adds the sizes of a tokenizer's files, which are too long to be shown. */
static void add_text(kvf_json *facts, const char *name, const char *a, const char *b)
{
    kvf_json *x = a ? kvf_json_new_int((int64_t)strlen(a)) : NULL;
    kvf_json *y = b ? kvf_json_new_int((int64_t)strlen(b)) : NULL;
    add_fact(facts, "bytes", name, x, y);
    kvf_json_free(x);
    kvf_json_free(y);
}

static void compare_texts(kvf_json *facts, const kvf__base_file *a, const kvf__base_file *b)
{
    for (size_t i = 0; i < a->n_texts; i++) {
        const char *other = kvf__base_text_find(b, a->texts[i].name);
        if (!other || strcmp(a->texts[i].text, other))
            add_text(facts, a->texts[i].name, a->texts[i].text, other);
    }
    for (size_t i = 0; i < b->n_texts; i++)
        if (!kvf__base_text_find(a, b->texts[i].name))
            add_text(facts, b->texts[i].name, NULL, b->texts[i].text);
}

static kvf_json *compare_facts(const kvf__side *a, const kvf__side *b)
{
    static const char *const GROUPS[] = {"attributes", "options", "lineage",
                                         "metadata",   "state",   "history"};
    kvf_json *facts = kvf_json_array();

    for (size_t i = 0; i < sizeof GROUPS / sizeof GROUPS[0]; i++)
        compare_group(facts, GROUPS[i], kvf_json_get(a->tree, GROUPS[i]),
                      kvf_json_get(b->tree, GROUPS[i]));
    compare_texts(facts, &a->texts, &b->texts);
    return facts;
}

/* ---- tensors --------------------------------------------------------------------------------- */

static kvf_json *entry_of(const char *name, const kvf__view *view)
{
    return kvf__json_of("name:s shape:o dtype:s", name, kvf__json_ints(view->dim, view->rank),
                        kvf__view_type_name(view));
}

static void set_measure(kvf_json *entry, const measure *m)
{
    const double norms = sqrt(m->norm[0]) * sqrt(m->norm[1]);
    kvf__json_put(entry, "unequal:I max_abs:f relative_l2:f cosine:f", m->unequal, m->most,
                  m->norm[0] > 0 ? sqrt(m->error / m->norm[0]) : NAN,
                  norms > 0 ? m->dot / norms : NAN);
}

/* Returns NULL if they are equal. */
static kvf_json *compare_tensor(const char *name, const kvf__view *a, const kvf__view *b,
                                measure *total)
{
    const bool alike = same_shape(a, b);
    measure m = {0};

    if (alike) m = compare_values(a, b);
    if (alike && !m.unequal && a->dtype == b->dtype) return NULL;
    kvf_json *entry = entry_of(name, a);
    if (!alike) kvf_json_set(entry, "shape_b", kvf__json_ints(b->dim, b->rank));
    if (a->dtype != b->dtype)
        kvf_json_set(entry, "dtype_b", kvf_json_new_str(kvf__dtype_name(b->dtype)));
    if (!alike || m.unequal < 0) return entry;
    set_measure(entry, &m);
    total->unequal += m.unequal;
    if (!(m.most <= total->most) && !isnan(total->most)) total->most = m.most;
    return entry;
}

static kvf_json *compare_tensors(const kvf__table *a, const kvf__table *b)
{
    kvf_json *changed = kvf_json_array(), *removed = kvf_json_array(), *added = kvf_json_array();
    measure total = {0};
    int64_t equal = 0;

    for (size_t i = 0; i < a->n; i++) {
        const kvf__tensor *tensor = &a->items[i];
        const kvf__view *other = kvf__table_find(b, tensor->name);
        kvf_json *entry = other ? compare_tensor(tensor->name, &tensor->view, other, &total)
                                : entry_of(tensor->name, &tensor->view);
        if (entry)
            kvf_json_add(other ? changed : removed, entry);
        else
            equal++;
    }
    for (size_t i = 0; i < b->n; i++)
        if (!kvf__table_find(a, b->items[i].name))
            kvf_json_add(added, entry_of(b->items[i].name, &b->items[i].view));
    return kvf__json_of("equal:I changed:o removed:o added:o max_abs:f", equal, changed, removed,
                        added, total.most);
}

static const char *const LISTS[] = {"changed", "removed", "added"};

static kvf_status describe(kvf_ctx *ctx, const kvf__side *a, const kvf__side *b, bool tensors_only,
                           kvf_json **out)
{
    kvf_json *tensors = compare_tensors(&a->table, &b->table);
    kvf_json *facts = tensors_only ? kvf_json_array() : compare_facts(a, b);
    bool same = kvf_json_size(facts) == 0;

    for (int i = 0; i < 3; i++)
        same = same && kvf_json_size(kvf_json_get(tensors, LISTS[i])) == 0;
    kvf_json *root = kvf__json_of("kind:s same:b facts:o tensors:o", a->kind, same, facts, tensors);
    char *text = kvf_json_text(root, KVF_JSON_COMPACT); /* NULL if any allocation above failed */
    kvf_json_text_free(text);
    if (text) {
        *out = root;
        return KVF_OK;
    }
    kvf_json_free(root);
    return kvf__fail(ctx, KVF_ENOMEM, "out of memory");
}

/* ---- the struct ------------------------------------------------------------------------------ */

typedef struct diff_memory {
    size_t n_facts, n_tensors;
    kvf_json *tree; /* texts and values are views of it */
    kvf_diff_fact *facts;
    kvf_diff_tensor *tensors;
} diff_memory;

static void lay_result(void *object, kvf__carver *carve)
{
    diff_memory *m = object;
    m->facts = kvf__carve(carve, (int64_t)m->n_facts, 1, sizeof *m->facts);
    m->tensors = kvf__carve(carve, (int64_t)m->n_tensors, 1, sizeof *m->tensors);
}

static const char *text_at(const kvf_json *object, const char *key)
{
    return kvf_json_str(kvf_json_get(object, key), NULL);
}

static kvf_diff_side side_of(const char *dtype, const kvf_json *shape)
{
    kvf_diff_side side = {.dtype = dtype, .rank = (int)kvf_json_size(shape)};
    for (int i = 0; i < side.rank; i++)
        side.shape[i] = kvf_json_int(kvf_json_at(shape, (size_t)i), 0);
    return side;
}

/* Converts an entry of list 0 (changed), 1 (only in a) or 2 (only in b). */
static kvf_diff_tensor tensor_of(const kvf_json *entry, int list)
{
    const kvf_json *shape = kvf_json_get(entry, "shape"), *other = kvf_json_get(entry, "shape_b");
    const char *dtype = text_at(entry, "dtype"), *dtype_b = text_at(entry, "dtype_b");
    kvf_diff_tensor t = {.name = text_at(entry, "name"),
                         .unequal = kvf_json_int(kvf_json_get(entry, "unequal"), -1),
                         .max_abs = kvf__real_at(entry, "max_abs"),
                         .relative_l2 = kvf__real_at(entry, "relative_l2"),
                         .cosine = kvf__real_at(entry, "cosine")};
    if (list < 2) t.a = side_of(dtype, shape);
    if (list == 2) t.b = side_of(dtype, shape);
    if (list == 0) t.b = side_of(dtype_b ? dtype_b : dtype, other ? other : shape);
    return t;
}

static void fill_lists(diff_memory *m, const kvf_json *facts, const kvf_json *tensors)
{
    size_t n = 0;
    for (size_t i = 0; i < m->n_facts; i++) {
        const kvf_json *fact = kvf_json_at(facts, i);
        m->facts[i] = (kvf_diff_fact){text_at(fact, "group"), text_at(fact, "name"),
                                      kvf_json_get(fact, "a"), kvf_json_get(fact, "b")};
    }
    for (int list = 0; list < 3; list++) {
        const kvf_json *entries = kvf_json_get(tensors, LISTS[list]);
        for (size_t i = 0; i < kvf_json_size(entries); i++)
            m->tensors[n++] = tensor_of(kvf_json_at(entries, i), list);
    }
}

static kvf_status make_result(kvf_ctx *ctx, const kvf_json *tree, kvf_diff_result *out)
{
    diff_memory made = {.n_facts = kvf_json_size(kvf_json_get(tree, "facts"))}, *m = NULL;
    for (int list = 0; list < 3; list++)
        made.n_tensors += kvf_json_size(kvf_json_get(kvf_json_get(tree, "tensors"), LISTS[list]));
    KVF_TRY(kvf__carve_object(ctx, lay_result, &made, sizeof made, &m));
    m->tree = kvf__json_copy(tree);
    if (!m->tree) {
        kvf__free(m);
        return kvf__fail(ctx, KVF_ENOMEM, "out of memory");
    }
    const kvf_json *tensors = kvf_json_get(m->tree, "tensors");
    fill_lists(m, kvf_json_get(m->tree, "facts"), tensors);
    *out = (kvf_diff_result){.kind = text_at(m->tree, "kind"),
                             .same = kvf_json_bool(kvf_json_get(tree, "same"), false),
                             .n_facts = m->n_facts,
                             .facts = m->facts,
                             .equal = kvf__int_at(tensors, "equal"),
                             .n_tensors = m->n_tensors,
                             .tensors = m->tensors,
                             .max_abs = kvf__real_at(tensors, "max_abs"),
                             .memory = m};
    return KVF_OK;
}

void kvf_diff_result_done(kvf_diff_result *result)
{
    if (!result) return;
    diff_memory *m = result->memory;
    if (m) kvf_json_free(m->tree);
    kvf__free(m);
    *result = (kvf_diff_result){0};
}

/* ---- the whole of it ------------------------------------------------------------------------- */

kvf_status kvf_diff(kvf_ctx *ctx, const char *a, const char *b, bool tensors_only,
                    kvf_diff_result *result, kvf_json **json)
{
    KVF_TRY(KVF__NEED(ctx, a, b));
    kvf__side x = {0}, y = {0};
    kvf_json *tree = NULL;

    kvf_status st = kvf__side_open(ctx, a, &x);
    if (!st) st = kvf__side_open(ctx, b, &y);
    if (!st && strcmp(x.kind, y.kind))
        st = kvf__fail(ctx, KVF_EUSAGE,
                       "%s is of kind %s, but %s is of kind %s: compare files of one kind", a,
                       x.kind, b, y.kind);
    if (!st) st = describe(ctx, &x, &y, tensors_only, &tree);
    if (!st && result) st = make_result(ctx, tree, result);
    if (!st && json)
        *json = tree;
    else
        kvf_json_free(tree);
    kvf__side_close(&x);
    kvf__side_close(&y);
    return st;
}
