/* Attention matching: keys and values against numpy's (match.safetensors, written by
 * golden/make_match_golden.py), at their own positions and rotated. Also tests properties of any
 * result. */
#include "distill_int.h"
#include "golden_model.h"

#include <math.h>
#include <string.h>

static golden g;
static kvf_base base; /* the golden model, without a tokenizer */
static kvf__weights answers;
static kvf__document document;
static kvf__dataset rows;

static const kvf__view *stored(const char *name)
{
    const kvf__view *view = kvf__table_find(&answers.table, name);
    ck_assert_msg(view != NULL, "no tensor %s", name);
    return view;
}

/* The document as ids, without its text, which matching does not need. */
static void open_document(void)
{
    const kvf__desc *d = kvf__model_desc(base.model);
    const kvf__view *ids = stored("ids");
    const int64_t T = ids->dim[0];
    document = (kvf__document){0};
    ck_assert(!kvf__ids_append(g.ctx, &document.ids, ids->data, (size_t)T));
    ck_assert(!kvf__alloc(g.ctx, sizeof *document.context, &document.context));
    document.context->file.id.position_start = document.window = T;
    for (int32_t t = 0; t < T; t++)
        ck_assert(!kvf__ids_add(g.ctx, &document.positions, t));
    ck_assert(!kvf__prefix_init(g.ctx, &document.context->file.prefix, d->L, d->G, T, d->D));
    ck_assert(!kvf__base_keys_values(g.ctx, &base, document.ids.data,
                                     &document.context->file.prefix, NULL));
}

static void open_rows(void)
{
    const kvf__view *ids = stored("rows");
    const int64_t R = ids->dim[0], N = ids->dim[1];
    kvf__row_list list = {.longest = N};
    for (int64_t r = 0; r < R; r++) {
        const int32_t *row = (const int32_t *)ids->data + r * N;
        ck_assert(!kvf__ids_append(g.ctx, &list.ids, row, (size_t)N));
        ck_assert(!kvf__ids_append(g.ctx, &list.labels, row, (size_t)N));
        ck_assert(!kvf__row_list_end(g.ctx, &list));
    }
    ck_assert(!kvf__row_list_pick(g.ctx, &list, R + 1, false, "", &rows));
    kvf__row_list_done(&list);
}

static void setup(void)
{
    golden_load(&g, "llama_tied", KVF__F32);
    base = (kvf_base){.model = g.model};
    ck_assert(!kvf__safetensors_open(g.ctx, ck_source("tests/golden/match.safetensors"), &answers));
    open_document();
    open_rows();
}

static void teardown(void)
{
    kvf__dataset_done(&rows);
    kvf__document_done(&document);
    kvf__weights_close(&answers);
    golden_unload(&g);
}

static kvf__prefix match(int64_t P, bool turned, bool weighs)
{
    const kvf__desc *d = kvf__model_desc(base.model);
    kvf__prefix out;
    ck_assert(!kvf__prefix_init(g.ctx, &out, d->L, d->G, P, d->D));
    if (weighs) ck_assert(!kvf__prefix_weigh(g.ctx, &out));
    const kvf__match_source source = kvf__document_source(&document);
    const int64_t start = turned ? P : source.start;
    ck_assert_msg(!kvf__match(g.ctx, &base, &source, &rows, start, &out), "%s",
                  kvf_ctx_error(g.ctx));
    kvf__rope_move(d, &out, start - P, source.start - P); /* positions used by numpy */
    return out;
}

static const char *const NAMES[] = {"kept", "turned", "weighed"};

/* Keys are copied (or rotated, in f32). Values are solved for with a condition of about 1e4, so a
 * difference of 1e-7 may grow to 1e-3. */
START_TEST(as_numpy_has_it)
{
    const kvf__view *want = stored(NAMES[_i]);
    kvf__prefix p = match(want->dim[3], _i == 1, _i == 2);
    const int64_t half = p.G * p.P * p.D, n = 2 * p.L * half;
    const float *w = want->data;
    for (int64_t i = 0; i < n; i++) {
        const double tolerance = i / half % 2 ? 2e-3 * (1 + fabs((double)w[i])) : 2e-5;
        ck_assert_msg(fabs((double)p.kv[i] - (double)w[i]) < tolerance,
                      "%s, layer %lld, value %d, element %lld: %g, numpy %g", NAMES[_i],
                      (long long)(i / (2 * half)), (int)(i / half % 2), (long long)(i % half),
                      (double)p.kv[i], (double)w[i]);
    }
    kvf__prefix_done(&p);
}
END_TEST

/* The weights themselves: a small weight may be any small number. */
START_TEST(weights_are_numpys)
{
    const kvf__view *want = stored("log_weight");
    kvf__prefix p = match(want->dim[2], false, true);
    for (size_t i = 0; i < kvf__prefix_weights(&p); i++)
        ck_assert_double_eq_tol(exp((double)p.log_weight[i]),
                                exp((double)((const float *)want->data)[i]), 1e-2);
    kvf__prefix_done(&p);
}
END_TEST

/* With as many keys as the document, the result is the document's own keys in their order. */
START_TEST(all_keys_are_the_documents)
{
    const kvf__prefix *context = &document.context->file.prefix;
    kvf__prefix p = match(context->P, false, false);
    const size_t half = (size_t)(p.G * p.P * p.D);
    ck_assert_mem_eq(p.kv, context->kv, half * sizeof(float)); /* of layer 0 */
    kvf__prefix_done(&p);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("match");
    TCase *cases = tcase_create("golden");
    tcase_set_timeout(cases, 60);
    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_loop_test(cases, as_numpy_has_it, 0, 3);
    tcase_add_test(cases, weights_are_numpys);
    tcase_add_test(cases, all_keys_are_the_documents);
    suite_add_tcase(suite, cases);
    return ck_main(suite);
}
