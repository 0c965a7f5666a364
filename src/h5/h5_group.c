/* Groups and links. Objects are opened by known name and through hard links only, because a soft or
 * external link can point at any file of the machine. */
#include "h5_raw.h"
#include "head_values.h"

#include <string.h>

enum { MAX_COMPACT = 4096 };

hid_t kvf__h5_creation(hid_t class)
{
    hid_t creation = H5Pcreate(class);

    H5Pset_link_creation_order(creation, H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED);
    H5Pset_attr_creation_order(creation, H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED);
    H5Pset_attr_phase_change(creation, MAX_COMPACT, 0);
    H5Pset_obj_track_times(creation, false);
    return creation;
}

kvf__h5_id kvf__h5_group_create(kvf__h5 *h5, kvf__h5_id parent, const char *name)
{
    if (h5->status) return KVF__H5_NONE;
    hid_t creation = kvf__h5_creation(H5P_GROUP_CREATE);
    hid_t group = H5Gcreate2(parent, name, H5P_DEFAULT, creation, H5P_DEFAULT);
    if (group < 0) kvf__h5_broken(h5, parent, "cannot make the group \"%s\"", name);
    H5Pclose(creation);
    return group;
}

bool kvf__h5_has(kvf__h5 *h5, kvf__h5_id parent, const char *name)
{
    htri_t there = h5->status ? 0 : H5Lexists(parent, name, H5P_DEFAULT);

    if (there < 0) kvf__h5_broken(h5, parent, "cannot look for \"%s\"", name);
    return there > 0;
}

static void check_link(kvf__h5 *h5, kvf__h5_id parent, const char *name, const char *want)
{
    H5L_info_t info;

    if (!kvf__h5_has(h5, parent, name))
        kvf__h5_fail(h5, parent, KVF_EFORMAT, "%s \"%s\" is missing", want, name);
    if (h5->status) return;
    if (H5Lget_info(parent, name, &info, H5P_DEFAULT) < 0) {
        kvf__h5_broken(h5, parent, "cannot look at \"%s\"", name);
        return;
    }
    if (info.type == H5L_TYPE_HARD) return;
    const char *kind = info.type == H5L_TYPE_SOFT       ? "a soft"
                       : info.type == H5L_TYPE_EXTERNAL ? "an external"
                                                        : "a user-defined";
    kvf__h5_fail(h5, parent, KVF_EFORMAT, "\"%s\" is %s link, want the %s itself", name, kind,
                 want);
}

kvf__h5_id kvf__h5_child_open(kvf__h5 *h5, kvf__h5_id parent, const char *name, const char *want)
{
    H5I_type_t type = strcmp(want, "group") == 0 ? H5I_GROUP : H5I_DATASET;
    kvf__h5_id id = KVF__H5_NONE;

    check_link(h5, parent, name, want);
    if (h5->status) return id;
    id = H5Oopen(parent, name, H5P_DEFAULT);
    if (id < 0)
        kvf__h5_broken(h5, parent, "cannot open \"%s\"", name);
    else if (H5Iget_type(id) != type) {
        kvf__h5_release(&id);
        kvf__h5_fail(h5, parent, KVF_EFORMAT, "\"%s\" is no %s", name, want);
    }
    return id;
}

kvf__h5_id kvf__h5_group_open(kvf__h5 *h5, kvf__h5_id parent, const char *name)
{
    return kvf__h5_child_open(h5, parent, name, "group");
}

size_t kvf__h5_child_count(kvf__h5 *h5, kvf__h5_id group)
{
    H5G_info_t info = {0};

    if (!h5->status && H5Gget_info(group, &info) < 0)
        kvf__h5_broken(h5, group, "cannot list the group");
    return h5->status ? 0 : (size_t)info.nlinks;
}

H5_index_t kvf__h5_index(hid_t group, herr_t (*order_of)(hid_t creation, unsigned *order))
{
    hid_t creation = H5Gget_create_plist(group);
    unsigned order = 0;

    order_of(creation, &order);
    H5Pclose(creation);
    return order & H5P_CRT_ORDER_TRACKED ? H5_INDEX_CRT_ORDER : H5_INDEX_NAME;
}

kvf__h5_names kvf__h5_names_begin(kvf__h5 *h5, size_t n)
{
    kvf__h5_names list = {.h5 = h5, .most = n};

    KVF__H5_TRY(h5, kvf__alloc_array(h5->ctx, n, sizeof *list.names, &list.names));
    return list;
}

herr_t kvf__h5_add_name(kvf__h5_names *list, hid_t at, const char *name)
{
    const size_t bytes = strlen(name);

    if (list->n == list->most) return 1; /* one more than counted: an error at the end */
    if (bytes >= KVF__H5_NAME)
        kvf__h5_fail(list->h5, at, KVF_EFORMAT, "a name has %zu bytes, want at most %d", bytes,
                     KVF__H5_NAME - 1);
    KVF__H5_TRY(list->h5, kvf__strdup(list->h5->ctx, name, &list->names[list->n]));
    list->n += !list->h5->status;
    return list->h5->status != KVF_OK;
}

char **kvf__h5_names_end(kvf__h5_names *list, hid_t at)
{
    if (list->n != list->most)
        kvf__h5_fail(list->h5, at, KVF_EFORMAT, "has %zu names listed, but %zu counted", list->n,
                     list->most);
    if (!list->h5->status) return list->names;
    kvf__strings_free(list->names, list->n);
    return NULL;
}

static herr_t add_child(hid_t group, const char *name, const H5L_info_t *info, void *list)
{
    (void)info;
    return kvf__h5_add_name(list, group, name);
}

char **kvf__h5_child_names(kvf__h5 *h5, kvf__h5_id group, size_t n)
{
    kvf__h5_names list = kvf__h5_names_begin(h5, n);
    const H5_index_t index = h5->status ? H5_INDEX_NAME
                                        : kvf__h5_index(group, H5Pget_link_creation_order);

    if (!h5->status && H5Literate(group, index, H5_ITER_INC, NULL, add_child, &list) < 0)
        kvf__h5_broken(h5, group, "cannot list the group");
    return kvf__h5_names_end(&list, group);
}

void kvf__h5_release(kvf__h5_id *id)
{
    if (*id >= 0) H5Oclose(*id);
    *id = KVF__H5_NONE;
}
