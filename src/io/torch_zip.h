/* Weights that torch.save wrote: a zip archive (torch_zip.c) around a pickle (pickle.c). */
#ifndef KVF_TORCH_ZIP_H
#define KVF_TORCH_ZIP_H

#include "file_int.h"

/* A stored member: bytes of the archive. */
typedef struct kvf__zip_member {
    const uint8_t *bytes;
    size_t n;
} kvf__zip_member;

typedef struct kvf__zip {
    kvf_ctx *ctx;
    const char *where;
    const uint8_t *data;
    size_t n;
    kvf__zip_member *members; /* [n_members] */
    size_t n_members;
    kvf__map by_name; /* name -> place in members */
    const char *root; /* of all names, "archive/"; not terminated */
    size_t root_bytes;
} kvf__zip;

/* The members of an archive that torch wrote; EUNSUPPORTED where one is compressed. */
kvf_status kvf__zip_open(kvf__zip *zip);
void kvf__zip_close(kvf__zip *zip);
/* The member ROOT/NAME; false: there is none. */
bool kvf__zip_find(const kvf__zip *zip, const char *name, size_t n, kvf__zip_member *out);

/* The tensors that a pickle names, as views of the members data/KEY. */
kvf_status kvf__pickle_read(const kvf__zip *zip, const kvf__zip_member *pickle, kvf__table *table);

#endif
