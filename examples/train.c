/* Trains a prefix by the library, watching its steps, then folds it and measures what is left.
 *
 *     train BASE TRAIN.jsonl VALID.jsonl RUN.h5 PREFIX.h5
 *
 * Built against an installed kvfold:
 *
 *     cc train.c -o train $(pkg-config --cflags --libs kvfold)
 */
#include <kvfold/kvfold.h>
#include <stdio.h>

/* Called from inside kvf_train, between two steps. */
static void on_event(void *user, const kvf_event *event)
{
    FILE *out = user;
    if (event->kind == KVF_EVENT_STEP)
        fprintf(out, "step %lld of %lld: loss %.4f\n", (long long)event->step,
                (long long)event->steps, event->train_loss);
    if (event->kind == KVF_EVENT_EVAL)
        fprintf(out, "held out: %.4f%s\n", event->valid_loss,
                event->best ? ", the best so far" : "");
}

static kvf_status train(kvf_ctx *ctx, char **path)
{
    kvf_train_result result;
    kvf_train_options options = kvf_train_defaults();
    options.base = path[1];
    options.data = path[2];
    options.valid = path[3];
    options.out = path[4];
    options.event = on_event;
    options.event_user = stdout;
    /* by field, or as the command line has it */
    kvf_status st = kvf_train_set(ctx, &options, "prefix-length", "4");
    if (!st) st = kvf_train_set(ctx, &options, "encoder-hidden", "16");
    if (!st) st = kvf_train_set(ctx, &options, "steps", "6");
    if (!st) st = kvf_train_set(ctx, &options, "eval-every", "3");
    if (!st) st = kvf_train_set(ctx, &options, "precision", "f32");
    if (!st) st = kvf_train(ctx, &options, &result);
    if (!st)
        printf("trained %lld parameters on %lld tokens\n", (long long)result.trainable_parameters,
               (long long)result.tokens);
    return st;
}

static kvf_status fold_and_measure(kvf_ctx *ctx, char **path)
{
    kvf_base *base = NULL;
    kvf_prefix *prefix = NULL;
    kvf_merge_result merged;
    kvf_eval_result measured;
    const kvf_base_options how = {.precision = KVF_PRECISION_F32};
    const kvf_merge_options merge = {.run = path[4], .out = path[5]};
    const kvf_eval_options eval = {.data = path[3]};
    kvf_status st = kvf_merge(ctx, &merge, &merged);
    if (!st) st = kvf_base_open(ctx, path[1], &how, &base);
    if (!st) st = kvf_prefix_open(ctx, path[5], KVF_CHECKPOINT_DEFAULT, &prefix);
    if (!st) st = kvf_eval(ctx, base, &prefix, 1, &eval, &measured);
    if (!st) printf("folded to %lld bytes, loss %.6f\n", (long long)merged.bytes, measured.loss);
    kvf_prefix_free(prefix);
    kvf_base_free(base);
    return st;
}

int main(int argc, char **argv)
{
    kvf_ctx *ctx = NULL;
    if (argc != 6) {
        fputs("usage: train BASE TRAIN.jsonl VALID.jsonl RUN.h5 PREFIX.h5\n", stderr);
        return 2;
    }
    if (kvf_ctx_create(NULL, &ctx)) return 1;
    kvf_status st = train(ctx, argv);
    if (!st) st = fold_and_measure(ctx, argv);
    if (st) fprintf(stderr, "train: %s\n", kvf_ctx_error(ctx));
    kvf_ctx_free(ctx);
    return st != KVF_OK;
}
