/* Lists the tensors of a kvfold, safetensors or GGUF file.
 *
 *     inspect FILE
 *
 * Built against an installed kvfold:
 *
 *     cc inspect.c -o inspect $(pkg-config --cflags --libs kvfold)
 */
#include <inttypes.h>
#include <kvfold/kvfold.h>
#include <stdio.h>

static void print_tensor(const kvf_json *tensor)
{
    const kvf_json *shape = kvf_json_get(tensor, "shape");
    printf("%s %s [", kvf_json_str(kvf_json_get(tensor, "dtype"), NULL),
           kvf_json_str(kvf_json_get(tensor, "name"), NULL));
    for (size_t i = 0; i < kvf_json_size(shape); i++)
        printf("%s%" PRId64, i ? ", " : "", kvf_json_int(kvf_json_at(shape, i), 0));
    puts("]");
}

int main(int argc, char **argv)
{
    kvf_ctx *ctx = NULL;
    kvf_json *tree = NULL;
    if (argc != 2) {
        fputs("usage: inspect FILE\n", stderr);
        return 2;
    }
    if (kvf_ctx_create(NULL, &ctx)) return 1;
    kvf_status st = kvf_inspect(ctx, argv[1], &tree);
    if (st) fprintf(stderr, "inspect: %s\n", kvf_ctx_error(ctx));
    if (!st) {
        const kvf_json *tensors = kvf_json_get(tree, "tensors");
        printf("%s: %s\n", argv[1], kvf_json_str(kvf_json_get(tree, "kind"), NULL));
        for (size_t i = 0; i < kvf_json_size(tensors); i++)
            print_tensor(kvf_json_at(tensors, i));
    }
    kvf_json_free(tree);
    kvf_ctx_free(ctx);
    return st != KVF_OK;
}
