/* Forms of prompts, on the toy base over real sockets: several prompts, ids, chats, templates, and
 * virtual tokens alone. Each gets the answer of kvf_generate. */
#include <kvfold/train.h>

#include "serve_fx.h"

enum { MOST = 8, SAID = 256, SEED = 5 };

/* ---- the answers of kvf_generate ------------------------------------------------------------- */

/* Completions of a file's rows, one after the other. */
static void generate_rows(const char *file, const char *rows, uint64_t seed, char (*out)[SAID])
{
    char path[600];
    kvf_prefix *prefix = NULL;
    char **said = NULL;
    size_t n = 0;
    kvf_generate_options options = kvf_generate_defaults();
    toy_write(s.dir, "asked.jsonl", rows);
    snprintf(path, sizeof path, "%s/asked.jsonl", s.dir);
    if (file)
        ck_assert_int_eq(kvf_prefix_open(s.ctx, file, KVF_CHECKPOINT_DEFAULT, &prefix), KVF_OK);
    options.max_tokens = NEW;
    options.seed = seed;
    options.temperature = 0.8;
    options.batch_size = 1;
    ck_assert_msg(!kvf_generate_file(s.ctx, s.base, prefix, path, NULL, &options, &said, &n, NULL),
                  "%s", kvf_ctx_error(s.ctx));
    ck_assert_uint_le(n, MOST);
    for (size_t i = 0; i < n; i++)
        snprintf(out[i], SAID, "%s", said[i]);
    kvf_text_list_free(said, n);
    kvf_prefix_free(prefix);
}

/* "[1,2,3]": the ids of a text, without those that the tokenizer puts before it. */
static const char *ids_text(const char *prompt, char *out, size_t room)
{
    kvf__ids ids = {0};
    size_t n = 0;
    ck_assert_int_eq(kvf__encode(s.ctx, s.base->tokenizer, prompt, strlen(prompt), false, &ids),
                     KVF_OK);
    for (size_t i = 0; i < ids.n; i++)
        n += (size_t)snprintf(out + n, room - n, "%c%d", i ? ',' : '[', (int)ids.data[i]);
    snprintf(out + n, room - n, "]");
    kvf__ids_done(&ids);
    return out;
}

/* ---- asking ---------------------------------------------------------------------------------- */

/* A completion by the model "one"; prompt: JSON. */
static int asked(const char *prompt, const char *more)
{
    char body[1024];
    snprintf(body, sizeof body,
             "{\"model\":\"one\",\"prompt\":%s,\"max_tokens\":%d,\"temperature\":0.8,\"seed\":5%s}",
             prompt, NEW, more);
    return fetch(&s, "POST", "/v1/completions", NULL, body, text, ROOM);
}

/* The texts of the choices, whole or in a stream, by index. */
static void choices(char (*out)[SAID])
{
    char piece[SAID];
    memset(out, 0, MOST * sizeof *out);
    for (const char *at = text; (at = strstr(at, "{\"index\":")) != NULL; at++) {
        int index = atoi(at + strlen("{\"index\":"));
        ck_assert(index >= 0 && index < MOST);
        member(at, "text", piece, sizeof piece);
        strcat(out[index], piece);
    }
}

static void same_choices(char (*want)[SAID], int n)
{
    char got[MOST][SAID];
    choices(got);
    for (int i = 0; i < n; i++)
        ck_assert_str_eq(got[i], want[i]);
    ck_assert(n == MOST || !*got[n]);
}

/* ---- several prompts ------------------------------------------------------------------------- */

#define ROW(prompt) "{\"prompt\":\"" prompt "\"}\n"

/* More choices than rows, during another request; as one answer, a stream, and by ids. */
START_TEST(each_of_several_prompts_is_answered)
{
    char want[MOST][SAID], a[200], b[200], ids[500];
    s.options.max_rows = 3;
    generate_rows(s.path[0], ROW("the answer is") ROW("the answer is") ROW("x") ROW("x"), SEED,
                  want);
    ck_assert_str_ne(want[0], want[1]);
    serve_start(&s);
    int beside = dial(&s);
    ask(beside, "POST", "/v1/completions", NULL, body_of("two", "beside", 1, false));
    ck_assert_int_eq(asked("[\"the answer is\",\"x\"]", ",\"n\":2"), 200);
    same_choices(want, 4);
    has("\"usage\":{\"prompt_tokens\":14,");
    ck_assert_int_eq(asked("[\"the answer is\",\"x\"]", ",\"n\":2,\"stream\":true"), 200);
    same_choices(want, 4);
    snprintf(ids, sizeof ids, "[%s,%s]", ids_text("the answer is", a, sizeof a),
             ids_text("x", b, sizeof b));
    ck_assert_int_eq(asked(ids, ",\"n\":2"), 200);
    same_choices(want, 4);
    ck_assert_int_eq(hear(beside, text, ROOM), 200);
    /* one cannot be answered: none is */
    ck_assert_int_eq(asked("[\"x\",[1,99999]]", ""), 400);
    has("outside the vocabulary");
    is_served();
    serve_end(&s);
}
END_TEST

/* A client that disconnects before some of its choices got a row. */
START_TEST(who_leaves_early_blocks_nobody)
{
    char body[256];
    s.options.max_rows = 2;
    serve_start(&s);
    snprintf(body, sizeof body,
             "{\"model\":\"one\",\"prompt\":[\"a\",\"b\",\"c\"],\"n\":8,\"max_tokens\":200,"
             "\"stream\":true}");
    int leaves = dial(&s);
    ask(leaves, "POST", "/v1/completions", NULL, body);
    ck_assert_int_gt(recv(leaves, text, 100, 0), 0);
    close(leaves);
    is_served();
    serve_end(&s);
    ck_assert_int_eq(s.status, KVF_ESTOPPED);
}
END_TEST

/* ---- virtual tokens -------------------------------------------------------------------------- */

/* Trains it into the model "one". */
static void make_virtual(const char *method, const char *p_template, int64_t P, const char *chat)
{
    kvf_train_options o = short_run(method, s.path[0]);
    o.p_template = p_template;
    if (P) o.prefix_length = P;
    o.chat_template = chat;
    train_run(&o);
}

/* An empty prompt is a valid row after virtual tokens, and invalid without them. */
START_TEST(a_virtual_token_may_be_all)
{
    char want[MOST][SAID];
    make_virtual("prompt", NULL, _i ? 3 : 1, "none");
    generate_rows(s.path[0], ROW(""), SEED, want);
    serve_start(&s);
    ck_assert_int_eq(asked("\"\"", ""), 200);
    same_choices(want, 1);
    ck_assert_int_eq(complete("bare", "", 1), 400);
    has("the prompt has no tokens");
    is_served();
    serve_end(&s);
}
END_TEST

static const struct {
    const char *text, *ids_of; /* the blank between two texts belongs to the prompt */
} TEMPLATES[] = {{"{p:2} {prompt} {p:3} {completion}", "the answer is"},
                 {"{p} so, {prompt} {p:2} then {completion}", " the answer is"}};

START_TEST(templates_place_prompts_and_ids)
{
    char want[MOST][SAID], bare[MOST][SAID], ids[200];
    make_virtual("p-tuning", TEMPLATES[_i].text, 0, "none");
    generate_rows(s.path[0], ROW("the answer is"), SEED, want);
    generate_rows(NULL, ROW("the answer is"), SEED, bare);
    ck_assert_str_ne(want[0], bare[0]);
    serve_start(&s);
    ck_assert_int_eq(asked("\"the answer is\"", ""), 200);
    same_choices(want, 1);
    ck_assert_int_eq(asked(ids_text(TEMPLATES[_i].ids_of, ids, sizeof ids), ""), 200);
    same_choices(want, 1);
    ck_assert_int_eq(
        fetch(&s, "POST", "/v1/chat/completions", NULL,
              "{\"model\":\"one\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}", text,
              ROOM),
        400);
    has("does not support chats");
    is_served();
    serve_end(&s);
}
END_TEST

/* A chat after virtual tokens. */
START_TEST(chats_stand_behind_virtual_tokens)
{
    char want[MOST][SAID], got[SAID];
    make_virtual("prompt", NULL, 3, "chatml");
    generate_rows(s.path[0],
                  "{\"messages\":[{\"role\":\"user\",\"content\":\"is it\"},"
                  "{\"role\":\"assistant\",\"content\":\"no\"},"
                  "{\"role\":\"user\",\"content\":\"the answer\"}]}\n",
                  SEED, want);
    serve_start(&s);
    ck_assert_int_eq(
        fetch(&s, "POST", "/v1/chat/completions", NULL,
              "{\"model\":\"one\",\"messages\":[{\"role\":\"user\",\"content\":\"is it\"},"
              "{\"role\":\"assistant\",\"content\":\"no\"},"
              "{\"role\":\"user\",\"content\":\"the answer\"}],\"max_tokens\":12,"
              "\"temperature\":0.8,\"seed\":5}",
              text, ROOM),
        200);
    member(text, "content", got, sizeof got);
    ck_assert_str_eq(got, want[0]);
    serve_end(&s);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("serve_prompts");
    TCase *core = tcase_create("core");
    tcase_set_timeout(core, 100);
    tcase_add_checked_fixture(core, setup, teardown);
    tcase_add_test(core, each_of_several_prompts_is_answered);
    tcase_add_test(core, who_leaves_early_blocks_nobody);
    tcase_add_loop_test(core, a_virtual_token_may_be_all, 0, 2);
    tcase_add_loop_test(core, templates_place_prompts_and_ids, 0, 2);
    tcase_add_test(core, chats_stand_behind_virtual_tokens);
    suite_add_tcase(suite, core);
    return ck_main(suite);
}
