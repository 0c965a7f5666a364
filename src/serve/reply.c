/* Answers as OpenAI's API words them: whole objects, events of a stream (server-sent events), error
 * objects, lists of models. */
#include "serve_int.h"

#include <string.h>

/* Appends the text of an object and frees it; before and behind it what is given. */
static kvf_status put(kvf_json *object, const char *before, const char *behind, kvf__buf *out)
{
    char *text = kvf_json_text(object, KVF_JSON_COMPACT);
    kvf_json_free(object);
    if (!text) return KVF_ENOMEM;
    kvf_status st = kvf__buf_printf(NULL, out, "%s%s%s", before, text, behind);
    kvf_json_text_free(text);
    return st;
}

static kvf_status put_event(kvf_json *object, kvf__buf *out)
{
    return put(object, "data: ", "\n\n", out);
}

static const char *finish_word(kvf__finish finish)
{
    return finish == KVF__FINISH_LENGTH ? "length" : "stop";
}

static kvf_json *finish_value(kvf__finish finish)
{
    return finish ? kvf_json_new_str(finish_word(finish)) : kvf_json_new_null();
}

/* The members that every object of an answer begins with. */
static kvf_json *object_of(const kvf__reply *reply, const char *kind)
{
    kvf_json *object = kvf_json_object();
    char id[48];
    snprintf(id, sizeof id, "%s-%llx-%llu", reply->chat ? "chatcmpl" : "cmpl",
             (unsigned long long)reply->created, (unsigned long long)reply->id);
    kvf_json_set(object, "id", kvf_json_new_str(id));
    kvf_json_set(object, "object", kvf_json_new_str(kind));
    kvf_json_set(object, "created", kvf_json_new_int(reply->created));
    kvf_json_set(object, "model", kvf_json_new_str(reply->model));
    return object;
}

static kvf_json *usage_of(const kvf__reply *reply)
{
    kvf_json *usage = kvf_json_object();
    kvf_json_set(usage, "prompt_tokens", kvf_json_new_int(reply->prompt_tokens));
    kvf_json_set(usage, "completion_tokens", kvf_json_new_int(reply->new_tokens));
    kvf_json_set(usage, "total_tokens", kvf_json_new_int(reply->prompt_tokens + reply->new_tokens));
    return usage;
}

/* {"role": "assistant", "content": text [n]}; either may be NULL. */
static kvf_json *message_of(const char *role, const char *text, size_t n)
{
    kvf_json *message = kvf_json_object();
    if (role) kvf_json_set(message, "role", kvf_json_new_str(role));
    if (text) kvf_json_set(message, "content", kvf_json_new_strn(text, n));
    return message;
}

/* Adds a choice with a member of the given name. */
static void add_choice(kvf_json *choices, int64_t index, const char *name, kvf_json *value,
                       kvf__finish finish)
{
    kvf_json *choice = kvf_json_object();
    kvf_json_set(choice, "index", kvf_json_new_int(index));
    kvf_json_set(choice, name, value);
    kvf_json_set(choice, "logprobs", kvf_json_new_null());
    kvf_json_set(choice, "finish_reason", finish_value(finish));
    kvf_json_add(choices, choice);
}

kvf_status kvf__reply_whole(const kvf__reply *reply, const kvf__choice *choices, int64_t n,
                            kvf__buf *out)
{
    kvf_json *object = object_of(reply, reply->chat ? "chat.completion" : "text_completion");
    kvf_json *list = kvf_json_array();
    for (int64_t i = 0; i < n; i++) {
        const size_t bytes = choices[i].text.n;
        const char *said = bytes ? choices[i].text.data : "";
        kvf_json *value = reply->chat ? message_of("assistant", said, bytes)
                                      : kvf_json_new_strn(said, bytes);
        add_choice(list, i, reply->chat ? "message" : "text", value, choices[i].finish);
    }
    kvf_json_set(object, "choices", list);
    kvf_json_set(object, "usage", usage_of(reply));
    return put(object, "", "\n", out);
}

/* ---- streams --------------------------------------------------------------------------------- */

static kvf_status put_chunk(const kvf__reply *reply, int64_t index, const char *role,
                            const char *text, size_t n, kvf__finish finish, kvf__buf *out)
{
    kvf_json *object = object_of(reply, reply->chat ? "chat.completion.chunk" : "text_completion");
    kvf_json *value = reply->chat ? message_of(role, text, n)
                                  : kvf_json_new_strn(text ? text : "", n);
    kvf_json *choices = kvf_json_array();
    add_choice(choices, index, reply->chat ? "delta" : "text", value, finish);
    kvf_json_set(object, "choices", choices);
    return put_event(object, out);
}

kvf_status kvf__reply_begin(const kvf__reply *reply, int64_t index, kvf__buf *out)
{
    return reply->chat ? put_chunk(reply, index, "assistant", "", 0, KVF__GOES_ON, out) : KVF_OK;
}

kvf_status kvf__reply_text(const kvf__reply *reply, int64_t index, const char *text, size_t n,
                           kvf__buf *out)
{
    return n ? put_chunk(reply, index, NULL, text, n, KVF__GOES_ON, out) : KVF_OK;
}

kvf_status kvf__reply_end(const kvf__reply *reply, int64_t index, kvf__finish finish, kvf__buf *out)
{
    return put_chunk(reply, index, NULL, NULL, 0, finish, out);
}

kvf_status kvf__reply_close(const kvf__reply *reply, bool usage, kvf__buf *out)
{
    static const char done[] = "data: [DONE]\n\n";
    if (usage) {
        kvf_json *object = object_of(reply,
                                     reply->chat ? "chat.completion.chunk" : "text_completion");
        kvf_json_set(object, "choices", kvf_json_array());
        kvf_json_set(object, "usage", usage_of(reply));
        KVF_TRY(put_event(object, out));
    }
    return kvf__buf_add(NULL, out, done, strlen(done));
}

/* ---- errors, models -------------------------------------------------------------------------- */

static const char *problem_type(unsigned status)
{
    if (status == 401) return "authentication_error";
    return status >= 500 ? "server_error" : "invalid_request_error";
}

static kvf_json *problem_object(const kvf__problem *p)
{
    kvf_json *object = kvf_json_object(), *error = kvf_json_object();
    kvf_json_set(error, "message", kvf_json_new_str(p->message));
    kvf_json_set(error, "type", kvf_json_new_str(problem_type(p->status)));
    kvf_json_set(error, "param", *p->param ? kvf_json_new_str(p->param) : kvf_json_new_null());
    kvf_json_set(error, "code", p->code ? kvf_json_new_str(p->code) : kvf_json_new_null());
    kvf_json_set(object, "error", error);
    return object;
}

kvf_status kvf__reply_problem(const kvf__problem *problem, kvf__buf *out)
{
    return put(problem_object(problem), "", "\n", out);
}

kvf_status kvf__reply_broken(const kvf__problem *problem, kvf__buf *out)
{
    return put_event(problem_object(problem), out);
}

static kvf_json *model_object(const char *name, int64_t created)
{
    kvf_json *model = kvf_json_object();
    kvf_json_set(model, "id", kvf_json_new_str(name));
    kvf_json_set(model, "object", kvf_json_new_str("model"));
    kvf_json_set(model, "created", kvf_json_new_int(created));
    kvf_json_set(model, "owned_by", kvf_json_new_str("kvfold"));
    return model;
}

kvf_status kvf__reply_models(const char *const *names, size_t n, bool as_list, int64_t created,
                             kvf__buf *out)
{
    if (!as_list) return put(model_object(names[0], created), "", "\n", out);
    kvf_json *object = kvf_json_object(), *data = kvf_json_array();
    for (size_t i = 0; i < n; i++)
        kvf_json_add(data, model_object(names[i], created));
    kvf_json_set(object, "object", kvf_json_new_str("list"));
    kvf_json_set(object, "data", data);
    return put(object, "", "\n", out);
}
