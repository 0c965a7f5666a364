/* Trains a prefix with the library and prints the steps, then folds the prefix and evaluates it.
 *
 *     train BASE TRAIN.jsonl VALID.jsonl RUN.h5 PREFIX.h5
 *
 * Built against an installed kvfold:
 *
 *     cc train.c -o train $(pkg-config --cflags --libs kvfold)
 */
#include <kvfold/kvfold.h>
#include <stdio.h>
#include <string.h>

/* Called by kvf_train between two steps. */
static void on_event(void *user, const kvf_event *event)
{
    FILE *out = (FILE *)user;
    if (event->kind == KVF_EVENT_STEP)
        fprintf(out, "step %lld of %lld: loss %.4f\n", (long long)event->step,
                (long long)event->steps, event->train_loss);
    if (event->kind == KVF_EVENT_EVAL)
        fprintf(out, "held out: %.4f%s\n", event->valid_loss,
                event->best ? ", the best so far" : "");
}

static kvf_status set_options(kvf_ctx *ctx, kvf_train_options *options, char **path)
{
    const char *const values[][2] = {
        {"base", path[1]}, {"data", path[2]},      {"valid", path[3]},
        {"out", path[4]},  {"prefix-length", "4"}, {"encoder-hidden", "16"},
        {"steps", "6"},    {"eval-every", "3"},    {"precision", "f32"}};
    kvf_status st = KVF_OK;
    for (size_t i = 0; !st && i < sizeof values / sizeof values[0]; i++)
        st = kvf_train_set(ctx, options, values[i][0], values[i][1]);
    kvf_train_set_event(options, on_event, stdout);
    return st;
}

static kvf_status train(kvf_ctx *ctx, char **path)
{
    kvf_train_options *options = NULL;
    kvf_train_result result;
    kvf_status st = kvf_train_options_create(ctx, &options);
    if (!st) st = set_options(ctx, options, path);
    if (!st) st = kvf_train(ctx, options, &result);
    if (!st)
        printf("trained %lld parameters on %lld tokens\n", (long long)result.trainable_parameters,
               (long long)result.tokens);
    kvf_train_options_free(options);
    return st;
}

static kvf_status fold_and_measure(kvf_ctx *ctx, char **path)
{
    kvf_session *session = NULL;
    kvf_merge_result merged;
    kvf_eval_result measured;
    kvf_session_options how;
    kvf_merge_options merge;
    kvf_eval_options eval;
    memset(&how, 0, sizeof how); /* zero selects the default of every option */
    memset(&merge, 0, sizeof merge);
    memset(&eval, 0, sizeof eval);
    how.base.precision = KVF_PRECISION_F32;
    merge.run = path[4];
    merge.out = path[5];
    eval.data = path[3];
    kvf_status st = kvf_merge(ctx, &merge, &merged);
    if (!st) st = kvf_session_open(ctx, path[1], path[5], &how, &session);
    if (!st) {
        kvf_prefix *prefix = kvf_session_prefix(session);
        st = kvf_eval(ctx, kvf_session_base(session), &prefix, 1, &eval, &measured);
    }
    if (!st) printf("folded to %lld bytes, loss %.6f\n", (long long)merged.bytes, measured.loss);
    kvf_session_close(session);
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
