/* Storage of cached states. The file is a list of items, {key, floats} and the floats. The header
 * of an item is written last, and zeros end the list, so a later reader finds only complete items,
 * however the writer ended. The file has no name, so it disappears with the processes. */
#include "states_store.h"

#include "infile.h"
#include "states_hooks.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct item_head {
    uint64_t key[2];
    int64_t n; /* number of floats */
} item_head;

/* ---- the file -------------------------------------------------------------------------------- */

int kvf__states_file(kvf_ctx *ctx, const char *folder)
{
    char *path = NULL;
    int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0 || kvf__path_join(ctx, folder, ".kvfold-states-XXXXXX", &path)) return fd;
    fd = mkostemp(path, O_CLOEXEC);
    if (fd >= 0) unlink(path);
    kvf__free(path);
    return fd;
}

/* Returns the inherited file descriptor, or -1. It must refer to a file without a name. */
static int shared_file(void)
{
    const char *text = getenv(KVF__STATES_FD);
    char *end = NULL;
    struct stat about;
    const long fd = text && *text ? strtol(text, &end, 10) : -1;
    if (fd < 0 || *end || fd > INT_MAX || fstat((int)fd, &about)) return -1;
    if (!S_ISREG(about.st_mode) || about.st_nlink) return -1;
    return fcntl((int)fd, F_DUPFD_CLOEXEC, 0);
}

/* Reads or writes n bytes at an offset of the file. */
static bool move_at(const kvf__states_store *s, bool writing, int64_t at, void *bytes, size_t n)
{
    for (size_t done = 0; done < n;) {
        char *next = (char *)bytes + done;
        const off_t from = (off_t)(at + (int64_t)done);
        const ssize_t moved = writing ? pwrite(s->fd, next, n - done, from)
                                      : pread(s->fd, next, n - done, from);
        if (moved < 0 && errno == EINTR) continue;
        if (moved <= 0) return false;
        done += (size_t)moved;
    }
    return true;
}

/* ---- places ---------------------------------------------------------------------------------- */

static kvf__stored *place_of(const kvf__states_store *s, const uint64_t key[2])
{
    for (uint64_t i = key[0];; i++) {
        kvf__stored *at = &s->item[i & (uint64_t)(s->places - 1)];
        if (!at->n || (at->key[0] == key[0] && at->key[1] == key[1])) return at;
    }
}

static kvf_status reserve_places(kvf__states_store *s, int64_t items)
{
    kvf__states_store larger = *s;
    while (larger.places < 2 * (s->n + items) + 2)
        larger.places = larger.places ? 2 * larger.places : 2;
    if (larger.places == s->places) return KVF_OK;
    KVF_TRY(kvf__alloc_array(s->ctx, (size_t)larger.places, sizeof *larger.item, &larger.item));
    for (int64_t i = 0; i < s->places; i++)
        if (s->item[i].n) *place_of(&larger, s->item[i].key) = s->item[i];
    kvf__free(s->item);
    *s = larger;
    return KVF_OK;
}

/* Finds items written by other processes. An invalid header ends the list. */
static kvf_status find_items(kvf__states_store *s)
{
    struct stat about;
    item_head head;
    if (fstat(s->fd, &about)) return KVF_OK;
    const int64_t bytes = about.st_size;
    while (bytes - s->end >= (int64_t)sizeof head &&
           move_at(s, false, s->end, &head, sizeof head)) {
        const int64_t at = s->end + (int64_t)sizeof head;
        if (head.n <= 0 || head.n > (bytes - at) / (int64_t)sizeof(float)) break;
        KVF_TRY(reserve_places(s, 1));
        kvf__stored *place = place_of(s, head.key);
        s->n += !place->n;
        *place = (kvf__stored){.key = {head.key[0], head.key[1]}, .n = head.n, .at = at};
        s->end = at + head.n * (int64_t)sizeof(float);
    }
    s->found = s->n;
    return KVF_OK;
}

/* ---- all of it ------------------------------------------------------------------------------- */

kvf_status kvf__states_store_init(kvf_ctx *ctx, size_t memory, const char *beside,
                                  kvf__states_store *out)
{
    kvf__states_store s = {.ctx = ctx, .limit = memory, .fd = shared_file()};
    if (s.fd >= 0) s.limit = 0;
    kvf_status st = kvf__path_folder(ctx, beside, &s.folder);
    if (!st) st = reserve_places(&s, 0);
    if (!st && s.fd >= 0) st = find_items(&s);
    KVF__GIVE(st, out, s, kvf__states_store_done(&s));
    return st;
}

void kvf__states_store_done(kvf__states_store *s)
{
    if (s->fd >= 0) close(s->fd);
    for (size_t i = 0; i < s->n_blocks; i++)
        kvf__free(s->block[i].x);
    kvf__free(s->block);
    kvf__free(s->item);
    kvf__free(s->folder);
    *s = (kvf__states_store){.fd = -1};
}

kvf_status kvf__states_store_reserve(kvf__states_store *s, int64_t items, int64_t floats)
{
    const size_t left = (s->limit - s->memory) / sizeof(float),
                 bytes = s->n_blocks * sizeof *s->block;
    KVF_TRY(reserve_places(s, items));
    const size_t room = (size_t)floats < left ? (size_t)floats : left;
    if (!room) return KVF_OK;
    KVF_TRY(kvf__grow(s->ctx, &s->block, bytes, bytes + sizeof *s->block));
    kvf__states_block *block = &s->block[s->n_blocks];
    *block = (kvf__states_block){.room = (int64_t)room};
    KVF_TRY(kvf__alloc_array(s->ctx, room, sizeof(float), &block->x));
    s->memory += room * sizeof(float);
    s->n_blocks++;
    return KVF_OK;
}

/* ---- items ----------------------------------------------------------------------------------- */

const kvf__stored *kvf__states_store_find(const kvf__states_store *s, const uint64_t key[2])
{
    const kvf__stored *at = place_of(s, key);
    return at->n ? at : NULL;
}

/* Removes a partially written item. */
static bool give_up(kvf__states_store *s, const kvf__stored *item)
{
    const int why = errno;
    const off_t begin = (off_t)(item->at - (int64_t)sizeof(item_head));
    if (s->fd >= 0 && ftruncate(s->fd, begin)) s->end = item->at; /* its header is zero */
    s->full = true;
    snprintf(
        s->line, sizeof s->line,
        "%s: no space for more cached rows (%s): the remaining rows are computed in every step",
        s->folder, strerror(why));
    return false;
}

bool kvf__states_store_begin(kvf__states_store *s, const uint64_t key[2], int64_t n,
                             kvf__stored *out)
{
    *out = (kvf__stored){.key = {key[0], key[1]}, .n = n};
    if (s->full || 2 * (s->n + 1) > s->places) return false;
    for (size_t i = 0; i < s->n_blocks; i++) {
        kvf__states_block *b = &s->block[i];
        if (b->room - b->used < n) continue;
        out->x = b->x + b->used;
        b->used += n;
        return true;
    }
    out->at = s->end + (int64_t)sizeof(item_head);
    if (s->fd < 0) s->fd = kvf__states_file(s->ctx, s->folder);
    return s->fd >= 0 || give_up(s, out);
}

bool kvf__states_store_put(kvf__states_store *s, const kvf__stored *item, int64_t from,
                           const float *x, int64_t n)
{
    const size_t bytes = (size_t)n * sizeof *x;
    if (item->x) memcpy(item->x + from, x, bytes);
    return item->x || move_at(s, true, item->at + from * (int64_t)sizeof *x, (void *)x, bytes) ||
           give_up(s, item);
}

bool kvf__states_store_end(kvf__states_store *s, const kvf__stored *item)
{
    item_head head = {.key = {item->key[0], item->key[1]}, .n = item->n};
    if (!item->x && !move_at(s, true, s->end, &head, sizeof head)) return give_up(s, item);
    if (!item->x) s->end = item->at + item->n * (int64_t)sizeof(float);
    *place_of(s, item->key) = *item;
    s->n++;
    return true;
}

bool kvf__states_store_get(const kvf__states_store *s, const kvf__stored *item, int64_t from,
                           float *x, int64_t n)
{
    const size_t bytes = (size_t)n * sizeof *x;
    if (item->x) memcpy(x, item->x + from, bytes);
    return item->x || move_at(s, false, item->at + from * (int64_t)sizeof *x, x, bytes);
}
