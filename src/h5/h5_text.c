/* Lists of texts as datasets: names of labels, [N] of variable-length UTF-8, as h5py reads and
 * writes them.
 *
 * HDF5 stores references into its heaps in the dataset, without a checksum. So the dataset must be
 * contiguous and inside the file, and every reference is checked (h5_heap.c) before HDF5 follows
 * it. */
#include "h5_raw.h"
#include "head_values.h"

#include <string.h>

enum { MAX_TEXTS = 16384, REFERENCE = 16 };

hid_t kvf__h5_text_type(void)
{
    hid_t type = H5Tcopy(H5T_C_S1);

    H5Tset_size(type, H5T_VARIABLE);
    H5Tset_cset(type, H5T_CSET_UTF8);
    return type;
}

bool kvf__h5_is_text(hid_t type)
{
    hid_t character = H5Tis_variable_str(type) > 0 ? H5Tget_super(type) : H5I_INVALID_HID;
    const bool fits = character >= 0 && H5Tget_size(character) == 1;

    if (character >= 0) H5Tclose(character);
    return fits;
}

void kvf__h5_texts_write(kvf__h5 *h5, kvf__h5_id parent, const char *name, char *const *texts,
                         size_t n)
{
    hsize_t dim = n;

    if (n > MAX_TEXTS)
        kvf__h5_fail(h5, parent, KVF_EUSAGE, "%zu texts in \"%s\", want at most %d", n, name,
                     MAX_TEXTS);
    if (h5->status) return;
    hid_t type = kvf__h5_text_type();
    hid_t space = H5Screate_simple(1, &dim, NULL);
    hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_obj_track_times(creation, false);
    kvf__h5_id id = H5Dcreate2(parent, name, type, space, H5P_DEFAULT, creation, H5P_DEFAULT);
    if (id < 0 || H5Dwrite(id, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, texts) < 0)
        kvf__h5_broken(h5, parent, "cannot write \"%s\"", name);
    kvf__h5_check_written(h5, id, "cannot write");
    kvf__h5_release(&id);
    H5Pclose(creation);
    H5Sclose(space);
    H5Tclose(type);
}

/* ---- reading --------------------------------------------------------------------------------- */

static void check_type(kvf__h5 *h5, hid_t id)
{
    hid_t type = H5Dget_type(id);

    if (!kvf__h5_is_text(type))
        kvf__h5_fail(h5, id, KVF_EFORMAT, "its elements are not variable-length text");
    H5Tclose(type);
}

/* Returns the number of texts. */
static size_t check_shape(kvf__h5 *h5, hid_t id)
{
    hid_t space = H5Dget_space(id);
    hsize_t dim[H5S_MAX_RANK] = {0};
    int rank = space >= 0 ? H5Sget_simple_extent_ndims(space) : -1;

    if (rank > 0) H5Sget_simple_extent_dims(space, dim, NULL);
    H5Sclose(space);
    if (rank != 1 || dim[0] < 1 || dim[0] > MAX_TEXTS)
        kvf__h5_fail(h5, id, KVF_EFORMAT, "rank %d, %llu texts, want rank 1, 1 to %d texts", rank,
                     (unsigned long long)dim[0], MAX_TEXTS);
    return (size_t)dim[0];
}

/* Checks that the dataset is contiguous, inside the file, and that its references point to objects
 * of matching lengths. */
static void check_storage(kvf__h5 *h5, hid_t id, size_t n)
{
    hid_t creation = H5Dget_create_plist(id);
    bool whole = creation >= 0 && H5Pget_layout(creation) == H5D_CONTIGUOUS &&
                 H5Pget_external_count(creation) == 0;
    haddr_t at = whole ? H5Dget_offset(id) : HADDR_UNDEF;
    size_t bytes = n * REFERENCE, lengths = 0;

    H5Pclose(creation);
    if (at == HADDR_UNDEF || H5Dget_storage_size(id) != bytes || bytes > h5->file_bytes ||
        at > h5->file_bytes - bytes)
        kvf__h5_fail(h5, id, KVF_EFORMAT, "not stored in one piece inside the file");
    KVF__H5_TRY(h5, kvf__h5_check_texts(h5->ctx, &h5->map, (size_t)at, n, &lengths));
    kvf__h5_claim(h5, id, lengths);
}

static void read_texts(kvf__h5 *h5, hid_t id, char **texts, size_t n)
{
    hid_t type = kvf__h5_text_type();
    char **found = NULL; /* blocks of HDF5 */

    KVF__H5_TRY(h5, kvf__alloc_array(h5->ctx, n, sizeof *found, &found));
    if (!h5->status && H5Dread(id, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, found) < 0)
        kvf__h5_broken(h5, id, "cannot read the texts");
    for (size_t i = 0; found && i < n; i++) {
        KVF__H5_TRY(h5, kvf__strdup(h5->ctx, found[i] ? found[i] : "", &texts[i]));
        H5free_memory(found[i]);
    }
    kvf__free(found);
    H5Tclose(type);
}

char **kvf__h5_texts_read(kvf__h5 *h5, kvf__h5_id parent, const char *name, size_t *n)
{
    kvf__h5_id id = kvf__h5_child_open(h5, parent, name, "dataset");
    char **texts = NULL;

    if (h5->status) return NULL;
    check_type(h5, id);
    *n = h5->status ? 0 : check_shape(h5, id);
    if (!h5->status) check_storage(h5, id, *n);
    KVF__H5_TRY(h5, kvf__alloc_array(h5->ctx, *n, sizeof *texts, &texts));
    if (texts) read_texts(h5, id, texts, *n);
    kvf__h5_release(&id);
    if (!h5->status) return texts;
    kvf__strings_free(texts, *n);
    *n = 0;
    return NULL;
}
