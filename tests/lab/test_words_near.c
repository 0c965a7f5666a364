/* The vocabulary items nearest to a prefix, on the toy base. The base's keys and values of a single
 * token name that token, in every layer and at any position. The number of items per chunk changes
 * nothing. */
#include "toy_run.h"

#include <string.h>

enum { TOP = 5, LAYERS = 3, MOST_EVENTS = 61 };
static const char *const TEXTS[] = {"a", "k", "7", "&"};
static const char word[] = "fold9";
static const int64_t CHUNKS[] = {1, 7, 60, 1000};

/* The keys and values of a text, from a run that was not trained further. */
static kvf_prefix *prefix_of(const char *method, const char *text)
{
    kvf_train_options o = toy_run_options(out);
    kvf_prefix *prefix = NULL;
    o.method = method;
    o.init = "text";
    o.init_text = text;
    o.prefix_length = (int64_t)strlen(text);
    o.steps = 1;
    o.lr = 1e-30;
    train(&o);
    ck_assert_msg(!kvf_prefix_open(ctx, out, KVF_CHECKPOINT_LAST, &prefix), "%s",
                  kvf_ctx_error(ctx));
    return prefix;
}

/* The struct's words of a place equal those of the list. */
static void expect_same(const kvf_near_word *words, size_t top, const kvf_json *list)
{
    for (size_t i = 0; i < top; i++) {
        const kvf_json *item = kvf_json_at(list, i);
        ck_assert_int_eq(words[i].id, kvf_json_int(kvf_json_get(item, "id"), -1));
        if (!item) continue;
        ck_assert_str_eq(words[i].text, kvf_json_str(kvf_json_get(item, "text"), NULL));
        ck_assert_double_eq((double)words[i].cosine,
                            kvf_json_real(kvf_json_get(item, "cosine"), NAN));
    }
}

static void expect_all_same(const kvf_words_result *r, const kvf_json *found)
{
    const kvf_json *layers = kvf_json_get(found, "layers");
    for (int64_t place = 0; place < r->P * r->L * r->sides; place++) {
        const int64_t p = place / r->sides / r->L, l = place / r->sides % r->L;
        const kvf_json *tokens = layers ? kvf_json_get(kvf_json_at(layers, (size_t)l), "tokens")
                                        : kvf_json_get(found, "tokens");
        const char *side = !layers ? "nearest" : place % r->sides ? "value" : "key";
        expect_same(r->words + place * r->top, (size_t)r->top,
                    kvf_json_get(kvf_json_at(tokens, (size_t)p), side));
    }
}

static kvf_json *words_of(const kvf_prefix *prefix, const kvf_words_options *options)
{
    kvf_base *opened = open_base();
    kvf_json *found = NULL;
    kvf_words_result result;
    ck_assert_msg(!kvf_words(ctx, opened, prefix, options, &result, &found), "%s",
                  kvf_ctx_error(ctx));
    kvf_base_free(opened);
    ck_assert_int_eq(result.sides, kvf_json_get(found, "layers") ? 2 : 1);
    expect_all_same(&result, found);
    kvf_words_result_done(&result);
    return found;
}

/* The list names the letter first, at a cosine of 1, and the others in falling order. The toy's
 * products are f32 sums of 24 terms: 1e-5 is far above their rounding. */
static void expect_letter(const kvf_json *list, char letter, const char *what)
{
    double before = 2;
    ck_assert_uint_eq(kvf_json_size(list), TOP);
    const kvf_json *first = kvf_json_at(list, 0);
    const char *text = kvf_json_str(kvf_json_get(first, "text"), NULL);
    ck_assert_msg(text && text[0] == letter && !text[1], "%s names \"%s\", want %c", what,
                  text ? text : "nothing", letter);
    ck_assert_double_eq_tol(kvf_json_real(kvf_json_get(first, "cosine"), 0), 1, 1e-5);
    for (size_t i = 0; i < TOP; i++) {
        double cosine = kvf_json_real(kvf_json_get(kvf_json_at(list, i), "cosine"), 3);
        ck_assert_msg(cosine <= before, "%s: item %zu is nearer than the one before", what, i);
        before = cosine;
    }
}

START_TEST(token_alone_is_itself)
{
    const kvf_words_options options = {.top = TOP};
    kvf_prefix *prefix = prefix_of("direct", TEXTS[_i]);
    kvf_json *found = words_of(prefix, &options);
    const kvf_json *layers = kvf_json_get(found, "layers");

    ck_assert_uint_eq(kvf_json_size(layers), LAYERS);
    for (size_t l = 0; l < LAYERS; l++) {
        const kvf_json *tokens = kvf_json_get(kvf_json_at(layers, l), "tokens");
        ck_assert_uint_eq(kvf_json_size(tokens), 1);
        expect_letter(kvf_json_get(kvf_json_at(tokens, 0), "key"), TEXTS[_i][0], "key");
        expect_letter(kvf_json_get(kvf_json_at(tokens, 0), "value"), TEXTS[_i][0], "value");
    }
    kvf_json_free(found);
    kvf_prefix_free(prefix);
}
END_TEST

/* Layer 0 depends on no other token: every place names its token after rope is undone. */
START_TEST(first_layer_spells_the_text)
{
    const kvf_words_options options = {.top = TOP};
    kvf_prefix *prefix = prefix_of("direct", word);
    kvf_json *found = words_of(prefix, &options);
    const kvf_json *tokens = kvf_json_get(kvf_json_at(kvf_json_get(found, "layers"), 0), "tokens");

    ck_assert_uint_eq(kvf_json_size(tokens), strlen(word));
    for (size_t p = 0; word[p]; p++) {
        expect_letter(kvf_json_get(kvf_json_at(tokens, p), "key"), word[p], "key");
        expect_letter(kvf_json_get(kvf_json_at(tokens, p), "value"), word[p], "value");
    }
    kvf_json_free(found);
    kvf_prefix_free(prefix);
}
END_TEST

START_TEST(embeddings_spell_the_text)
{
    const kvf_words_options options = {.top = TOP};
    kvf_prefix *prefix = prefix_of("prompt", word);
    kvf_json *found = words_of(prefix, &options);
    const kvf_json *tokens = kvf_json_get(found, "tokens");

    ck_assert_uint_eq(kvf_json_size(tokens), strlen(word));
    for (size_t p = 0; word[p]; p++)
        expect_letter(kvf_json_get(kvf_json_at(tokens, p), "nearest"), word[p], "embedding");
    kvf_json_free(found);
    kvf_prefix_free(prefix);
}
END_TEST

typedef struct heard {
    int64_t at[MOST_EVENTS], items;
    int n;
} heard;

static void hear(void *user, int64_t done, int64_t items)
{
    heard *h = user;
    ck_assert_int_lt(h->n, MOST_EVENTS);
    h->at[h->n++] = done;
    h->items = items;
}

/* Items and order equal those of one chunk; progress ends at the whole vocabulary. */
START_TEST(chunks_change_nothing)
{
    heard h = {.n = 0};
    const kvf_words_options whole = {.top = 1, .chunk = 61};
    const kvf_words_options parts = {.top = 1, .chunk = CHUNKS[_i], .progress = hear, .user = &h};
    kvf_prefix *prefix = prefix_of("direct", word);
    kvf_json *a = words_of(prefix, &whole), *b = words_of(prefix, &parts);

    for (size_t l = 0; l < LAYERS; l++)
        for (size_t p = 0; word[p]; p++) {
            const kvf_json *const both[] = {a, b};
            int64_t id[2];
            for (int i = 0; i < 2; i++) {
                const kvf_json *layer = kvf_json_at(kvf_json_get(both[i], "layers"), l);
                const kvf_json *token = kvf_json_at(kvf_json_get(layer, "tokens"), p);
                id[i] = kvf_json_int(kvf_json_get(kvf_json_at(kvf_json_get(token, "key"), 0), "id"),
                                     -1 - i);
            }
            ck_assert_int_eq(id[0], id[1]);
        }
    ck_assert_int_eq(h.items, 61);
    ck_assert_int_eq(h.at[h.n - 1], 61);
    ck_assert_int_eq(h.at[0], CHUNKS[_i] < 61 ? CHUNKS[_i] : 61);
    kvf_json_free(a);
    kvf_json_free(b);
    kvf_prefix_free(prefix);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("words_near");
    TCase *core = ck_case(suite, "core", toy_run_setup, toy_run_teardown, 60);
    TCase *limits = ck_case(suite, "limits", toy_run_setup, toy_run_teardown, 60);

    tcase_add_loop_test(core, token_alone_is_itself, 0, sizeof TEXTS / sizeof TEXTS[0]);
    tcase_add_test(core, first_layer_spells_the_text);
    tcase_add_test(core, embeddings_spell_the_text);
    tcase_add_loop_test(limits, chunks_change_nothing, 0, sizeof CHUNKS / sizeof CHUNKS[0]);
    return ck_main(suite);
}
