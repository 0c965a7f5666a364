/* Copies a file object by object and changes places drawn from the seed. Datasets get another rank,
 * extent, type or storage; attributes another value, type or shape. Objects become links or objects
 * of the other kind. Members are removed, renamed or added. */
#include "h5_lies.h"
#include "h5_draw.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME = 256, MOST_DEPTH = 8, MOST_LIES = 3, MANY = 300 };

typedef struct copier {
    kvf__rng *rng;
    size_t objects, attributes;                           /* places passed so far */
    size_t object_at[MOST_LIES], attribute_at[MOST_LIES]; /* the places to change; 0: none */
    int64_t size, other; /* a size and its replacement; size 0: none is replaced */
} copier;

static bool is_place(const size_t *places, size_t at)
{
    for (int i = 0; i < MOST_LIES; i++)
        if (places[i] == at) return true;
    return false;
}

/* The values of a dataset or attribute of a plain type, or NULL; the caller frees them. */
static void *read_old(hid_t id, hid_t type, hid_t space, bool attribute, size_t *bytes)
{
    const hssize_t n = H5Sget_simple_extent_npoints(space);
    *bytes = n > 0 ? (size_t)n * H5Tget_size(type) : 0;
    if (!*bytes || *bytes > H5_MOST_VALUES || !h5_is_plain(type)) return NULL;
    void *values = malloc(*bytes);
    if (!values) abort();
    if ((attribute ? H5Aread(id, type, values)
                   : H5Dread(id, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values)) >= 0)
        return values;
    free(values);
    return NULL;
}

/* ---- attributes ------------------------------------------------------------------------------ */

static void put_attribute(hid_t at, const char *name, hid_t type, hid_t space, const void *value)
{
    hid_t attribute = H5Acreate2(at, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    if (attribute >= 0 && value) H5Awrite(attribute, type, value);
    H5Aclose(attribute);
}

/* Another value of the same class, if there is one. */
static bool lie_about_value(copier *c, hid_t to, const char *name, hid_t attribute, hid_t type)
{
    hid_t space = H5Screate(H5S_SCALAR);
    bool done = true;
    if (H5Tis_variable_str(type) > 0) {
        const char *text = h5_draw_text(c->rng);
        put_attribute(to, name, type, space, &text);
    } else if (H5Tget_class(type) == H5T_INTEGER && H5Tget_size(type) == 8) {
        int64_t value = 0;
        H5Aread(attribute, H5T_NATIVE_INT64, &value);
        value = h5_draw_integer(c->rng, value);
        put_attribute(to, name, type, space, &value);
    } else if (H5Tget_class(type) == H5T_FLOAT && H5Tget_size(type) == 8) {
        put_attribute(to, name, type, space, &(double){h5_draw_real(c->rng)});
    } else {
        done = false;
    }
    H5Sclose(space);
    return done;
}

/* Another type, or another shape, or both. */
static void lie_about_attribute(copier *c, hid_t to, const char *name, hid_t attribute)
{
    hsize_t dim[H5S_MAX_RANK];
    hid_t type = H5Aget_type(attribute), space = H5Aget_space(attribute);
    const size_t kind = h5_draw(c->rng, 8);
    size_t bytes = 0;
    if (kind < 4 && lie_about_value(c, to, name, attribute, type)) {
        H5Tclose(type);
        H5Sclose(space);
        return;
    }
    void *old = read_old(attribute, type, space, true, &bytes);
    int rank = h5_shape_of(space, dim);
    if (kind != 5) {
        H5Tclose(type);
        type = h5_draw_type(c->rng);
    }
    if (kind != 6) {
        h5_draw_shape(c->rng, &rank, dim);
        H5Sclose(space);
        space = h5_draw_space(c->rng, rank, dim, false);
    }
    const hssize_t n = H5Sget_simple_extent_npoints(space);
    void *values = n > 0 && n < H5_MOST_VALUES ? h5_draw_values(c->rng, type, (size_t)n, old, bytes)
                                               : NULL;
    if (kind != 7) put_attribute(to, name, type, space, values); /* otherwise it is missing */
    free(values);
    free(old);
    H5Sclose(space);
    H5Tclose(type);
}

/* Copies an attribute. A size replaced throughout the file is replaced here, too. */
static void copy_attribute(copier *c, hid_t to, const char *name, hid_t attribute)
{
    hid_t type = H5Aget_type(attribute), space = H5Aget_space(attribute);
    const hssize_t n = H5Sget_simple_extent_npoints(space);
    const size_t room = (size_t)(n > 0 ? n : 0) * H5Tget_size(type);
    hsize_t dim[H5S_MAX_RANK];
    char *value = calloc(1, (room + 16) * (size_t)(c->size && c->other > 0 ? c->other + 1 : 1));
    int64_t number = 0;
    if (!value) abort();
    H5Aread(attribute, type, value);
    const bool integer = H5Tget_class(type) == H5T_INTEGER;
    if (c->size && integer && H5Sget_simple_extent_type(space) == H5S_SCALAR) {
        H5Aread(attribute, H5T_NATIVE_INT64, &number);
        if (number == c->size && H5Tget_size(type) == 8) memcpy(value, &c->other, 8);
    } else if (c->size && integer && h5_shape_of(space, dim) == 1 && (int64_t)dim[0] == c->size) {
        for (int64_t i = c->size; i < c->other && H5Tget_size(type) == 1; i++)
            value[i] = value[i % c->size];
        dim[0] = (hsize_t)c->other;
        H5Sclose(space);
        space = H5Screate_simple(1, dim, NULL);
    }
    put_attribute(to, name, type, space, value);
    free(value); /* memory of HDF5's texts is not freed: the process is short */
    H5Sclose(space);
    H5Tclose(type);
}

static void add_attributes(copier *c, hid_t to)
{
    hid_t type = h5_draw_type(c->rng), space = H5Screate(H5S_SCALAR);
    char name[NAME];
    for (size_t i = h5_draw(c->rng, 8) ? 1 : MANY; i; i--) {
        void *value = h5_draw_values(c->rng, type, 1, NULL, 0);
        snprintf(name, sizeof name, i == 1 ? "%s" : "%.200s%zu", h5_draw_name(c->rng), i);
        if (H5Aexists(to, name) == 0) put_attribute(to, name, type, space, value);
        free(value);
    }
    H5Sclose(space);
    H5Tclose(type);
}

static void copy_attributes(copier *c, hid_t from, hid_t to)
{
    char name[NAME];
    for (hsize_t i = 0;; i++) {
        hid_t attribute = H5Aopen_by_idx(from, ".", H5_INDEX_CRT_ORDER, H5_ITER_INC, i, H5P_DEFAULT,
                                         H5P_DEFAULT);
        if (attribute < 0)
            attribute = H5Aopen_by_idx(from, ".", H5_INDEX_NAME, H5_ITER_INC, i, H5P_DEFAULT,
                                       H5P_DEFAULT);
        if (attribute < 0) return;
        H5Aget_name(attribute, sizeof name, name);
        if (is_place(c->attribute_at, ++c->attributes))
            lie_about_attribute(c, to, name, attribute);
        else
            copy_attribute(c, to, name, attribute);
        H5Aclose(attribute);
    }
}

/* ---- datasets -------------------------------------------------------------------------------- */

static void set_filters(copier *c, hid_t creation)
{
    if (h5_draw(c->rng, 3) == 0) H5Pset_shuffle(creation);
    if (h5_draw(c->rng, 3) == 0) H5Pset_deflate(creation, 9);
    if (h5_draw(c->rng, 3) == 0) H5Pset_fletcher32(creation);
    if (h5_draw(c->rng, 9) == 0) H5Pset_nbit(creation);
    if (h5_draw(c->rng, 9) == 0) H5Pset_scaleoffset(creation, H5Z_SO_INT, 0);
}

static void set_chunks(copier *c, hid_t creation, int rank, const hsize_t *dim)
{
    hsize_t chunk[H5S_MAX_RANK];
    for (int i = 0; i < rank; i++) {
        chunk[i] = dim[i] && h5_draw(c->rng, 2) ? dim[i] : 1 + h5_draw(c->rng, 64);
        if (chunk[i] > UINT32_MAX || h5_draw(c->rng, 4) == 0) chunk[i] = 1;
    }
    H5Pset_chunk(creation, rank, chunk);
    set_filters(c, creation);
}

static void set_virtual(copier *c, hid_t creation, hid_t space)
{
    static const char *const FILES[] = {".", "nothing.h5", "/dev/zero"};
    static const char *const PATHS[] = {"/prefix/past_key_values", "/", "/nothing"};
    H5Pset_virtual(creation, space, DRAW(c->rng, FILES), DRAW(c->rng, PATHS), space);
}

/* Draws the storage of a dataset. *unwritten: no values are written, so HDF5 reads fill values. */
static hid_t draw_storage(copier *c, int rank, const hsize_t *dim, hid_t space, bool *unwritten)
{
    static const char *const FILES[] = {"/dev/zero", "/etc/passwd", "nothing", "input.h5"};
    hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_obj_track_times(creation, false);
    *unwritten = h5_draw(c->rng, 3) == 0;
    H5Pset_alloc_time(creation, H5D_ALLOC_TIME_LATE);
    switch (h5_draw(c->rng, 8)) {
    case 0:
        H5Pset_layout(creation, H5D_COMPACT);
        break;
    case 1:
        H5Pset_external(creation, DRAW(c->rng, FILES), 0, H5F_UNLIMITED);
        *unwritten = true;
        break;
    case 2:
        if (rank) set_virtual(c, creation, space);
        *unwritten = true;
        break;
    case 3:
    case 4:
        if (rank) set_chunks(c, creation, rank, dim);
        break;
    default:
        break;
    }
    return creation;
}

/* values NULL: none are written. */
static hid_t make_dataset(hid_t parent, const char *name, hid_t type, hid_t space, hid_t creation,
                          const void *values)
{
    hid_t data = H5Dcreate2(parent, name, type, space, H5P_DEFAULT, creation, H5P_DEFAULT);
    if (data >= 0 && values) H5Dwrite(data, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values);
    return data;
}

/* Another type, shape or storage; the attributes stay. */
static void lie_about_dataset(copier *c, hid_t from, hid_t parent, const char *name)
{
    const size_t lies = 1 + h5_draw(c->rng, 7);
    hsize_t dim[H5S_MAX_RANK];
    hid_t type = H5Dget_type(from), space = H5Dget_space(from),
          creation = H5Dget_create_plist(from);
    size_t bytes = 0;
    bool unwritten = false;
    void *old = read_old(from, type, space, false, &bytes);
    int rank = h5_shape_of(space, dim);
    if (lies & 1) {
        H5Tclose(type);
        type = h5_draw_type(c->rng);
    }
    if (lies & 2) {
        h5_draw_shape(c->rng, &rank, dim);
        H5Sclose(space);
        space = h5_draw_space(c->rng, rank, dim, (lies & 4) && h5_draw(c->rng, 2));
    }
    if (lies & 6) {
        H5Pclose(creation);
        creation = draw_storage(c, rank, dim, space, &unwritten);
    }
    const hssize_t n = H5Sget_simple_extent_npoints(space);
    void *values = NULL;
    if (!unwritten && n > 0 && n <= H5_MOST_VALUES)
        values = h5_draw_values(c->rng, type, (size_t)n, old, bytes);
    hid_t data = make_dataset(parent, name, type, space, creation, values);
    if (data >= 0) copy_attributes(c, from, data);
    H5Dclose(data);
    free(values);
    free(old);
    H5Pclose(creation);
    H5Sclose(space);
    H5Tclose(type);
}

/* A dataset with the size that is replaced throughout the file; false: it has no such size. */
static bool resize_dataset(copier *c, hid_t from, hid_t parent, const char *name)
{
    hsize_t dim[H5S_MAX_RANK];
    hid_t space = H5Dget_space(from), type = H5Dget_type(from);
    int rank = h5_shape_of(space, dim), changed = 0;
    size_t bytes = 0, count = 1;
    for (int i = 0; i < rank; i++) {
        if (c->size && (int64_t)dim[i] == c->size) {
            dim[i] = (hsize_t)c->other;
            changed++;
        }
        count *= dim[i];
    }
    if (changed) {
        void *old = read_old(from, type, space, false, &bytes);
        void *values = h5_draw_values(c->rng, type, count, old, bytes);
        hid_t resized = H5Screate_simple(rank, dim, NULL);
        hid_t data = make_dataset(parent, name, type, resized, H5P_DEFAULT, values);
        if (data >= 0) copy_attributes(c, from, data);
        H5Dclose(data);
        H5Sclose(resized);
        free(values);
        free(old);
    }
    H5Sclose(space);
    H5Tclose(type);
    return changed > 0;
}

static void copy_dataset(copier *c, hid_t from, hid_t from_parent, hid_t parent, const char *name)
{
    hid_t how = H5Pcreate(H5P_OBJECT_COPY);
    if (!resize_dataset(c, from, parent, name)) {
        H5Pset_copy_object(how, H5O_COPY_WITHOUT_ATTR_FLAG);
        H5Ocopy(from_parent, name, parent, name, how, H5P_DEFAULT);
        hid_t data = H5Dopen2(parent, name, H5P_DEFAULT);
        if (data >= 0) copy_attributes(c, from, data);
        H5Dclose(data);
    }
    H5Pclose(how);
}

/* ---- groups and links ------------------------------------------------------------------------ */

static hid_t make_group(hid_t parent, const char *name)
{
    hid_t creation = H5Pcreate(H5P_GROUP_CREATE);
    H5Pset_link_creation_order(creation, H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED);
    H5Pset_attr_creation_order(creation, H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED);
    H5Pset_obj_track_times(creation, false);
    hid_t group = H5Gcreate2(parent, name, H5P_DEFAULT, creation, H5P_DEFAULT);
    H5Pclose(creation);
    return group;
}

/* Adds a small dataset, or a group, with that name. */
static void make_member(copier *c, hid_t parent, const char *name, bool group)
{
    hsize_t dim[H5S_MAX_RANK] = {1 + h5_draw(c->rng, 8), 1 + h5_draw(c->rng, 8),
                                 1 + h5_draw(c->rng, 4)};
    if (group) {
        hid_t made = make_group(parent, name);
        if (h5_draw(c->rng, 2)) H5Gclose(make_group(made, h5_draw_name(c->rng)));
        H5Gclose(made);
        return;
    }
    hid_t type = h5_draw(c->rng, 2) ? H5Tcopy(H5T_IEEE_F32LE) : h5_draw_type(c->rng);
    hid_t space = h5_draw_space(c->rng, (int)h5_draw(c->rng, 4), dim, false);
    const hssize_t n = H5Sget_simple_extent_npoints(space);
    void *values = h5_draw_values(c->rng, type, n > 0 ? (size_t)n : 0, NULL, 0);
    H5Dclose(make_dataset(parent, name, type, space, H5P_DEFAULT, values));
    free(values);
    H5Sclose(space);
    H5Tclose(type);
}

static void make_link(copier *c, hid_t parent, const char *name)
{
    static const char *const PATHS[] = {
        "/", ".", "nothing", "/encoder", "/prefix/past_key_values", "/prefix", "/weights"};
    static const char *const FILES[] = {"input.h5", "/etc/passwd", "/dev/zero", "nothing.h5"};
    switch (h5_draw(c->rng, 5)) {
    case 0:
        H5Lcreate_soft(DRAW(c->rng, PATHS), parent, name, H5P_DEFAULT, H5P_DEFAULT);
        return;
    case 1: /* to itself */
        H5Lcreate_soft(name, parent, name, H5P_DEFAULT, H5P_DEFAULT);
        return;
    case 2:
        H5Lcreate_external(DRAW(c->rng, FILES), DRAW(c->rng, PATHS), parent, name, H5P_DEFAULT,
                           H5P_DEFAULT);
        return;
    case 3: /* the group is in itself */
        H5Lcreate_hard(parent, ".", parent, name, H5P_DEFAULT, H5P_DEFAULT);
        return;
    default:
        H5Lcreate_hard(parent, DRAW(c->rng, PATHS), parent, name, H5P_DEFAULT, H5P_DEFAULT);
    }
}

static void copy_group(copier *c, hid_t from, hid_t to, int depth);

/* name: may be another name than before. */
static void copy_object(copier *c, hid_t from, const char *old, hid_t to, const char *name,
                        int depth)
{
    hid_t object = H5Oopen(from, old, H5P_DEFAULT);
    if (H5Iget_type(object) == H5I_GROUP) {
        hid_t group = make_group(to, name);
        if (group >= 0) copy_group(c, object, group, depth + 1);
        H5Gclose(group);
    } else if (H5Iget_type(object) == H5I_DATASET) {
        if (strcmp(old, name))
            H5Ocopy(from, old, to, name, H5P_DEFAULT, H5P_DEFAULT);
        else
            copy_dataset(c, object, from, to, name);
    }
    H5Oclose(object);
}

static void lie_about_object(copier *c, hid_t from, const char *name, hid_t to, int depth)
{
    hid_t object = H5Oopen(from, name, H5P_DEFAULT), type;
    const bool data = H5Iget_type(object) == H5I_DATASET;
    char other[NAME];
    switch (h5_draw(c->rng, data ? 16 : 8)) {
    case 0: /* missing */
        break;
    case 1: /* a group for a dataset, a dataset for a group */
        make_member(c, to, name, data);
        break;
    case 2:
    case 3:
        make_link(c, to, name);
        break;
    case 4:
        copy_object(c, from, name, to, h5_draw_name(c->rng), depth);
        break;
    case 5: /* many more */
        copy_object(c, from, name, to, name, depth);
        for (int i = h5_draw(c->rng, 4) ? 1 : MANY; i; i--) {
            snprintf(other, sizeof other, i == 1 ? "%s" : "%.200s%d", h5_draw_name(c->rng), i);
            make_member(c, to, other, h5_draw(c->rng, 4) == 0);
        }
        break;
    case 6: /* a type */
        type = h5_draw_type(c->rng);
        H5Tcommit2(to, name, type, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
        H5Tclose(type);
        break;
    case 7:
        copy_object(c, from, name, to, name, depth);
        type = H5Oopen(to, name, H5P_DEFAULT);
        if (type >= 0) add_attributes(c, type);
        H5Oclose(type);
        break;
    default:
        lie_about_dataset(c, object, to, name);
    }
    H5Oclose(object);
}

static void copy_group(copier *c, hid_t from, hid_t to, int depth)
{
    char name[NAME];
    copy_attributes(c, from, to);
    for (hsize_t i = 0; depth < MOST_DEPTH; i++) {
        if (H5Lget_name_by_idx(from, ".", H5_INDEX_CRT_ORDER, H5_ITER_INC, i, name, sizeof name,
                               H5P_DEFAULT) < 0 &&
            H5Lget_name_by_idx(from, ".", H5_INDEX_NAME, H5_ITER_INC, i, name, sizeof name,
                               H5P_DEFAULT) < 0)
            return;
        if (is_place(c->object_at, ++c->objects))
            lie_about_object(c, from, name, to, depth);
        else
            copy_object(c, from, name, to, name, depth);
    }
}

/* ---- files ----------------------------------------------------------------------------------- */

static bool copy(copier *c, hid_t from, const char *to, hid_t access)
{
    hid_t creation = H5Pcreate(H5P_FILE_CREATE);
    H5Pset_link_creation_order(creation, H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED);
    H5Pset_attr_creation_order(creation, H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED);
    H5Pset_obj_track_times(creation, false);
    hid_t file = H5Fcreate(to, H5F_ACC_TRUNC, creation, access);
    H5Pclose(creation);
    if (file < 0) return false;
    c->objects = c->attributes = 0;
    copy_group(c, from, file, 0);
    return H5Fclose(file) >= 0;
}

/* Mostly the form that kvfold writes, else a newer one. */
static hid_t draw_access(copier *c)
{
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    const H5F_libver_t version = h5_draw(c->rng, 4) ? H5F_LIBVER_V18 : H5F_LIBVER_LATEST;
    H5Pset_libver_bounds(access, version, version);
    H5Pset_fclose_degree(access, H5F_CLOSE_STRONG);
    if (h5_draw(c->rng, 2)) H5Pset_alignment(access, 1, 64);
    return access;
}

static void draw_places(copier *c)
{
    const size_t objects = c->objects, attributes = c->attributes;
    for (size_t i = 0, n = 1 + h5_draw(c->rng, MOST_LIES); i < n; i++)
        if (h5_draw(c->rng, 2))
            c->object_at[i] = 1 + h5_draw(c->rng, objects);
        else
            c->attribute_at[i] = 1 + h5_draw(c->rng, attributes);
}

/* Sizes of the tiny models, of their prefixes and labels. */
static void draw_sizes(copier *c)
{
    static const int64_t SIZES[] = {1, 2, 3, 4, 8, 16, 32, 64, 258};
    static const int64_t OTHERS[] = {0, 1, 2, 3, 5, 7, 16, 100, 300};
    c->size = DRAW(c->rng, SIZES);
    c->other = h5_draw(c->rng, 2) ? c->size + (h5_draw(c->rng, 2) ? 1 : -1) : DRAW(c->rng, OTHERS);
}

bool h5_lies_copy(kvf__rng *rng, const char *from, const char *to)
{
    copier c = {.rng = rng};
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    hid_t file = H5Fopen(from, H5F_ACC_RDONLY, H5P_DEFAULT), access = draw_access(&c);
    bool fine = file >= 0 && copy(&c, file, to, access); /* counts the places */
    if (h5_draw(c.rng, 4))
        draw_places(&c);
    else
        draw_sizes(&c);
    fine = fine && copy(&c, file, to, access);
    H5Pclose(access);
    H5Fclose(file);
    return fine;
}
