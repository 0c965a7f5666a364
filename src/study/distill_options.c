/* Which of train's options a distillation has: those that its rows name. Some have another default
 * or another help here. And what its options may not be together. */
#include "distill_int.h"

#include <string.h>

enum { LEAST_WINDOW = 4 };

#define AT(field) offsetof(kvf_train_options, field)
static const kvf__option_row OTHER[] = {
    {"data", "FILE", "", KVF_TEXT, AT(data),
     "rows about the document, in place of those made from it"},
    {"valid", "FILE", "one row in eight", KVF_TEXT, AT(valid), "held-out rows to measure by"},
    {"dry-run", NULL, "", KVF_FLAG, AT(dry_run),
     "make the rows, show what would be done, and stop"},
    {"method", "direct|mlp|projected", "direct", KVF_WORD, AT(method), "what emits the prefix"},
    {"encoder-hidden", "N", "512", KVF_COUNT, AT(encoder_hidden),
     "hidden width M of the encoder: mlp"},
    {"init", "match|text|vocab|random|zero|kv", "text: the document's first P tokens", KVF_WORD,
     AT(init), "starting prefix: solved for by attention matching, or as train has it"},
    {"steps", "N", "200", KVF_COUNT, AT(steps), "optimizer steps, counted from the start"},
    {"epochs", "N", "off", KVF_COUNT, AT(epochs), "passes over the rows, instead of --steps"},
    {"lr", "X", "0.03", KVF_AMOUNT, AT(lr), "learning rate"},
    {"batch-size", "N", "8", KVF_COUNT, AT(batch_size), "rows per step"},
    {"max-length", "N", "what fits", KVF_COUNT, AT(max_length), "longest row in tokens"},
    {"seed", "N", "0", KVF_SEED, AT(seed), "of prompts, answers, initialisation and order"},
};

const kvf__option_row *kvf__distill_option_row(size_t index)
{
    const kvf__option_row *row;
    for (size_t i = 0; (row = kvf__train_option_row(i)) != NULL; i++) {
        if (!kvf__train_option_distills(i) || index--) continue;
        for (size_t k = 0; k < sizeof OTHER / sizeof OTHER[0]; k++)
            if (!strcmp(OTHER[k].name, row->name)) return &OTHER[k];
        return row;
    }
    return NULL;
}

/* ---- what is refused ------------------------------------------------------------------------- */

static kvf_status check_train(kvf_ctx *ctx, const kvf_train_options *o)
{
    const kvf__method *method = kvf__method_find(o->method);
    const char *bad = strcmp(o->task, "lm") || o->named_data.n ? "task"
                      : o->train_head                          ? "train-head"
                      : o->infix                               ? "infix"
                      : o->p_template && *o->p_template        ? "p-template"
                                                               : NULL;
    if (bad)
        return kvf__fail(ctx, KVF_EUSAGE,
                         "--%s: a document is distilled into a prefix before rows "
                         "of one task, lm",
                         bad);
    if (!strcmp(o->init, "match") && (o->init_from || o->init_encoder))
        return kvf__fail(ctx, KVF_EUSAGE, "--init-%s: --init match is another start",
                         o->init_from ? "from" : "encoder");
    if (!method || method->port != KVF__PORT_KV)
        return kvf__fail(ctx, KVF_EUSAGE,
                         "--method %s: a document is distilled into keys and values", o->method);
    return KVF_OK;
}

static kvf_status check_system_prompt(kvf_ctx *ctx, const kvf_distill_options *o)
{
    if (!o->system_prompt)
        return o->on_policy
                   ? kvf__fail(ctx, KVF_EUSAGE, "--on-policy: want --system-prompt beside it")
                   : KVF_OK;
    const char *bad = o->document     ? "document"
                      : o->chunk > 0  ? "chunk"
                      : o->window > 0 ? "window"
                      : o->cloze > 0  ? "cloze"
                                      : NULL;
    if (bad) return kvf__fail(ctx, KVF_EUSAGE, "--%s: is for documents, not --system-prompt", bad);
    if (strcmp(o->train.chat_template, "no-system"))
        return kvf__fail(ctx, KVF_EUSAGE,
                         "--chat-template %s: with --system-prompt rows have the base's own "
                         "template, without its system turn",
                         o->train.chat_template);
    return KVF_OK;
}

kvf_status kvf__distill_check(kvf_ctx *ctx, const kvf_distill_options *o, const char *text)
{
    if (!o->train.base) return kvf__fail(ctx, KVF_EUSAGE, "--base is needed");
    if (!text) return kvf__fail(ctx, KVF_EUSAGE, "--document or --system-prompt is needed");
    KVF_TRY(check_system_prompt(ctx, o));
    if (o->kl && strcmp(o->kl, "forward") && strcmp(o->kl, "reverse"))
        return kvf__fail(ctx, KVF_EUSAGE, "--kl %s: want forward or reverse", o->kl);
    if (o->top_k < 0 || o->top_k > 256)
        return kvf__fail(ctx, KVF_EUSAGE, "--top-k %lld: want 1 to 256", (long long)o->top_k);
    if (o->window && o->window < LEAST_WINDOW)
        return kvf__fail(ctx, KVF_EUSAGE, "--window %lld: want %d or more", (long long)o->window,
                         LEAST_WINDOW);
    if (o->cloze && strcmp(o->train.init, "match"))
        return kvf__fail(ctx, KVF_EUSAGE, "--cloze: asks for --init match");
    if (!(o->temperature >= 0))
        return kvf__fail(ctx, KVF_EUSAGE, "--temperature must not be negative");
    KVF_TRY(kvf__check_input(ctx, text));
    if (o->train.out) KVF_TRY(kvf__check_not_input(ctx, o->train.out, text));
    return check_train(ctx, &o->train);
}
