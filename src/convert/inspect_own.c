/* Describes kvfold's files: facts, tensors with shape, storage and norm, and the progress of a run.
 * Statistics of a prefix's keys and values by layer reveal a layer that was not trained or
 * diverged. Encoder values are read one tensor at a time. Moments, several times larger, are
 * described without reading their values. */
#include "artifact_priv.h"
#include "base_file.h"
#include "inspect_int.h"

#include <math.h>
#include <string.h>

/* ---- values ---------------------------------------------------------------------------------- */

/* Returns mean, (population) standard deviation, extremes and L2 norm, summed in f64. */
static kvf_json *statistics(const float *values, size_t n)
{
    double sum = 0, squares = 0, around = 0, mean;
    float low = values[0], high = values[0];

    for (size_t i = 0; i < n; i++) {
        sum += (double)values[i];
        squares += (double)values[i] * (double)values[i];
        if (values[i] < low) low = values[i];
        if (values[i] > high) high = values[i];
    }
    mean = sum / (double)n;
    for (size_t i = 0; i < n; i++)
        around += ((double)values[i] - mean) * ((double)values[i] - mean);
    return kvf__json_of("mean:f std:f min:f max:f norm:f", mean, sqrt(around / (double)n),
                        (double)low, (double)high, sqrt(squares));
}

static kvf_json *describe_layers(const kvf__prefix *prefix)
{
    kvf_json *layers = kvf_json_array();

    for (int64_t l = 0; l < prefix->L; l++) {
        const kvf__prefix_layer at = kvf__prefix_at(prefix, l);
        if (!at.G) continue; /* without attention */
        kvf_json *entry = kvf__json_of("layer:I key:o value:o", l, statistics(at.k, (size_t)at.n),
                                       statistics(at.v, (size_t)at.n));
        if (prefix->log_weight)
            kvf_json_set(entry, KVF__LOG_WEIGHT,
                         statistics(at.log_weight, (size_t)(at.G * prefix->P)));
        kvf_json_add(layers, entry);
    }
    return layers;
}

kvf_json *kvf__norms_of(const float *x, int64_t n, int64_t stride, int64_t width)
{
    kvf_json *norms = kvf_json_array();
    for (int64_t i = 0; i < n; i++) {
        double sum = 0;
        for (int64_t c = i * stride; c < i * stride + width; c++)
            sum += (double)x[c] * (double)x[c];
        kvf_json_add(norms, kvf_json_new_real(sqrt(sum)));
    }
    return norms;
}

/* ---- tensors --------------------------------------------------------------------------------- */

/* Describes the datasets of virtual neurons. */
static void describe_neurons(kvf__h5 *h5, const kvf__neurons *neurons, kvf_json *tensors)
{
    kvf__neuron_array array[KVF__NEURON_ARRAYS];
    const int arrays = kvf__neuron_arrays(neurons, array);
    kvf__h5_id prefix = kvf__h5_group_open(h5, h5->file, "prefix");
    kvf__h5_id group = kvf__h5_group_open(h5, prefix, "neurons");
    char path[64];

    for (int i = 0; i < arrays; i++) {
        const kvf__neuron_shape *s = &neurons->shape;
        kvf__h5_data data = kvf__h5_data_open(h5, group, array[i].name);
        snprintf(path, sizeof path, "prefix/neurons/%s", array[i].name);
        kvf_json *entry = kvf__dataset_entry(h5, path, &data);
        kvf_json_set(entry, "values",
                     statistics(array[i].at, (size_t)(s->L * s->N * array[i].columns)));
        kvf_json_add(tensors, entry);
        kvf__h5_release(&data.id);
    }
    kvf__h5_release(&group);
    kvf__h5_release(&prefix);
}

/* Describes scales of int8, log-weights, and the position of a prefix. */
static void describe_beside(kvf__h5 *h5, const char *name, kvf_json *tensors)
{
    kvf__h5_id group = kvf__h5_group_open(h5, h5->file, "prefix");
    kvf__h5_data data = kvf__h5_data_open(h5, group, name);
    char path[64];
    float *values = NULL;

    snprintf(path, sizeof path, "prefix/%s", name);
    KVF__H5_TRY(h5, kvf__alloc(h5->ctx, data.bytes, &values));
    kvf__h5_data_read(h5, &data, values, (size_t)data.count * sizeof *values);
    if (values) {
        kvf_json *entry = kvf__dataset_entry(h5, path, &data);
        kvf_json_set(entry, "values", statistics(values, (size_t)data.count));
        kvf_json_add(tensors, entry);
    }
    kvf__free(values);
    kvf__h5_release(&data.id);
    kvf__h5_release(&group);
}

/* Describes the state of layers without attention. */
static void describe_state(kvf__h5 *h5, const kvf__prefix *prefix, kvf_json *tensors)
{
    kvf__h5_data data = kvf__h5_data_open(h5, h5->file, KVF__MIXER_STATE);
    kvf_json *entry = kvf__dataset_entry(h5, KVF__MIXER_STATE, &data);

    kvf_json_set(entry, "values", statistics(prefix->state, (size_t)prefix->states));
    kvf_json_add(tensors, entry);
    kvf__h5_release(&data.id);
}

static void describe_vectors(kvf__h5 *h5, const kvf__h5_data *group, kvf_json *tensors)
{
    kvf__h5_data data = kvf__h5_data_open(h5, group->id, "virtual");

    kvf_json_add(tensors, kvf__dataset_entry(h5, "embeddings/virtual", &data));
    kvf__h5_release(&data.id);
}

static void describe_values(kvf__h5 *h5, const kvf__h5_data *at, const kvf__artifact *a,
                            kvf_json *tensors)
{
    switch (a->kind) {
    case KVF__KIND_PREFIX:
        kvf_json_add(tensors, kvf__dataset_entry(h5, "prefix/past_key_values", at));
        if (a->dtype == KVF__I8) describe_beside(h5, "scale", tensors);
        if (a->prefix.log_weight) describe_beside(h5, KVF__LOG_WEIGHT, tensors);
        if (a->prefix.neurons.w) describe_neurons(h5, &a->prefix.neurons, tensors);
        break;
    case KVF__KIND_EMBEDDINGS:
        describe_vectors(h5, at, tensors);
        break;
    case KVF__KIND_ADAPTER:
        kvf__inspect_params(h5, NULL, "adapter", true, tensors);
        break;
    default:
        kvf__inspect_params(h5, NULL, "encoder", true, tensors);
    }
    if (a->prefix.state) describe_state(h5, &a->prefix, tensors);
}

/* Describes the parts that only a run has. */
static void describe_training(kvf__h5 *h5, kvf_json *tensors)
{
    kvf__inspect_params(h5, "best", "encoder", true, tensors);
    kvf__inspect_params(h5, "best", "head", true, tensors);
    kvf__inspect_params(h5, "best", "heads", true, tensors);
    kvf__inspect_params(h5, "optimizer", "m", false, tensors);
    kvf__inspect_params(h5, "optimizer", "v", false, tensors);
}

/* ---- facts ----------------------------------------------------------------------------------- */

static kvf_json *mask_array(const uint8_t *mask, int64_t L)
{
    kvf_json *layers = kvf_json_array();

    for (int64_t l = 0; l < L; l++)
        kvf_json_add(layers, kvf_json_new_int(mask[l]));
    return layers;
}

static void describe_attributes(kvf__h5 *h5, const kvf__artifact *a, kvf_json *attributes)
{
    const uint8_t *mask = kvf__artifact_mask(a);
    char *version = kvf__h5_get_text(h5, h5->file, "kvfold_version");

    kvf__identity_describe(&a->id, attributes);
    if (mask) kvf_json_set(attributes, "layer_mask", mask_array(mask, a->id.L));
    if (version) kvf_json_set(attributes, "kvfold_version", kvf_json_new_str(version));
    kvf__free(version);
    if (a->kind == KVF__KIND_PREFIX)
        kvf_json_set(attributes, "dtype", kvf_json_new_str(kvf__prefix_dtype_name(a->dtype)));
    if (a->kind == KVF__KIND_EMBEDDINGS) {
        kvf__json_put(attributes, "p_template:s norms:o", a->pattern,
                      kvf__norms_of(a->vectors.x, a->vectors.P, a->vectors.C, a->vectors.C));
    }
    if (a->kind == KVF__KIND_ADAPTER) {
        kvf__json_put(attributes, "size:I activation:s placement:s", a->size, a->activation,
                      a->placement);
    }
}

static void describe_best(kvf__h5 *h5, kvf_json *object)
{
    char *metric;

    if (!kvf__h5_has(h5, h5->file, "best")) return;
    kvf__h5_id group = kvf__h5_group_open(h5, h5->file, "best");
    kvf_json_set(object, "best_step", kvf_json_new_int(kvf__h5_get_i64(h5, group, "step")));
    metric = kvf__h5_get_text(h5, group, "metric");
    kvf_json_set(object, "best_metric", kvf_json_new_str(metric ? metric : ""));
    kvf_json_set(object, "best_value", kvf_json_new_real(kvf__h5_get_f64(h5, group, "value")));
    kvf__free(metric);
    kvf__h5_release(&group);
}

static void describe_history(kvf__h5 *h5, kvf_json *root)
{
    kvf_json *object = kvf_json_object();
    kvf__history history = {0};

    kvf_json_set(root, "history", object);
    kvf__history_read(h5, &history);
    int64_t last = h5->status ? -1 : history.n - 1;
    kvf_json_set(object, "steps", kvf_json_new_int(last >= 0 ? history.step[last] : 0));
    if (last >= 0) {
        kvf__json_put(object, "tokens:I first_train_loss:f last_train_loss:f", history.tokens[last],
                      history.train_loss[0], history.train_loss[last]);
    }
    while (last >= 0 && isnan(history.valid_loss[last]))
        last--;
    if (last >= 0)
        kvf_json_set(object, "last_valid_loss", kvf_json_new_real(history.valid_loss[last]));
    kvf__history_done(&history);
    describe_best(h5, object);
}

static void describe_items(kvf__h5 *h5, const char *name, kvf_json *root)
{
    kvf_json *items = kvf__attrs_read(h5, h5->file, name);
    kvf__set_taken(root, name, &items);
}

/* ---- the whole ------------------------------------------------------------------------------- */

static void describe(kvf__h5 *h5, const kvf__h5_data *at, const kvf__artifact *a, kvf_json *root)
{
    kvf_json *tensors = kvf_json_array(), *attributes = kvf_json_object();

    h5->claimed = 0; /* everything is read again, one tensor at a time */
    kvf_json_set(root, "tensors", tensors);
    kvf_json_set(root, "attributes", attributes);
    describe_attributes(h5, a, attributes);
    describe_values(h5, at, a, tensors);
    kvf__inspect_head(h5, root, tensors);
    if (a->kind == KVF__KIND_RUN) {
        describe_training(h5, tensors);
        describe_history(h5, root);
    }
    if (a->kind == KVF__KIND_PREFIX && a->prefix.P)
        kvf_json_set(root, "layers", describe_layers(&a->prefix));
    describe_items(h5, "state", root);
    describe_items(h5, "options", root);
    describe_items(h5, "lineage", root);
}

static kvf_status inspect_trained(kvf_ctx *ctx, const char *path, kvf__kind kind, kvf_json *root)
{
    kvf__artifact a = {.kind = kind};
    kvf__h5 h5 = kvf__artifact_open(ctx, path, &a.kind);

    kvf__h5_data at = kvf__artifact_read_from(
        &h5, kind == KVF__KIND_RUN ? KVF__READ_IDENTITY : KVF__READ_VALUES, &a);
    if (kind == KVF__KIND_RUN) a.layer_mask = kvf__mask_read(&h5, at.id, "layer_mask", a.id.L);
    if (!h5.status) describe(&h5, &at, &a, root);
    kvf__artifact_done(&a);
    kvf__h5_release(&at.id);
    return kvf__h5_close(&h5);
}

/* Adds the head of a base file, if any, with its task among the attributes. */
static kvf_status add_task(kvf_ctx *ctx, const char *path, kvf_json *root)
{
    kvf__artifact a = {.kind = KVF__KIND_BASE};
    kvf__h5 h5 = kvf__artifact_open(ctx, path, &a.kind);
    kvf__h5_data at = kvf__artifact_read_from(&h5, KVF__READ_VALUES, &a);

    if (a.id.task && !h5.status) {
        kvf_json_set(kvf_json_get(root, "attributes"), "task", kvf_json_new_str(a.id.task));
        kvf__inspect_head(&h5, root, kvf_json_get(root, "tensors"));
        describe_items(&h5, "options", root);
        describe_items(&h5, "lineage", root);
    }
    kvf__artifact_done(&a);
    kvf__h5_release(&at.id);
    return kvf__h5_close(&h5);
}

/* Describes a base file like a folder: the config as attributes, and the names of the tokenizer's
 * files. */
static kvf_status inspect_base(kvf_ctx *ctx, const char *path, kvf_json *root)
{
    kvf__base_file file = {0};
    kvf_json *config = NULL, *texts = kvf_json_array();

    kvf_status st = kvf__base_file_open(ctx, path, true, &file);
    if (!st) st = kvf_json_parse(ctx, path, file.config, strlen(file.config), &config);
    kvf__set_taken(root, "attributes", &config);
    for (size_t i = 0; i < file.n_texts; i++)
        kvf_json_add(texts, kvf_json_new_str(file.texts[i].name));
    kvf__set_taken(root, "tokenizer", &texts);
    kvf__inspect_table(&file.table, root);
    if (!st) st = add_task(ctx, path, root);
    kvf__base_file_done(&file);
    return st;
}

kvf_status kvf__inspect_own(kvf_ctx *ctx, const char *path, kvf_json *root)
{
    kvf__kind kind = KVF__KIND_ANY;

    kvf__h5 h5 = kvf__artifact_open(ctx, path, &kind);
    kvf_json *features = kvf__h5_features(&h5);
    const kvf_status st = kvf__h5_close(&h5);
    if (!st) kvf_json_set(root, "kind", kvf_json_new_str(kvf__kind_name(kind)));
    kvf__set_taken(root, "features", &features);
    if (st) return st;
    return kind == KVF__KIND_BASE ? inspect_base(ctx, path, root)
                                  : inspect_trained(ctx, path, kind, root);
}
