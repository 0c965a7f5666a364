/* --train-head: the language model's head is trained beside the prefix (head.h). It joins the
 * list that AdamW steps behind the encoder's parameters, where another task's head stands, so run
 * files, the best checkpoint and --resume treat it as they treat any head. */
#include "train_int.h"

static double mib(int64_t floats)
{
    return (double)floats * sizeof(float) / (1 << 20);
}

/* Said before anything is computed: for most bases this is many times the prefix. */
static void say_size(kvf__trainer *t, const kvf__param *head)
{
    bool tied = kvf__model_desc(t->base->model)->tied;
    bool best = t->valid.n || t->resumed.best.params.n;
    kvf__trainer_note(t,
                      "%s [%lld, %lld] is trained too: %.1f MiB stored with the prefix, %.1f MiB "
                      "while training%s",
                      head->name, (long long)head->dim[0], (long long)head->dim[1], mib(head->n),
                      mib((best ? 5 : 4) * head->n),
                      tied ? "; untied, the input embedding stays as it is" : "");
}

kvf_status kvf__trainer_make_own_head(kvf__trainer *t)
{
    const kvf_train_options *o = &t->options;
    if (!o->train_head) return KVF_OK;
    KVF_TRY(kvf__head_create_lm(t->ctx, t->base->model, true, &t->head));
    kvf__param *head = &kvf__head_params(t->head)->item[0];
    head->lr_scale = o->head_lr / o->lr; /* the schedule carries o->lr */
    say_size(t, head);
    return KVF_OK;
}

kvf__params *kvf__trainer_head_params(const kvf__trainer *t)
{
    return t->head ? kvf__head_params(t->head) : NULL;
}
