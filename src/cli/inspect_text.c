/* Prints the object of kvf_inspect() as text: one line of summary, then sections. Names and values
 * may come from foreign files, so control characters are removed and long values are cut. */
#include "cli_int.h"

#include <string.h>

enum { VALUE_COLUMNS = 100, NAME_COLUMNS = 60 };

void cli_print_safe(const char *text, size_t most)
{
    size_t i = 0;
    for (; text[i] && i < most; i++) {
        unsigned char c = (unsigned char)text[i], next = (unsigned char)text[i + 1];
        bool c1 = c == 0xC2 && next >= 0x80 && next < 0xA0;
        putchar(c < 0x20 || c == 0x7f || c1 ? '?' : c);
        i += c1;
    }
    while (text[i] && ((unsigned char)text[i] & 0xC0) == 0x80)
        putchar(text[i++]);
    if (text[i]) fputs("...", stdout);
}

static void print_value(kvf_json *value)
{
    const char *string = kvf_json_str(value, NULL);
    if (string) {
        cli_print_safe(string, VALUE_COLUMNS);
        return;
    }
    char *text = kvf_json_text(value, KVF_JSON_COMPACT);
    cli_print_safe(text ? text : "?", VALUE_COLUMNS);
    if (kvf_json_typeof(value) == KVF_JSON_ARRAY && text && strlen(text) > VALUE_COLUMNS)
        printf(" (%zu)", kvf_json_size(value));
    kvf_json_text_free(text);
}

static int widest_key(kvf_json *object)
{
    size_t most = 0;
    for (void *it = kvf_json_iter(object); it; it = kvf_json_next(object, it)) {
        size_t n = strlen(kvf_json_iter_key(it));
        if (n > most) most = n;
    }
    return (int)(most < NAME_COLUMNS ? most : NAME_COLUMNS);
}

void cli_print_padded(const char *name, int width)
{
    int n = (int)strlen(name);
    cli_print_safe(name, NAME_COLUMNS * 4);
    printf("%*s", n < width ? width - n : 0, "");
}

static void print_section(kvf_json *tree, const char *name)
{
    kvf_json *object = kvf_json_get(tree, name);
    int width = widest_key(object);
    if (!kvf_json_size(object)) return;
    printf("\n%s\n", name);
    for (void *it = kvf_json_iter(object); it; it = kvf_json_next(object, it)) {
        printf("  ");
        cli_print_padded(kvf_json_iter_key(it), width);
        printf("  ");
        print_value(kvf_json_iter_value(it));
        putchar('\n');
    }
}

/* ---- tensors --------------------------------------------------------------------------------- */

static void print_labels(const kvf_json *labels)
{
    for (size_t i = 0; i < kvf_json_size(labels); i++) {
        const char *label = kvf_json_str(kvf_json_at(labels, i), NULL);
        fputs(i ? ", " : "  (", stdout);
        cli_print_safe(label ? label : "", NAME_COLUMNS);
    }
    if (kvf_json_size(labels)) putchar(')');
}

static void print_tensor(const kvf_json *tensor, int name_width, int shape_width, bool diffable)
{
    char shape[400], size[32];
    const char *dtype = kvf_json_str(kvf_json_get(tensor, "dtype"), NULL);
    const kvf_json *norm = kvf_json_get(tensor, "norm");
    printf("  ");
    cli_print_padded(kvf__text_at(tensor, "name"), name_width);
    printf("  %-*s  ", shape_width, cli_shape_at(tensor, shape, sizeof shape));
    cli_print_safe(dtype ? dtype : "?", NAME_COLUMNS);
    if (!diffable) printf("  %s", cli_bytes_text(kvf__int_at(tensor, "bytes"), size));
    if (norm) printf("  norm %.6g", kvf_json_real(norm, 0));
    print_labels(kvf_json_get(tensor, "labels"));
    putchar('\n');
}

static void print_tensors(const kvf_json *tensors, bool diffable)
{
    size_t n = kvf_json_size(tensors), name_width = 0, shape_width = 0;
    char shape[400];
    for (size_t i = 0; i < n; i++) {
        const kvf_json *tensor = kvf_json_at(tensors, i);
        size_t wide = strlen(kvf__text_at(tensor, "name")),
               wide_shape = strlen(cli_shape_at(tensor, shape, sizeof shape));
        if (wide > name_width && wide <= NAME_COLUMNS) name_width = wide;
        if (wide_shape > shape_width) shape_width = wide_shape;
    }
    if (n) printf("\ntensors (%zu)\n", n);
    for (size_t i = 0; i < n; i++)
        print_tensor(kvf_json_at(tensors, i), (int)name_width, (int)shape_width, diffable);
}

/* ---- layers ---------------------------------------------------------------------------------- */

/* Prints statistics of keys, values or log-weights, if a layer has them. */
static void print_layer_part(const kvf_json *layer, const char *part, int width)
{
    static const char *const COLUMNS[] = {"mean", "std", "min", "max", "norm"};
    const kvf_json *numbers = kvf_json_get(layer, part);
    if (!numbers) return;
    printf("  %5lld  %-*s", kvf__int_at(layer, "layer"), width, part);
    for (int i = 0; i < 5; i++)
        printf(" %11.4g", kvf__real_at(numbers, COLUMNS[i]));
    putchar('\n');
}

static void print_layers(const kvf_json *layers)
{
    size_t n = kvf_json_size(layers);
    const int width = n && kvf_json_get(kvf_json_at(layers, 0), "log_weight") ? 10 : 5;
    if (n)
        printf("\nlayers\n  layer  %-*s%12s%12s%12s%12s%12s\n", width + 1, "part", "mean", "std",
               "min", "max", "norm");
    for (size_t i = 0; i < n; i++) {
        print_layer_part(kvf_json_at(layers, i), "key", width);
        print_layer_part(kvf_json_at(layers, i), "value", width);
        print_layer_part(kvf_json_at(layers, i), "log_weight", width);
    }
}

void cli_print_tree(kvf_json *tree, const char *path, bool diffable)
{
    const char *kind = kvf_json_str(kvf_json_get(tree, "kind"), NULL);
    const kvf_json *features = kvf_json_get(tree, "features");
    if (!diffable) {
        cli_print_safe(path, 4096);
        printf(": ");
    }
    printf("%s", kind ? kind : "?");
    for (size_t i = 0; i < kvf_json_size(features); i++)
        printf("%s%s", i ? ", " : ", features ", kvf_json_str(kvf_json_at(features, i), NULL));
    putchar('\n');
    print_section(tree, "attributes");
    print_section(tree, "metadata");
    print_tensors(kvf_json_get(tree, "tensors"), diffable);
    print_layers(kvf_json_get(tree, "layers"));
    print_section(tree, "history");
    print_section(tree, "state");
    print_section(tree, "options");
    print_section(tree, "lineage");
}
