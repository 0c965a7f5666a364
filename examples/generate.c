/* Completes a prompt on a base, with and without a prefix, to show what the prefix changes.
 *
 *     generate BASE PREFIX.h5 "Internet, noun:"
 *
 * Built against an installed kvfold:
 *
 *     cc generate.c -o generate $(pkg-config --cflags --libs kvfold)
 */
#include <kvfold/kvfold.h>
#include <stdio.h>
#include <string.h>

static int fail(kvf_ctx *ctx)
{
    fprintf(stderr, "generate: %s\n", kvf_ctx_error(ctx));
    return 1;
}

static int complete(kvf_ctx *ctx, kvf_base *base, const kvf_prefix *prefix, const char *prompt)
{
    char *texts[1];
    kvf_generate_options options = kvf_generate_defaults(); /* greedy */
    options.max_tokens = 20;
    if (kvf_generate(ctx, base, prefix, &prompt, 1, &options, texts, NULL)) return fail(ctx);
    printf("%s %s\n", prefix ? "with:   " : "without:", texts[0]);
    kvf_texts_free(texts, 1);
    return 0;
}

int main(int argc, char **argv)
{
    kvf_ctx *ctx = NULL;
    kvf_session *session = NULL;
    kvf_session_options how;
    int code = 1;
    if (argc != 4) {
        fputs("usage: generate BASE PREFIX.h5 PROMPT\n", stderr);
        return 2;
    }
    memset(&how, 0, sizeof how); /* zero selects the default of every option */
    how.base.precision = KVF_PRECISION_F32;
    if (kvf_ctx_create(NULL, &ctx)) return 1;
    if (kvf_session_open(ctx, argv[1], argv[2], &how, &session)) {
        fail(ctx);
    } else {
        kvf_base *base = kvf_session_base(session);
        code = complete(ctx, base, NULL, argv[3]) ||
               complete(ctx, base, kvf_session_prefix(session), argv[3]);
    }
    kvf_session_close(session);
    kvf_ctx_free(ctx);
    return code;
}
