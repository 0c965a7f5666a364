/* Groups and links. Objects are opened by known name and through hard links only: a soft or
 * external link can point at any file of the machine. */
#include "h5_raw.h"

#include <string.h>

enum { MAX_NAME = 1024, MAX_COMPACT = 4096 };

/* Groups keep the order in which children and attributes were made, all in the (checksummed) object
 * header. */
static hid_t make_creation(void)
{
    hid_t creation = H5Pcreate(H5P_GROUP_CREATE);

    H5Pset_link_creation_order(creation, H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED);
    H5Pset_attr_creation_order(creation, H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED);
    H5Pset_attr_phase_change(creation, MAX_COMPACT, 0);
    H5Pset_obj_track_times(creation, false);
    return creation;
}

kvf_status kvf__h5_group_create(kvf__h5 *h5, kvf__h5_id parent, const char *name, kvf__h5_id *out)
{
    hid_t creation = make_creation();
    hid_t group = H5Gcreate2(parent, name, H5P_DEFAULT, creation, H5P_DEFAULT);
    kvf_status st = KVF_OK;

    if (group < 0)
        st = kvf__h5_broken(h5, parent, "cannot make the group \"%s\"", name);
    else
        *out = group;
    H5Pclose(creation);
    return st;
}

kvf_status kvf__h5_has(kvf__h5 *h5, kvf__h5_id parent, const char *name, bool *out)
{
    htri_t there = H5Lexists(parent, name, H5P_DEFAULT);

    if (there < 0) return kvf__h5_broken(h5, parent, "cannot look for \"%s\"", name);
    *out = there > 0;
    return KVF_OK;
}

static kvf_status check_link(kvf__h5 *h5, kvf__h5_id parent, const char *name, const char *want)
{
    H5L_info_t info;
    const char *kind;
    bool there = false;

    KVF_TRY(kvf__h5_has(h5, parent, name, &there));
    if (!there) return kvf__h5_fail(h5, parent, KVF_EFORMAT, "%s \"%s\" is missing", want, name);
    if (H5Lget_info(parent, name, &info, H5P_DEFAULT) < 0)
        return kvf__h5_broken(h5, parent, "cannot look at \"%s\"", name);
    if (info.type == H5L_TYPE_HARD) return KVF_OK;
    kind = info.type == H5L_TYPE_SOFT       ? "a soft"
           : info.type == H5L_TYPE_EXTERNAL ? "an external"
                                            : "a user-defined";
    return kvf__h5_fail(h5, parent, KVF_EFORMAT, "\"%s\" is %s link, want the %s itself", name,
                        kind, want);
}

kvf_status kvf__h5_child_open(kvf__h5 *h5, kvf__h5_id parent, const char *name, const char *want,
                              kvf__h5_id *out)
{
    H5I_type_t type = strcmp(want, "group") == 0 ? H5I_GROUP : H5I_DATASET;
    hid_t id;

    KVF_TRY(check_link(h5, parent, name, want));
    id = H5Oopen(parent, name, H5P_DEFAULT);
    if (id < 0) return kvf__h5_broken(h5, parent, "cannot open \"%s\"", name);
    if (H5Iget_type(id) != type) {
        H5Oclose(id);
        return kvf__h5_fail(h5, parent, KVF_EFORMAT, "\"%s\" is no %s", name, want);
    }
    *out = id;
    return KVF_OK;
}

kvf_status kvf__h5_group_open(kvf__h5 *h5, kvf__h5_id parent, const char *name, kvf__h5_id *out)
{
    return kvf__h5_child_open(h5, parent, name, "group", out);
}

kvf_status kvf__h5_child_count(kvf__h5 *h5, kvf__h5_id group, size_t *out)
{
    H5G_info_t info;

    if (H5Gget_info(group, &info) < 0) return kvf__h5_broken(h5, group, "cannot list the group");
    *out = (size_t)info.nlinks;
    return KVF_OK;
}

static H5_index_t index_of(kvf__h5_id group)
{
    hid_t creation = H5Gget_create_plist(group);
    unsigned order = 0;

    H5Pget_link_creation_order(creation, &order);
    H5Pclose(creation);
    return order & H5P_CRT_ORDER_TRACKED ? H5_INDEX_CRT_ORDER : H5_INDEX_NAME;
}

kvf_status kvf__h5_child_name(kvf__h5 *h5, kvf__h5_id group, size_t index, char **out)
{
    char name[MAX_NAME];
    ssize_t n = H5Lget_name_by_idx(group, ".", index_of(group), H5_ITER_INC, index, name,
                                   sizeof name, H5P_DEFAULT);

    if (n < 0) return kvf__h5_broken(h5, group, "cannot list the group");
    if ((size_t)n >= sizeof name)
        return kvf__h5_fail(h5, group, KVF_EFORMAT, "a name of %zd bytes, want at most %zu", n,
                            sizeof name - 1);
    return kvf__strdup(h5->ctx, name, out);
}

void kvf__h5_release(kvf__h5_id *id)
{
    if (*id >= 0) H5Oclose(*id);
    *id = KVF__H5_NONE;
}
