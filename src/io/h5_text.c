/* Lists of texts as datasets: names of labels, [N] of variable-length UTF-8, as h5py reads and
 * writes them.
 *
 * What HDF5 keeps in the dataset are references into its heaps, without a checksum; so the dataset
 * must be one piece inside the file, and every reference is followed by us (h5_heap.c) before HDF5
 * may. */
#include "h5_raw.h"

#include <string.h>

enum { MAX_TEXTS = 16384, REFERENCE = 16 };

hid_t kvf__h5_text_type(void)
{
    hid_t type = H5Tcopy(H5T_C_S1);

    H5Tset_size(type, H5T_VARIABLE);
    H5Tset_cset(type, H5T_CSET_UTF8);
    return type;
}

kvf_status kvf__h5_texts_write(kvf__h5 *h5, kvf__h5_id parent, const char *name, char *const *texts,
                               size_t n)
{
    hsize_t dim = n;
    hid_t type = kvf__h5_text_type(), space = H5Screate_simple(1, &dim, NULL);
    hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
    hid_t id = H5I_INVALID_HID;
    kvf_status st = KVF_OK;

    H5Pset_obj_track_times(creation, false);
    if (n > MAX_TEXTS)
        st = kvf__h5_fail(h5, parent, KVF_EUSAGE, "%zu texts in \"%s\", want at most %d", n, name,
                          MAX_TEXTS);
    if (st) goto out;
    id = H5Dcreate2(parent, name, type, space, H5P_DEFAULT, creation, H5P_DEFAULT);
    if (id < 0 || H5Dwrite(id, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, texts) < 0)
        st = kvf__h5_broken(h5, parent, "cannot write \"%s\"", name);
out:
    kvf__h5_release(&id);
    H5Pclose(creation);
    H5Sclose(space);
    H5Tclose(type);
    return st;
}

/* ---- reading --------------------------------------------------------------------------------- */

static kvf_status check_type(kvf__h5 *h5, hid_t id)
{
    hid_t type = H5Dget_type(id);
    bool text = type >= 0 && H5Tis_variable_str(type) > 0;

    H5Tclose(type);
    if (text) return KVF_OK;
    return kvf__h5_fail(h5, id, KVF_EFORMAT, "its elements are not variable-length text");
}

static kvf_status check_shape(kvf__h5 *h5, hid_t id, size_t *n)
{
    hid_t space = H5Dget_space(id);
    hsize_t dim[H5S_MAX_RANK] = {0};
    int rank = space >= 0 ? H5Sget_simple_extent_ndims(space) : -1;

    if (rank > 0) H5Sget_simple_extent_dims(space, dim, NULL);
    H5Sclose(space);
    if (rank != 1 || dim[0] < 1 || dim[0] > MAX_TEXTS)
        return kvf__h5_fail(h5, id, KVF_EFORMAT, "rank %d, %llu texts, want rank 1, 1 to %d texts",
                            rank, (unsigned long long)dim[0], MAX_TEXTS);
    *n = (size_t)dim[0];
    return KVF_OK;
}

/* One piece, inside the file, whose references lead to objects of the lengths they say. */
static kvf_status check_storage(kvf__h5 *h5, hid_t id, size_t n)
{
    hid_t creation = H5Dget_create_plist(id);
    bool whole = creation >= 0 && H5Pget_layout(creation) == H5D_CONTIGUOUS &&
                 H5Pget_external_count(creation) == 0;
    haddr_t at = whole ? H5Dget_offset(id) : HADDR_UNDEF;
    size_t bytes = n * REFERENCE;

    H5Pclose(creation);
    if (at == HADDR_UNDEF || H5Dget_storage_size(id) != bytes || bytes > h5->file_bytes ||
        at > h5->file_bytes - bytes)
        return kvf__h5_fail(h5, id, KVF_EFORMAT, "not stored in one piece inside the file");
    return kvf__h5_check_texts(h5->ctx, &h5->map, (size_t)at, n);
}

static kvf_status read_texts(kvf__h5 *h5, hid_t id, char **texts, size_t n)
{
    hid_t type = kvf__h5_text_type();
    char **found = NULL; /* HDF5's own blocks */
    kvf_status st;

    st = kvf__alloc_array(h5->ctx, n, sizeof *found, &found);
    if (st) goto out;
    if (H5Dread(id, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, found) < 0)
        st = kvf__h5_broken(h5, id, "cannot read the texts");
    for (size_t i = 0; !st && i < n; i++)
        st = kvf__strdup(h5->ctx, found[i] ? found[i] : "", &texts[i]);
    for (size_t i = 0; i < n; i++)
        H5free_memory(found[i]);
out:
    kvf__free(found);
    H5Tclose(type);
    return st;
}

kvf_status kvf__h5_texts_read(kvf__h5 *h5, kvf__h5_id parent, const char *name, char ***out,
                              size_t *n)
{
    kvf__h5_id id = KVF__H5_NONE;
    char **texts = NULL;
    size_t count = 0;
    kvf_status st;

    st = kvf__h5_child_open(h5, parent, name, "dataset", &id);
    if (st) goto out;
    st = check_type(h5, id);
    if (st) goto out;
    st = check_shape(h5, id, &count);
    if (st) goto out;
    st = check_storage(h5, id, count);
    if (st) goto out;
    st = kvf__alloc_array(h5->ctx, count, sizeof *texts, &texts);
    if (st) goto out;
    st = read_texts(h5, id, texts, count);
    if (st) goto out;
    *out = texts;
    *n = count;
    texts = NULL;
out:
    for (size_t i = 0; texts && i < count; i++)
        kvf__free(texts[i]);
    kvf__free(texts);
    kvf__h5_release(&id);
    return st;
}
