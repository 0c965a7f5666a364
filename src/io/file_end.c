/* What every file of a trained thing says behind its values: /head, /options and /lineage
 * (docs/format.md). Their order is that of the bytes: equal runs give equal files. */
#include "h5_priv.h"

void kvf__file_end_write(kvf__h5 *h5, const char *task, const kvf__head_values *head,
                         const kvf_json *options, const kvf_json *lineage)
{
    kvf__head_write(h5, task, head);
    kvf__attrs_write(h5, h5->file, "options", options);
    kvf__attrs_write(h5, h5->file, "lineage", lineage);
}

void kvf__file_end_read(kvf__h5 *h5, const char *task, kvf__head_values *head, kvf_json **options,
                        kvf_json **lineage)
{
    kvf__head_read(h5, task, head);
    *options = kvf__attrs_read(h5, h5->file, "options");
    *lineage = kvf__attrs_read(h5, h5->file, "lineage");
}
