/* The families of architectures: numbers, names and special cases of each as table rows, one file
 * per family.
 *
 * Key names, defaults and tensor names are those of transformers' configuration and state dict. A
 * new family is a file with rows, and a line below. */
#include "arch.h"

#include <string.h>
#include <strings.h>

static const kvf__arch_family *const families[] = {
    &kvf__arch_llama,   &kvf__arch_hybrid,     &kvf__arch_olmo, &kvf__arch_neox,
    &kvf__arch_phi,     &kvf__arch_gemma,      &kvf__arch_gpt,  &kvf__arch_bert,
    &kvf__arch_deberta, &kvf__arch_modernbert, &kvf__arch_t5,   &kvf__arch_bart};

/* Returns the rows of all families in order; NULL past the last. */
static const kvf__arch *arch_at(size_t index)
{
    for (size_t i = 0; i < KVF__COUNT(families); i++) {
        if (index < families[i]->n) return &families[i]->rows[index];
        index -= families[i]->n;
    }
    return NULL;
}

const kvf__arch *kvf__arch_by_model_type(const char *model_type)
{
    const kvf__arch *arch;

    for (size_t i = 0; (arch = arch_at(i)) != NULL; i++)
        if (!strcmp(arch->name, model_type)) break;
    return arch;
}

const kvf__arch *kvf__arch_inside(const char *model_type)
{
    const kvf__arch *arch;

    for (size_t i = 0; (arch = arch_at(i)) != NULL; i++)
        if (arch->inside && !strcmp(arch->inside, model_type)) break;
    return arch;
}

static bool is_class_of(const kvf__arch *arch, const char *class_name)
{
    static const char *const HEADS[] = {"For", "LMHead", "Model", "DoubleHeads"};
    size_t stem = strlen(arch->class_stem);

    if (strncasecmp(arch->class_stem, class_name, stem)) return false;
    for (size_t i = 0; i < KVF__COUNT(HEADS); i++)
        if (!strncmp(class_name + stem, HEADS[i], strlen(HEADS[i]))) return true;
    return false;
}

const kvf__arch *kvf__arch_by_class(const char *class_name)
{
    const kvf__arch *arch;

    for (size_t i = 0; (arch = arch_at(i)) != NULL; i++)
        if (is_class_of(arch, class_name)) break;
    return arch;
}

const kvf__arch *kvf__arch_by_gguf(const char *architecture, bool local)
{
    const kvf__arch *arch, *found = NULL;

    for (size_t i = 0; (arch = arch_at(i)) != NULL; i++)
        if (arch->gguf && !strcmp(arch->gguf, architecture) &&
            (!found || arch->gguf_local == local))
            found = arch;
    return found;
}

const char *kvf__arch_list(char buf[KVF__ARCH_LIST_BYTES], bool gguf)
{
    const kvf__arch *arch;
    size_t at = 0;

    buf[0] = 0;
    for (size_t i = 0; (arch = arch_at(i)) != NULL && at < KVF__ARCH_LIST_BYTES; i++) {
        const char *name = !gguf ? arch->name : arch->gguf_local ? NULL : arch->gguf;
        if (name)
            at += (size_t)snprintf(buf + at, KVF__ARCH_LIST_BYTES - at, "%s%s", at ? ", " : "",
                                   name);
    }
    return buf;
}
