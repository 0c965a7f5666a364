/* Prefixes of encoder-decoders: --places (Li & Liang 2021, section 4.2), and the checks of options
 * that such a base does not support. */
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
        return kvf__fail(run->ctx, KVF_EUSAGE,
                         "--method %s: not supported on %s, an encoder-decoder: use mlp or direct",
                         o->method, d->arch_name);
    if (fed)
        return kvf__fail(run->ctx, KVF_EUSAGE,
                         "%s is an encoder-decoder, which distill does not support", d->arch_name);
    if ((strcmp(o->task, "lm") && strcmp(o->task, "seq-cls")) || o->named_data.n)
        return kvf__fail(run->ctx, KVF_EUSAGE,
                         "--task %s: not supported on %s, an encoder-decoder: use lm, with rows of "
                         "prompt and completion, or seq-cls",
                         o->named_data.n ? "of several" : o->task, d->arch_name);
    return KVF_OK;
}

/* The form of PEFT (peft_stacks.c): only the decoder, whose relative bias, if any, counts the
 * virtual tokens. */
static const char PEFT[] = "peft";

bool kvf__places_near(const kvf_train_options *options, const kvf__desc *desc)
{
    return desc->encoder && desc->position.kind == KVF__POS_BIAS && options->places &&
           !strcmp(options->places, PEFT);
}

/* Returns the place named by n bytes of text; KVF__PLACE_ONLY: unknown. */
static kvf__place find_place(const char *text, size_t n)
{
    for (int place = KVF__PLACE_ENCODER; place < KVF__PLACES; place++)
        if (strlen(WORDS[place]) == n && !strncmp(WORDS[place], text, n)) return (kvf__place)place;
    return KVF__PLACE_ONLY;
}

/* Returns whether a layer that is not masked can have what the run trains. */
static bool has_some(const kvf__run *run, const kvf__desc *d, const uint8_t *layer_mask)
{
    for (int64_t l = 0; l < run->id.L; l++)
        if (layer_mask[l] && (!run->options.prefix_length || !kvf__layer_mixes(d, l))) return true;
    return false;
}

kvf_status kvf__places_mask(kvf__run *run, uint8_t *layer_mask)
{
    const kvf__desc *d = kvf__model_desc(run->base->model);
    const char *places = run->options.places;
    bool chosen[KVF__PLACES] = {0};

    if ((!places || !*places) && has_some(run, d, layer_mask)) return KVF_OK;
    if (!places || !*places)
        return kvf__fail(run->ctx, KVF_EUSAGE, "--layers %s: none of these layers has attention",
                         run->options.layers);
    if (!strcmp(places, PEFT)) places = WORDS[KVF__PLACE_DECODER];
    for (const char *at = places, *end; at; at = *end ? end + 1 : NULL) {
        end = at + strcspn(at, ",");
        const kvf__place place = find_place(at, (size_t)(end - at));
        if (place == KVF__PLACE_ONLY)
            return kvf__fail(run->ctx, KVF_EUSAGE,
                             "--places %s: want peft, or a list of encoder,decoder,cross", places);
        chosen[place] = true;
    }
    for (int64_t l = 0; l < d->L; l++)
        layer_mask[l] = layer_mask[l] && chosen[kvf__layer_place(d, l)];
    if (has_some(run, d, layer_mask)) return KVF_OK;
    return kvf__fail(run->ctx, KVF_EUSAGE,
                     "--places %s and --layers %s leave no layer with a prefix",
                     run->options.places, run->options.layers);
}
