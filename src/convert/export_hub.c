/* Export as a repository of the Hugging Face Hub: a folder for `hf upload`. It holds the prefix
 * file, its tensor for other programs, an adapter if PEFT can hold the prefix, and a model card. */
#include "export.h"
#include "infile.h"
#include "outfile.h"

typedef struct repository {
    kvf__peft_form form; /* first: rows of PEFT read its content */
    const kvf_export_options *options;
    const kvf_prefix *prefix;
} repository;

static kvf_status copy_file(kvf_ctx *ctx, const char *path, bool force, const void *content)
{
    const repository *r = content;
    kvf__mapfile file = {0};

    KVF_TRY(kvf__mapfile_open(ctx, r->prefix->path, &file));
    kvf_status st = kvf__write_file(ctx, path, force, file.data, file.n);
    kvf__mapfile_close(&file);
    return st;
}

static kvf_status write_tensor(kvf_ctx *ctx, const char *path, bool force, const void *content)
{
    const repository *r = content;
    kvf_export_options options = *r->options;

    options.out = path;
    options.force = force;
    return kvf__export_safetensors(ctx, &options, r->prefix);
}

/* Sets *holds to whether another program can hold the prefix, by the status of its check. */
static kvf_status can(kvf_status st, bool *holds)
{
    *holds = !st;
    return st == KVF_EUNSUPPORTED || st == KVF_ESHAPE ? KVF_OK : st;
}

static kvf_status write_folder(kvf_ctx *ctx, repository *r)
{
    kvf__folder_file files[KVF__PEFT_FILES + 3];
    size_t n = 0;
    bool tensor, adapter;

    KVF_TRY(can(kvf__check_foreign(ctx, r->options, r->prefix), &tensor));
    KVF_TRY(can(kvf__peft_form_of(ctx, r->options, r->prefix, &r->form), &adapter));
    adapter = adapter && tensor;
    if (!adapter) r->form.what = kvf__peft_facts(r->options, r->prefix);
    r->form.what.own_file = KVF__HUB_PREFIX;
    files[n++] = (kvf__folder_file){KVF__HUB_PREFIX, copy_file};
    if (tensor && (r->prefix->file.vectors.P || !r->prefix->file.id.pre_rope))
        files[n++] = (kvf__folder_file){"prefix.safetensors", write_tensor};
    for (size_t i = 0; adapter && i < KVF__PEFT_FILES; i++)
        files[n++] = kvf__peft_files[i];
    files[n++] = (kvf__folder_file){"README.md", kvf__peft_write_card};
    const kvf__folder folder = {files, n, "files of a repository"};
    return kvf__write_folder(ctx, r->options->out, r->options->force, &folder, r);
}

kvf_status kvf__export_hub(kvf_ctx *ctx, const kvf_export_options *options,
                           const kvf_prefix *prefix)
{
    repository r = {.options = options, .prefix = prefix};

    if (prefix->from_run)
        return kvf__fail(ctx, KVF_EUSAGE,
                         "%s: is a run: `kvfold merge` makes the prefix that a repository holds",
                         options->path);
    kvf_status st = write_folder(ctx, &r);
    kvf__prefix_done(&r.form.stacks);
    return st;
}
