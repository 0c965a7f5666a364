/* HDF5 files: creating, opening, closing.
 *
 * Files are written with bounds (V18, V18): superblock 2, checksummed metadata, readable by every
 * HDF5 since 1.8 and reopenable after a kill. No times are stored, so equal content gives equal
 * bytes. While one of our files is open, HDF5 neither prints nor loads filter plug-ins, and none of
 * our other threads calls it (h5_lock.c). The host's settings are restored at close. */
#include "h5_raw.h"
#include "head_values.h"
#include "sandbox.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/* Weights of a base are mapped, so they start at cache lines. */
enum { ALIGNMENT = 64 };

/* Takes HDF5's lock, until close. */
static void enter(kvf__h5 *h5)
{
    if (h5->status) return;
    h5->locked = kvf__h5_enter();
    if (!h5->locked)
        kvf__h5_fail(h5, KVF__H5_NONE, KVF_EUSAGE,
                     "this process was forked while another thread had an HDF5 file open: open "
                     "files before the fork, or after an exec");
}

/* No file lock: a file is renamed into place and never changed, and locks often fail on NFS. */
static hid_t make_access(bool writing, bool aligned)
{
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);

    H5Pset_fclose_degree(access, H5F_CLOSE_STRONG);
    if (writing) H5Pset_libver_bounds(access, H5F_LIBVER_V18, H5F_LIBVER_V18);
    if (aligned) H5Pset_alignment(access, 1, ALIGNMENT);
#if H5_VERSION_GE(1, 10, 7)
    H5Pset_file_locking(access, false, true);
#endif
    return access;
}

/* Creates the temporary, and opens HDF5 on its descriptor. */
static void make_temp(kvf__h5 *h5, hid_t access)
{
    h5->status = kvf__alloc(h5->ctx, sizeof *h5->failure, &h5->failure);
    if (h5->status) return;
    if (!kvf__h5_use_fd(access, h5->out.fd, h5->failure, &h5->driver))
        kvf__h5_broken(h5, KVF__H5_NONE, "cannot make the file");
}

enum { FORMAT = 1, FEATURES = 7 };
/* Names by bit of kvf__feature, sorted. */
static const char *const NAMES[FEATURES] = {
    "encoder-decoder", "heads-by-layer", "infix", "layer-mask", "log-weight", "neurons", "state"};

static void write_features(kvf__h5 *h5)
{
    char *names[FEATURES];
    size_t n = 0;

    for (int i = 0; i < FEATURES; i++)
        if (h5->features & 1U << i) names[n++] = (char *)NAMES[i];
    if (n) kvf__h5_texts_write(h5, h5->file, "features", names, n);
}

static void read_features(kvf__h5 *h5)
{
    size_t n = 0;

    if (!kvf__h5_has(h5, h5->file, "features")) return;
    char **names = kvf__h5_texts_read(h5, h5->file, "features", &n);
    for (size_t i = 0; i < n && !h5->status; i++) {
        int known = 0;
        while (known < FEATURES && strcmp(names[i], NAMES[known]))
            known++;
        if (known == FEATURES)
            kvf__h5_fail(h5, h5->file, KVF_EUNSUPPORTED,
                         "needs feature \"%.64s\", which this kvfold does not know; use a newer "
                         "kvfold",
                         names[i]);
        h5->features |= 1U << known;
    }
    kvf__strings_free(names, n);
}

kvf_json *kvf__h5_features(const kvf__h5 *h5)
{
    kvf_json *list = kvf_json_array();

    for (int i = 0; i < FEATURES; i++)
        if (h5->features & 1U << i) kvf_json_add(list, kvf_json_new_str(NAMES[i]));
    return list;
}

void kvf__h5_check_features(kvf__h5 *h5, unsigned found)
{
    for (int i = 0; i < FEATURES; i++)
        if ((h5->features ^ found) & 1U << i)
            kvf__h5_fail(h5, h5->file, KVF_EFORMAT, "/features %s \"%s\", which the file %s",
                         found & 1U << i ? "lacks" : "has", NAMES[i],
                         found & 1U << i ? "uses" : "does not use");
}

kvf__h5 kvf__h5_create(kvf_ctx *ctx, const char *path, bool force, const char *kind,
                       unsigned features)
{
    kvf__h5 h5 = {.ctx = ctx, .path = path, .file = KVF__H5_NONE};

    h5.status = kvf__outfile_begin(ctx, path, force, &h5.out);
    enter(&h5);
    if (h5.status) return h5;
    hid_t access = make_access(true, strcmp(kind, "base") == 0);
    hid_t creation = kvf__h5_creation(H5P_FILE_CREATE);
    make_temp(&h5, access);
    if (!h5.status) h5.file = H5Fcreate(h5.out.temp, H5F_ACC_TRUNC, creation, access);
    if (h5.file < 0) kvf__h5_broken(&h5, KVF__H5_NONE, "cannot make the file");
    H5Pclose(creation);
    H5Pclose(access);
    kvf__h5_put_text(&h5, h5.file, "kvfold_kind", kind);
    kvf__h5_put_i64(&h5, h5.file, "kvfold_format", FORMAT);
    kvf__h5_put_text(&h5, h5.file, "kvfold_version", KVF_VERSION);
    h5.features = features;
    write_features(&h5);
    return h5;
}

/* Checks that the file is one of ours, of the wanted kind; other root attributes are read later. */
static void check_heading(kvf__h5 *h5, const char *want)
{
    char *kind = NULL;

    if (!kvf__h5_has_attr(h5, h5->file, "kvfold_kind"))
        kvf__h5_fail(h5, h5->file, KVF_EFORMAT,
                     "not a kvfold file: HDF5, but without the attribute kvfold_kind");
    kind = kvf__h5_get_text(h5, h5->file, "kvfold_kind");
    const int64_t format = kvf__h5_get_i64(h5, h5->file, "kvfold_format");
    if (format != FORMAT)
        kvf__h5_fail(h5, h5->file, KVF_EUNSUPPORTED, "kvfold_format is %lld, want %d",
                     (long long)format, FORMAT);
    read_features(h5);
    if (want && kind && strcmp(kind, want) != 0)
        kvf__h5_fail(h5, h5->file, KVF_EFORMAT, "is a %s file (kvfold_kind), want a %s file", kind,
                     want);
    kvf__free(kind);
}

kvf__h5 kvf__h5_open(kvf_ctx *ctx, const char *path, const char *kind)
{
    kvf__h5 h5 = {.ctx = ctx, .path = path, .file = KVF__H5_NONE};
    haddr_t end = 0;

    h5.status = kvf__mapfile_open(ctx, path, &h5.map);
    KVF__H5_TRY(&h5, kvf__h5_sandbox(ctx, &h5.map));
    enter(&h5);
    if (h5.status) return h5;
    h5.file_bytes = h5.map.n;
    hid_t access = make_access(false, false);
    if (kvf__h5_use_fd(access, h5.map.fd, NULL, &h5.driver))
        h5.file = H5Fopen(path, H5F_ACC_RDONLY, access);
    if (h5.file < 0) kvf__h5_broken(&h5, KVF__H5_NONE, "cannot open");
    H5Pclose(access);
    h5.sealed = H5Fget_eoa(h5.file, &end) >= 0 && end < h5.file_bytes;
    check_heading(&h5, kind);
    return h5;
}

static herr_t close_file(kvf__h5 *h5)
{
    herr_t closed = h5->file >= 0 ? H5Fclose(h5->file) : 0;

    h5->file = KVF__H5_NONE;
    return closed;
}

/* Commits the whole file to disk under its name. */
static void commit(kvf__h5 *h5)
{
    if (h5->status) return;
    if (close_file(h5) < 0) kvf__h5_broken(h5, KVF__H5_NONE, "cannot finish the file");
    kvf__h5_check_written(h5, KVF__H5_NONE, "cannot finish the file");
    KVF__H5_TRY(h5, kvf__h5_seal(h5->ctx, h5->out.fd, h5->path));
    /* commit closes the original */
    const int fd = h5->status ? -1 : fcntl(h5->out.fd, F_DUPFD_CLOEXEC, 0);
    KVF__H5_TRY(h5, kvf__outfile_commit(h5->ctx, &h5->out));
    if (!h5->status && fd >= 0) kvf__sandbox_trust(h5->ctx, fd);
    if (fd >= 0) close(fd);
}

kvf_status kvf__h5_close(kvf__h5 *h5)
{
    if (h5->out.temp) commit(h5);
    kvf_status st = h5->status;
    close_file(h5);
    kvf__h5_release_driver(&h5->driver);
    kvf__free(h5->failure);
    kvf__mapfile_close(&h5->map);
    kvf__outfile_abort(&h5->out);
    if (h5->locked) kvf__h5_leave(h5->broken);
    *h5 = KVF__H5_NOTHING;
    return st;
}

const char *kvf__h5_version(char buf[32])
{
    unsigned major = 0, minor = 0, release = 0;
    const bool locked = kvf__h5_enter();

    H5get_libversion(&major, &minor, &release);
    if (locked) kvf__h5_leave(false);
    snprintf(buf, 32, "%u.%u.%u", major, minor, release);
    return buf;
}
