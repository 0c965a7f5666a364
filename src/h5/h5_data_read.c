/* Reads datasets after all checks of docs/format.md that need no values. A dataset must be a hard
 * link without external or virtual storage, with known filters, a known element type and rank 1 to
 * 6. It must store as many bytes as its shape claims (deflated ones within kvf__h5_claim). So a
 * file cannot cause allocations that it does not fill.
 *
 * The chunk index has no checksum. Each chunk must exist, be complete, lie inside the file and not
 * skip its filters. Otherwise HDF5 would silently return zeros or unchecked bytes. */
#include "h5_raw.h"

#include <string.h>

/* Deflate cannot shrink by more than 1032 : 1. */
enum { MAX_DEFLATE = 1032, MAX_CHUNKS = 8192 };

static void check_type(kvf__h5 *h5, kvf__h5_data *data)
{
    static const kvf__dtype KNOWN[] = {KVF__F32, KVF__F16, KVF__BF16, KVF__F64,
                                       KVF__I64, KVF__U8,  KVF__I8};
    hid_t type = H5Dget_type(data->id);
    bool found = false;

    if (type < 0) kvf__h5_broken(h5, data->id, "cannot read the element type");
    for (size_t i = 0; i < sizeof KNOWN / sizeof KNOWN[0] && !found; i++) {
        hid_t known = kvf__h5_type(KNOWN[i]);
        found = H5Tequal(type, known) > 0;
        if (found) data->dtype = KNOWN[i];
        H5Tclose(known);
    }
    if (!found)
        kvf__h5_fail(h5, data->id, KVF_EFORMAT,
                     "unknown element type (class %d, %zu bytes), want little-endian f32, f16, "
                     "bf16, f64, i64, u8 or i8",
                     (int)H5Tget_class(type), H5Tget_size(type));
    H5Tclose(type);
}

static void check_shape(kvf__h5 *h5, kvf__h5_data *data)
{
    hid_t space = H5Dget_space(data->id);
    hsize_t dim[H5S_MAX_RANK] = {0};
    size_t bytes = kvf__dtype_block_bytes(data->dtype);
    int rank = H5Sget_simple_extent_ndims(space);
    bool simple = space >= 0 && H5Sget_simple_extent_type(space) == H5S_SIMPLE;
    bool fits = true;

    if (simple) H5Sget_simple_extent_dims(space, dim, NULL);
    H5Sclose(space);
    if (!simple || rank < 1 || rank > KVF__MAX_RANK) {
        kvf__h5_fail(h5, data->id, KVF_EFORMAT, "rank %d, want 1 to %d", simple ? rank : 0,
                     KVF__MAX_RANK);
        return;
    }
    data->rank = rank;
    data->count = 1;
    for (int i = 0; i < rank && fits; i++) {
        data->dim[i] = (int64_t)dim[i];
        fits = dim[i] <= PTRDIFF_MAX && kvf__mul(bytes, (size_t)dim[i], &bytes) &&
               bytes <= PTRDIFF_MAX;
        if (fits) data->count *= data->dim[i];
    }
    data->bytes = bytes;
    if (!fits)
        kvf__h5_fail(h5, data->id, KVF_EFORMAT, "more elements than this machine can address");
}

static void check_filters(kvf__h5 *h5, hid_t creation, kvf__h5_data *data)
{
    int n = H5Pget_nfilters(creation);

    if (n < 0) kvf__h5_broken(h5, data->id, "cannot read the list of filters");
    for (int i = 0; i < n && !h5->status; i++) {
        size_t values = 0;
        unsigned flags = 0, config = 0;
        char name[64] = "";
        H5Z_filter_t filter = H5Pget_filter2(creation, (unsigned)i, &flags, &values, NULL,
                                             sizeof name, name, &config);
        bool *known = filter == H5Z_FILTER_DEFLATE      ? &data->deflate
                      : filter == H5Z_FILTER_SHUFFLE    ? &data->shuffle
                      : filter == H5Z_FILTER_FLETCHER32 ? &data->fletcher32
                                                        : NULL;
        if (!known || *known)
            kvf__h5_fail(
                h5, data->id, KVF_EUNSUPPORTED,
                "filter %d (id %d), want at most one each of deflate, shuffle and Fletcher32", i,
                (int)filter);
        else
            *known = true;
    }
}

static void check_chunk_shape(kvf__h5 *h5, hid_t creation, kvf__h5_data *data)
{
    hsize_t chunk[H5S_MAX_RANK] = {0};

    if (H5Pget_chunk(creation, H5S_MAX_RANK, chunk) != data->rank)
        kvf__h5_fail(h5, data->id, KVF_EFORMAT, "the rank of the chunks is not %d", data->rank);
    for (int i = 0; i < data->rank; i++) {
        if (chunk[i] == 0 || chunk[i] > UINT32_MAX)
            kvf__h5_fail(h5, data->id, KVF_EFORMAT, "chunks of length 0");
        data->chunk[i] = (int64_t)chunk[i];
    }
}

static void check_layout(kvf__h5 *h5, hid_t creation, kvf__h5_data *data)
{
    H5D_layout_t layout = H5Pget_layout(creation);

    data->chunked = layout == H5D_CHUNKED;
    if (H5Pget_external_count(creation) != 0)
        kvf__h5_fail(h5, data->id, KVF_EFORMAT,
                     "its values are in another file (external storage), refused");
    else if (layout == H5D_VIRTUAL)
        kvf__h5_fail(h5, data->id, KVF_EFORMAT,
                     "its values are in other datasets (virtual storage), refused");
    else if (layout != H5D_CHUNKED && layout != H5D_CONTIGUOUS && layout != H5D_COMPACT)
        kvf__h5_broken(h5, data->id, "cannot read the storage layout");
    else if (data->chunked)
        check_chunk_shape(h5, creation, data);
}

static void check_storage(kvf__h5 *h5, kvf__h5_data *data)
{
    size_t ratio = data->deflate ? MAX_DEFLATE : 1;

    data->stored = (size_t)H5Dget_storage_size(data->id);
    if (data->stored > h5->file_bytes || data->bytes / ratio > data->stored)
        kvf__h5_fail(h5, data->id, KVF_EFORMAT,
                     "claims %zu bytes of values, but %zu are stored in a file of %zu", data->bytes,
                     data->stored, h5->file_bytes);
}

/* ---- chunks ---------------------------------------------------------------------------------- */

static size_t chunk_bytes(const kvf__h5_data *data)
{
    size_t bytes = kvf__dtype_block_bytes(data->dtype);

    for (int i = 0; i < data->rank; i++)
        if (!kvf__mul(bytes, (size_t)data->chunk[i], &bytes)) return SIZE_MAX;
    return bytes;
}

static void check_chunk(kvf__h5 *h5, const kvf__h5_data *data, const hsize_t *at, size_t whole)
{
    int64_t place[KVF__MAX_RANK];
    char text[128];
    unsigned mask = 0;
    haddr_t address = HADDR_UNDEF;
    hsize_t size = 0, searched = 0;
    const char *what = NULL;

    /* The first call walks all chunks, the second searches like H5Dread; in a damaged index they
     * disagree. */
    if (H5Dget_chunk_info_by_coord(data->id, at, &mask, &address, &size) < 0 ||
        H5Dget_chunk_storage_size(data->id, at, &searched) < 0)
        kvf__h5_broken(h5, data->id, "cannot read the index of chunks");
    else if (address == HADDR_UNDEF || searched != size)
        what = "is missing";
    else if (mask != 0)
        what = "is stored without its filters";
    else if (size > h5->file_bytes || address > h5->file_bytes - size)
        what = "lies outside the file";
    else if (!data->deflate && size != whole + (data->fletcher32 ? 4 : 0))
        what = "has the wrong size";
    if (!what) return;
    for (int i = 0; i < data->rank; i++)
        place[i] = (int64_t)at[i];
    kvf__h5_fail(h5, data->id, KVF_EFORMAT, "the chunk at %s %s",
                 kvf__shape_text(text, data->rank, place), what);
}

/* Advances to the next chunk in row-major order; false after the last. */
static bool next_chunk(const kvf__h5_data *data, hsize_t *at)
{
    for (int i = data->rank - 1; i >= 0; i--) {
        at[i] += (hsize_t)data->chunk[i];
        if (at[i] < (hsize_t)data->dim[i]) return true;
        at[i] = 0;
    }
    return false;
}

static size_t count_chunks(const kvf__h5_data *data)
{
    size_t n = 1;

    for (int i = 0; i < data->rank && data->chunked; i++)
        if (!kvf__mul(n, (size_t)((data->dim[i] - 1) / data->chunk[i] + 1), &n)) n = SIZE_MAX;
    return n;
}

/* Claims memory for the values, for conversion of narrow ones to f32, and for two stages of a
 * chunk's filters. Small datasets and chunks count as larger than they are, because HDF5 needs time
 * to find them. */
static void claim_values(kvf__h5 *h5, const kvf__h5_data *data, size_t chunks, size_t chunk)
{
    enum { LEAST = 1024, LEAST_CHUNK = 4096 };
    const size_t least = data->chunked ? chunks * LEAST_CHUNK : LEAST,
                 stages = data->deflate || data->shuffle ? 2 * chunk : 0,
                 wide = (size_t)data->count * sizeof(float),
                 values = data->bytes < wide ? data->bytes + wide : data->bytes;

    kvf__h5_claim(h5, data->id, (values > least ? values : least) + stages);
    if (!h5->status) h5->claimed -= stages;
}

static void check_chunks(kvf__h5 *h5, const kvf__h5_data *data)
{
    hsize_t at[KVF__MAX_RANK] = {0};
    const size_t whole = chunk_bytes(data), n = data->count ? count_chunks(data) : 0;

    if (data->chunked && (n > MAX_CHUNKS || whole > UINT32_MAX))
        kvf__h5_fail(h5, data->id, KVF_EUNSUPPORTED,
                     "%zu chunks of %zu bytes, want at most %d of 4 GiB", n, whole, MAX_CHUNKS);
    if (!h5->status) claim_values(h5, data, n, data->chunked ? whole : 0);
    while (!h5->status && data->chunked && n) {
        check_chunk(h5, data, at, whole);
        if (!next_chunk(data, at)) return;
    }
}

/* ---- open, read ------------------------------------------------------------------------------ */

kvf__h5_data kvf__h5_data_open(kvf__h5 *h5, kvf__h5_id parent, const char *name)
{
    kvf__h5_data data = {.id = kvf__h5_child_open(h5, parent, name, "dataset")};

    if (h5->status) return data;
    hid_t creation = H5Dget_create_plist(data.id);
    if (creation < 0) kvf__h5_broken(h5, data.id, "cannot read how it is stored");
    /* after a refusal HDF5 gets no further call about this dataset */
    if (!h5->status) check_type(h5, &data);
    if (!h5->status) check_shape(h5, &data);
    if (!h5->status) check_layout(h5, creation, &data);
    if (!h5->status) check_filters(h5, creation, &data);
    if (!h5->status) check_storage(h5, &data);
    if (!h5->status) check_chunks(h5, &data);
    H5Pclose(creation);
    return data;
}

size_t kvf__h5_data_place(kvf__h5 *h5, const kvf__h5_data *data)
{
    bool plain = !data->chunked && !data->shuffle && !data->deflate && !data->fletcher32;
    haddr_t place = plain && !h5->status ? H5Dget_offset(data->id) : HADDR_UNDEF;

    if (place == HADDR_UNDEF || data->stored != data->bytes || data->bytes > h5->file_bytes ||
        place > h5->file_bytes - data->bytes)
        kvf__h5_fail(h5, data->id, KVF_EFORMAT,
                     "want values stored in one piece inside the file, without filters");
    return h5->status ? 0 : (size_t)place;
}

/* Fletcher32 is checked only without a seal, which covers all bytes. */
static hid_t make_transfer(const kvf__h5 *h5)
{
    hid_t transfer = H5Pcreate(H5P_DATASET_XFER);
    if (h5->sealed) H5Pset_edc_check(transfer, H5Z_DISABLE_EDC);
    return transfer;
}

void kvf__h5_data_read(kvf__h5 *h5, const kvf__h5_data *data, void *values, size_t bytes)
{
    if (data->bytes != bytes)
        kvf__h5_fail(h5, data->id, KVF_ESHAPE, "holds %zu bytes of values, want %zu", data->bytes,
                     bytes);
    if (h5->status || data->count == 0 || kvf__h5_skips(h5, data)) return;
    hid_t type = kvf__h5_type(data->dtype);
    hid_t transfer = make_transfer(h5);
    if (H5Dread(data->id, type, H5S_ALL, H5S_ALL, transfer, values) < 0)
        kvf__h5_broken(h5, data->id, "cannot read the values");
    H5Pclose(transfer);
    H5Tclose(type);
}

/* Reads DIMENSION_LABELS here, [rank] variable-length texts, because H5DSget_label trusts the
 * attribute's shape. */
static bool is_label_list(hid_t attr, int rank)
{
    hid_t type = H5Aget_type(attr), space = H5Aget_space(attr);
    hsize_t n = 0;
    bool fits = kvf__h5_is_text(type) && H5Sget_simple_extent_ndims(space) == 1 &&
                H5Sget_simple_extent_dims(space, &n, NULL) == 1 && n == (hsize_t)rank;

    H5Sclose(space);
    H5Tclose(type);
    return fits;
}

char *kvf__h5_data_label(kvf__h5 *h5, const kvf__h5_data *data, int axis)
{
    char *labels[KVF__MAX_RANK] = {NULL}, *copy = NULL;

    if (!kvf__h5_has_attr(h5, data->id, "DIMENSION_LABELS")) return NULL;
    hid_t attr = H5Aopen(data->id, "DIMENSION_LABELS", H5P_DEFAULT);
    if (attr < 0 || !is_label_list(attr, data->rank))
        kvf__h5_fail(h5, data->id, KVF_EFORMAT, "DIMENSION_LABELS is not a list of %d texts",
                     data->rank);
    hid_t type = H5Aget_type(attr);
    if (!h5->status && H5Aread(attr, type, labels) < 0)
        kvf__h5_broken(h5, data->id, "cannot read DIMENSION_LABELS");
    if (labels[axis] && *labels[axis]) KVF__H5_TRY(h5, kvf__strdup(h5->ctx, labels[axis], &copy));
    for (int i = 0; i < KVF__MAX_RANK; i++) {
        if (labels[i]) kvf__h5_claim(h5, data->id, strlen(labels[i]));
        H5free_memory(labels[i]);
    }
    H5Tclose(type);
    H5Aclose(attr);
    return copy;
}
