/* Replies in the form of OpenAI's API: complete objects, events of a stream (server-sent events),
 * error objects, lists of models; and tokenizer replies in the form of vLLM's API. */
#include "reply.h"
#include "json_pack.h"
#include "logprobs.h"

#include <math.h>
#include <string.h>

/* Appends an object, which it frees, as a complete body or as an event. */
static kvf_status put(kvf_json *object, bool event, kvf__buf *out)
{
    char *text = kvf_json_text(object, KVF_JSON_COMPACT);
    kvf_json_free(object);
    if (!text) return KVF_ENOMEM;
    kvf_status st = kvf__buf_printf(NULL, out, event ? "data: %s\n\n" : "%s\n", text);
    kvf_json_text_free(text);
    return st;
}

static kvf_json *text_or_null(const char *text)
{
    return text ? kvf_json_new_str(text) : kvf_json_new_null();
}

/* Makes an object with the common members and its choices. */
static kvf_json *object_of(const kvf__reply *reply, bool chunk, kvf_json *choices)
{
    const char *kind = !reply->chat ? "text_completion"
                       : chunk      ? "chat.completion.chunk"
                                    : "chat.completion";
    char id[48];
    snprintf(id, sizeof id, "%s-%llx-%llu", reply->chat ? "chatcmpl" : "cmpl",
             (unsigned long long)reply->created, (unsigned long long)reply->id);
    return kvf__json_of("id:s object:s created:I model:s choices:o", id, kind, reply->created,
                        reply->model, choices);
}

static void set_usage(kvf_json *object, const kvf__reply *reply)
{
    kvf_json *usage = kvf__json_of("prompt_tokens:I completion_tokens:I total_tokens:I",
                                   reply->prompt_tokens, reply->new_tokens,
                                   reply->prompt_tokens + reply->new_tokens);
    if (reply->cached_tokens >= 0)
        kvf_json_set(usage, "prompt_tokens_details",
                     kvf__json_of("cached_tokens:I", reply->cached_tokens));
    kvf_json_set(object, "usage", usage);
}

/* Makes a choice with text [n], in a chat {"role": role, "content": text} under the given name;
 * either may be NULL. */
static kvf_json *choice_of(const kvf__reply *reply, int64_t index, const char *name,
                           const char *role, const char *text, size_t n, kvf__finish finish)
{
    const char *reason = finish == KVF__FINISH_LENGTH ? "length" : finish ? "stop" : NULL;
    kvf_json *value = reply->chat ? kvf_json_object() : kvf_json_new_strn(text ? text : "", n);
    if (reply->chat && role) kvf_json_set(value, "role", kvf_json_new_str(role));
    if (reply->chat && text) kvf_json_set(value, "content", kvf_json_new_strn(text, n));
    kvf_json *object = kvf__json_of("index:I", index);
    kvf_json_set(object, reply->chat ? name : "text", value);
    kvf__json_put(object, "logprobs:o finish_reason:o", kvf_json_new_null(), text_or_null(reason));
    return object;
}

/* Adds the log-probabilities not sent yet, if requested. */
static void set_logprobs(const kvf__reply *reply, kvf__choice *choice, kvf_json *object)
{
    if (reply->tokenizer) kvf_json_set(object, "logprobs", kvf__logprobs_of(reply, choice));
}

static kvf_json *whole_choice(const kvf__reply *reply, kvf__choice *choice, kvf__buf *text)
{
    const kvf__buf *parts[] = {choice->echo ? &choice->echo->text : NULL, &choice->text};
    text->n = 0;
    for (int i = 0; i < 2; i++)
        if (parts[i] && kvf__buf_add(NULL, text, parts[i]->n ? parts[i]->data : "", parts[i]->n))
            return NULL;
    kvf_json *object = choice_of(reply, choice->index, "message", "assistant",
                                 text->n ? text->data : "", text->n, choice->finish);
    set_logprobs(reply, choice, object);
    return object;
}

kvf_status kvf__reply_whole(const kvf__reply *reply, kvf__choice *choices, int64_t n, kvf__buf *out)
{
    kvf_json *list = kvf_json_array();
    kvf__buf text = {0};
    for (int64_t i = 0; i < n; i++)
        kvf_json_add(list, whole_choice(reply, &choices[i], &text));
    kvf__buf_done(&text);
    kvf_json *object = object_of(reply, false, list);
    set_usage(object, reply);
    return put(object, false, out);
}

/* ---- streams --------------------------------------------------------------------------------- */

static kvf_status put_chunk(const kvf__reply *reply, kvf_json *choice, kvf__buf *out)
{
    return put(object_of(reply, true, kvf__json_pack("[o]", choice)), true, out);
}

kvf_status kvf__reply_begin(const kvf__reply *reply, kvf__choice *choice, kvf__buf *out)
{
    if (reply->chat)
        return put_chunk(
            reply, choice_of(reply, choice->index, "delta", "assistant", "", 0, KVF__GOES_ON), out);
    if (!choice->echo) return KVF_OK;
    const kvf__buf *text = &choice->echo->text;
    kvf_json *object = choice_of(reply, choice->index, "delta", NULL, text->n ? text->data : "",
                                 text->n, KVF__GOES_ON);
    set_logprobs(reply, choice, object);
    return put_chunk(reply, object, out);
}

/* Tokens without text are sent with the next text. */
kvf_status kvf__reply_text(const kvf__reply *reply, kvf__choice *choice, const char *text, size_t n,
                           kvf__buf *out)
{
    const int64_t index = choice->index;
    if (n) {
        kvf_json *object = choice_of(reply, index, "delta", NULL, text, n, KVF__GOES_ON);
        set_logprobs(reply, choice, object);
        KVF_TRY(put_chunk(reply, object, out));
    }
    if (!choice->finish) return KVF_OK;
    kvf_json *last = choice_of(reply, index, "delta", NULL, NULL, 0, choice->finish);
    if (choice->told < kvf__logprobs_count(reply, choice)) set_logprobs(reply, choice, last);
    return put_chunk(reply, last, out);
}

kvf_status kvf__reply_close(const kvf__reply *reply, bool usage, kvf__buf *out)
{
    if (usage) {
        kvf_json *object = object_of(reply, true, kvf_json_array());
        set_usage(object, reply);
        KVF_TRY(put(object, true, out));
    }
    return kvf__buf_printf(NULL, out, "data: [DONE]\n\n");
}

/* ---- classes --------------------------------------------------------------------------------- */

kvf_status kvf__reply_classes(const kvf__reply *reply, const char *task, kvf_json *answers,
                              kvf__buf *out)
{
    char id[48];
    snprintf(id, sizeof id, "classify-%llx-%llu", (unsigned long long)reply->created,
             (unsigned long long)reply->id);
    kvf_json *usage = kvf__json_of("prompt_tokens:I total_tokens:I", reply->prompt_tokens,
                                   reply->prompt_tokens);
    return put(kvf__json_of("id:s object:s created:I model:s task:s data:o usage:o", id, "list",
                            reply->created, reply->model, task, answers, usage),
               false, out);
}

/* ---- errors ---------------------------------------------------------------------------------- */

kvf_status kvf__reply_problem(const kvf__problem *problem, bool event, kvf__buf *out)
{
    const char *type = problem->status == 401   ? "authentication_error"
                       : problem->status == 403 ? "permission_error"
                       : problem->status == 429 ? "rate_limit_error"
                       : problem->status >= 500 ? "server_error"
                                                : "invalid_request_error";
    kvf_json *error = kvf__json_of("message:s type:s param:o code:o", problem->message, type,
                                   text_or_null(*problem->param ? problem->param : NULL),
                                   text_or_null(problem->code));
    return put(kvf__json_of("error:o", error), event, out);
}

/* ---- models ---------------------------------------------------------------------------------- */

static void set_number(kvf_json *object, const char *key, const kvf_json *lineage, const char *from)
{
    const int64_t value = kvf_json_int(kvf_json_get(lineage, from), -1);
    if (value >= 0) kvf_json_set(object, key, kvf_json_new_int(value));
}

static void set_loss(kvf_json *object, const char *key, double loss)
{
    if (isfinite(loss)) kvf_json_set(object, key, kvf_json_new_real(loss));
}

static void set_labels(kvf_json *object, const kvf__head_values *head)
{
    kvf_json *list = head->n_labels ? kvf_json_array() : NULL;
    for (size_t i = 0; i < head->n_labels; i++)
        kvf_json_add(list, kvf_json_new_str(head->labels[i]));
    if (list) kvf_json_set(object, "labels", list);
}

/* Lists the tasks that a model supports: "lm" for texts, and the task of its head. */
static kvf_json *tasks_of(const kvf__prefix_ref *ref, bool causal)
{
    kvf_json *list = kvf_json_array();
    if (causal && (!ref->prefix || ref->prefix->task == KVF__TASK_LM))
        kvf_json_add(list, kvf_json_new_str(kvf__task_name(KVF__TASK_LM)));
    if (ref->classifier)
        kvf_json_add(list, kvf_json_new_str(kvf__task_name(ref->classifier->task)));
    return list;
}

static kvf_json *facts_of(const kvf_base *base, const kvf__listed *model)
{
    const kvf__prefix_ref *ref = model->ref;
    if (!ref) return kvf__json_of("prefix:b", model->prefix);
    const kvf_prefix *prefix = ref->prefix;
    kvf_json *facts = kvf__json_of("prefix:b tasks:o architecture:s", prefix != NULL,
                                   tasks_of(ref, kvf__model_desc(base->model)->block.causal),
                                   kvf_base_architecture(base));
    if (ref->classifier) set_labels(facts, &ref->classifier->file.head);
    if (!prefix) return facts;
    kvf__json_put(facts, "task:s method:s", kvf__task_name(prefix->task), prefix->file.id.method);
    if (prefix->file.id.P)
        kvf_json_set(facts, "prefix_length", kvf_json_new_int(prefix->file.id.P));
    if (*kvf__prefix_row_form(prefix))
        kvf__json_put(facts, "row_form:s example_prompt:s", kvf__prefix_row_form(prefix),
                      prefix->file.id.example_prompt ? prefix->file.id.example_prompt : "");
    set_number(facts, "examples", prefix->file.lineage, "data_examples");
    set_number(facts, "step", prefix->file.lineage, "run_step");
    if (prefix->step >= 0) kvf_json_set(facts, "step", kvf_json_new_int(prefix->step));
    set_loss(facts, "train_loss", ref->train_loss);
    set_loss(facts, "valid_loss", ref->valid_loss);
    return facts;
}

static kvf_json *model_object(kvf__prefix_cache *cache, kvf__listed *model, int64_t created)
{
    kvf_json *object = kvf__json_of("id:s object:s created:I owned_by:s facts:o", model->name,
                                    "model", created, "kvfold", facts_of(cache->base, model));
    kvf__prefix_cache_put(cache, model->ref);
    return object;
}

kvf_status kvf__reply_model(kvf__prefix_cache *cache, kvf__listed *model, int64_t created,
                            kvf__buf *out)
{
    return put(model_object(cache, model, created), false, out);
}

/* The list is made in parts, so that the table is locked for a short time only. */
kvf_status kvf__reply_models(kvf__prefix_cache *cache, const kvf__tenant *tenant, const char *after,
                             int64_t most, int64_t created, kvf__buf *out)
{
    enum { PART = 32 };
    kvf__listed part[PART];
    char last[KVF__MODEL_NAME + 1];
    kvf_json *list = kvf_json_array();
    bool more = false;
    for (size_t n = 1; n && !more;) {
        n = kvf__prefix_cache_list(cache, after, PART, part);
        for (size_t i = 0; i < n; i++) {
            const bool seen = kvf__tenant_may(tenant, part[i].name);
            more |= seen && !most;
            if (seen && most && most--)
                kvf_json_add(list, model_object(cache, &part[i], created));
            else
                kvf__prefix_cache_put(cache, part[i].ref);
        }
        if (n) after = strcpy(last, part[n - 1].name);
    }
    return put(kvf__json_of("object:s data:o has_more:b", "list", list, more), false, out);
}

/* ---- tokens ---------------------------------------------------------------------------------- */

static kvf_json *written_form(const kvf__tokenizer *tokenizer, int32_t id)
{
    return text_or_null(kvf__token_text(tokenizer, id));
}

kvf_status kvf__reply_tokens(const kvf__ids *ids, int64_t most, const kvf__tokenizer *tokenizer,
                             kvf__buf *out)
{
    kvf_json *list = kvf_json_array(), *written = tokenizer ? kvf_json_array() : NULL;
    for (size_t i = 0; i < ids->n; i++) {
        kvf_json_add(list, kvf_json_new_int(ids->data[i]));
        if (written) kvf_json_add(written, written_form(tokenizer, ids->data[i]));
    }
    return put(kvf__json_of("count:I max_model_len:I tokens:o token_strs:o", (int64_t)ids->n, most,
                            list, written ? written : kvf_json_new_null()),
               false, out);
}

kvf_status kvf__reply_detokenized(const kvf__buf *text, kvf__buf *out)
{
    kvf_json *value = kvf_json_new_strn(text->n ? text->data : "", text->n);
    return put(kvf__json_of("prompt:o", value), false, out);
}

/* Uses the names of tokenizer_config.json. */
kvf_status kvf__reply_tokenizer(const kvf__tokenizer *tokenizer, kvf__buf *out)
{
    const struct {
        const char *name, *id_name;
        int32_t id;
    } rows[] = {{"bos_token", "bos_token_id", kvf__token_bos(tokenizer)},
                {"eos_token", "eos_token_id", kvf__token_eos(tokenizer)},
                {"pad_token", "pad_token_id", kvf__token_pad(tokenizer)}};
    kvf_json *object = kvf_json_object();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const int32_t id = rows[i].id;
        kvf_json_set(object, rows[i].name, written_form(tokenizer, id));
        kvf_json_set(object, rows[i].id_name, id < 0 ? kvf_json_new_null() : kvf_json_new_int(id));
    }
    kvf__json_put(object, "add_bos_token:b vocab_size:I chat_template:o", kvf__adds_bos(tokenizer),
                  (int64_t)kvf__vocab_size(tokenizer),
                  text_or_null(kvf__tokenizer_chat_template(tokenizer)));
    return put(object, false, out);
}
