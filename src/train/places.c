/* Prefixes of encoder-decoders: --places, where one is attended to (Li & Liang 2021, section 4.2),
 * and what cannot be done with such a base. */
#include "run.h"

#include <string.h>

static const char *const WORDS[KVF__PLACES] = {[KVF__PLACE_ENCODER] = "encoder",
                                               [KVF__PLACE_DECODER] = "decoder",
                                               [KVF__PLACE_CROSS] = "cross"};

kvf_status kvf__places_check(kvf__run *run, bool fed)
{
    const kvf_train_options *o = &run->options;
    const kvf__desc *d = kvf__model_desc(run->base->model);
    const kvf__method *method = run->method;

    if (!d->encoder) return KVF_OK;
    if (method->port != KVF__PORT_KV || method->reads_base)
        return kvf__fail(
            run->ctx, KVF_EUSAGE,
            "--method %s: %s is an encoder-decoder, for which there are mlp and direct", o->method,
            d->arch_name);
    if (fed)
        return kvf__fail(run->ctx, KVF_EUSAGE,
                         "%s is an encoder-decoder: no document is distilled for it", d->arch_name);
    if ((strcmp(o->task, "lm") && strcmp(o->task, "seq-cls")) || o->named_data.n)
        return kvf__fail(
            run->ctx, KVF_EUSAGE,
            "--task %s: %s is an encoder-decoder, for which there are lm, with rows of "
            "prompt and completion, and seq-cls",
            o->named_data.n ? "of several" : o->task, d->arch_name);
    return KVF_OK;
}

/* What PEFT has (peft_stacks.c): the decoder, whose relative bias, if any, counts the prefix. */
static const char PEFT[] = "peft";

bool kvf__places_near(const kvf_train_options *options, const kvf__desc *desc)
{
    return desc->encoder && desc->position.kind == KVF__POS_BIAS && options->places &&
           !strcmp(options->places, PEFT);
}

/* The place at `text`, of n bytes; KVF__PLACE_ONLY: none has that name. */
static kvf__place find_place(const char *text, size_t n)
{
    for (int place = KVF__PLACE_ENCODER; place < KVF__PLACES; place++)
        if (strlen(WORDS[place]) == n && !strncmp(WORDS[place], text, n)) return (kvf__place)place;
    return KVF__PLACE_ONLY;
}

kvf_status kvf__places_mask(kvf__run *run, uint8_t *layer_mask)
{
    const kvf__desc *d = kvf__model_desc(run->base->model);
    const char *places = run->options.places;
    bool chosen[KVF__PLACES] = {0};

    if (!places || !*places) return KVF_OK;
    if (!strcmp(places, PEFT)) places = WORDS[KVF__PLACE_DECODER];
    for (const char *at = places, *end; at; at = *end ? end + 1 : NULL) {
        end = at + strcspn(at, ",");
        const kvf__place place = find_place(at, (size_t)(end - at));
        if (place == KVF__PLACE_ONLY)
            return kvf__fail(run->ctx, KVF_EUSAGE,
                             "--places %s: want peft, or some of encoder,decoder,cross", places);
        chosen[place] = true;
    }
    for (int64_t l = 0; l < d->L; l++)
        layer_mask[l] = layer_mask[l] && chosen[kvf__layer_place(d, l)];
    for (int64_t l = 0; l < d->L; l++)
        if (layer_mask[l]) return KVF_OK;
    return kvf__fail(run->ctx, KVF_EUSAGE, "--places %s and --layers %s leave no layer",
                     run->options.places, run->options.layers);
}
