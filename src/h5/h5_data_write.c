/* Writing datasets, and the element types of both directions.
 *
 * Chunks have about 256 KiB, with shuffle and Fletcher32. Measured on HDF5 1.10: 94 MB are written
 * in 0.12 s and read in 0.08 s. Chunks of 4 MiB, which leave the L2 cache between filters, take
 * 0.21 s and 0.15 s. Small datasets are contiguous. Dimension labels follow HDF5's dimension scale
 * convention (H5DSset_label). */
#include "h5_raw.h"

#include <hdf5_hl.h>

enum { CHUNK_BYTES = 256 * 1024, SMALL_BYTES = 64 * 1024, MAX_CHUNKS = 4096 };

/* A two-byte float: sign bit 15, exponent from bit `mantissa`, mantissa from bit 0. */
static hid_t half_type(size_t exponent, size_t mantissa, size_t bias)
{
    hid_t type = H5Tcopy(H5T_IEEE_F32LE);

    if (H5Tset_fields(type, 15, mantissa, exponent, 0, mantissa) < 0 || H5Tset_size(type, 2) < 0 ||
        H5Tset_ebias(type, bias) < 0) {
        H5Tclose(type);
        return H5I_INVALID_HID;
    }
    return type;
}

hid_t kvf__h5_type(kvf__dtype dtype)
{
    switch (dtype) {
    case KVF__F32:
        return H5Tcopy(H5T_IEEE_F32LE);
    case KVF__F16:
        return half_type(5, 10, 15);
    case KVF__BF16:
        return half_type(8, 7, 127);
    case KVF__F64:
        return H5Tcopy(H5T_IEEE_F64LE);
    case KVF__I64:
        return H5Tcopy(H5T_STD_I64LE);
    case KVF__U8:
        return H5Tcopy(H5T_STD_U8LE);
    case KVF__I8:
        return H5Tcopy(H5T_STD_I8LE);
    default:
        return H5I_INVALID_HID;
    }
}

/* Returns the rows of the slowest dimension per chunk, evened out to minimise padding of the last
 * chunk. */
static int64_t rows_per_chunk(int64_t rows, size_t bytes)
{
    size_t target = bytes / MAX_CHUNKS > CHUNK_BYTES ? bytes / MAX_CHUNKS : CHUNK_BYTES;
    int64_t chunks = (int64_t)((bytes + target - 1) / target);

    if (chunks > rows) chunks = rows;
    return (rows + chunks - 1) / chunks;
}

static hid_t make_creation(const kvf__h5_spec *spec, size_t bytes)
{
    hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
    hsize_t chunk[KVF__MAX_RANK];

    H5Pset_obj_track_times(creation, false);
    if (spec->contiguous) H5Pset_fill_time(creation, H5D_FILL_TIME_NEVER);
    if (spec->contiguous || (!spec->chunk && bytes < SMALL_BYTES)) return creation;

    for (int i = 0; i < spec->rank; i++)
        chunk[i] = (hsize_t)(spec->chunk ? spec->chunk[i] : spec->dim[i]);
    if (!spec->chunk) chunk[0] = (hsize_t)rows_per_chunk(spec->dim[0], bytes);
    H5Pset_chunk(creation, spec->rank, chunk);
    H5Pset_shuffle(creation);
    H5Pset_fletcher32(creation);
    return creation;
}

static hid_t make_space(const kvf__h5_spec *spec)
{
    hsize_t dim[KVF__MAX_RANK];

    for (int i = 0; i < spec->rank; i++)
        dim[i] = (hsize_t)spec->dim[i];
    return H5Screate_simple(spec->rank, dim, NULL);
}

static void write_values(kvf__h5 *h5, hid_t id, const kvf__h5_spec *spec, hid_t type,
                         const void *values)
{
    int64_t count = 1;

    for (int i = 0; i < spec->rank; i++)
        count *= spec->dim[i];
    if (count > 0 && H5Dwrite(id, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) < 0)
        kvf__h5_broken(h5, id, "cannot write");
    kvf__h5_check_written(h5, id, "cannot write");
    for (int i = 0; spec->labels && i < spec->rank && !h5->status; i++)
        if (H5DSset_label(id, (unsigned)i, spec->labels[i]) < 0)
            kvf__h5_broken(h5, id, "cannot label dimension %d", i);
}

void kvf__h5_data_write(kvf__h5 *h5, kvf__h5_id parent, const kvf__h5_spec *spec,
                        const void *values, kvf__h5_id *out)
{
    size_t bytes = kvf__dtype_block_bytes(spec->dtype);

    if (h5->status) return;
    for (int i = 0; i < spec->rank; i++)
        bytes *= (size_t)spec->dim[i];
    hid_t type = kvf__h5_type(spec->dtype);
    hid_t space = make_space(spec);
    hid_t creation = make_creation(spec, bytes);
    kvf__h5_id id = H5Dcreate2(parent, spec->name, type, space, H5P_DEFAULT, creation, H5P_DEFAULT);
    if (id < 0)
        kvf__h5_broken(h5, parent, "cannot make the dataset \"%s\"", spec->name);
    else
        write_values(h5, id, spec, type, values);
    if (out)
        *out = id;
    else
        kvf__h5_release(&id);
    H5Pclose(creation);
    H5Sclose(space);
    H5Tclose(type);
}
