/* TensorBoard's event files: framing of TFRecord, and the few messages of event.proto that scalars
 * and texts need, written by hand.
 *
 *     record   u64 length | u32 masked crc of it | message | u32 masked crc of the message
 *     Event    1 double wall_time, 2 int64 step, 3 string file_version, 5 Summary, 7 SessionLog
 *     Value    1 string tag, 2 float simple_value, 8 TensorProto, 9 SummaryMetadata
 *
 * A session log with status START at step s makes readers drop all earlier events from step s on. A
 * resumed run thus does not show twice the steps after its last save. */
#include "event_file.h"
#include "infile.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- framing --------------------------------------------------------------------------------- */

/* Computes CRC-32C (Castagnoli) bit by bit, since a record has only a few hundred bytes. */
static uint32_t crc32c(const void *bytes, size_t n)
{
    const uint8_t *at = bytes;
    uint32_t crc = 0xFFFFFFFF;
    for (size_t i = 0; i < n; i++) {
        crc ^= at[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78 : 0);
    }
    return ~crc;
}

static kvf_status add_fixed(kvf_ctx *ctx, kvf__buf *out, uint64_t value, size_t bytes)
{
    uint8_t little[8];
    for (size_t i = 0; i < bytes; i++)
        little[i] = (uint8_t)(value >> 8 * i);
    return kvf__buf_add(ctx, out, little, bytes);
}

/* Appends a masked crc: a plain crc would be weaker over bytes that contain crcs. */
static kvf_status add_crc(kvf_ctx *ctx, kvf__buf *out, const void *bytes, size_t n)
{
    uint32_t crc = crc32c(bytes, n);
    return add_fixed(ctx, out, (crc >> 15 | crc << 17) + 0xA282EAD8u, 4);
}

kvf_status kvf__event_record(kvf_ctx *ctx, kvf__buf *out, const void *message, size_t n)
{
    size_t begin = out->n;
    KVF_TRY(add_fixed(ctx, out, n, 8));
    KVF_TRY(add_crc(ctx, out, out->data + begin, 8));
    KVF_TRY(kvf__buf_add(ctx, out, message, n));
    return add_crc(ctx, out, message, n);
}

/* ---- protobuf -------------------------------------------------------------------------------- */

enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

static kvf_status add_varint(kvf_ctx *ctx, kvf__buf *out, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        KVF_TRY(kvf__buf_addc(ctx, out, (char)(value | 0x80)));
    return kvf__buf_addc(ctx, out, (char)value);
}

static kvf_status add_key(kvf_ctx *ctx, kvf__buf *out, unsigned field, unsigned wire)
{
    return add_varint(ctx, out, field << 3 | wire);
}

static kvf_status put_int(kvf_ctx *ctx, kvf__buf *out, unsigned field, int64_t value)
{
    KVF_TRY(add_key(ctx, out, field, WIRE_VARINT));
    return add_varint(ctx, out, (uint64_t)value);
}

static kvf_status put_double(kvf_ctx *ctx, kvf__buf *out, unsigned field, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    KVF_TRY(add_key(ctx, out, field, WIRE_64));
    return add_fixed(ctx, out, bits, 8);
}

static kvf_status put_float(kvf_ctx *ctx, kvf__buf *out, unsigned field, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    KVF_TRY(add_key(ctx, out, field, WIRE_32));
    return add_fixed(ctx, out, bits, 4);
}

static kvf_status put_bytes(kvf_ctx *ctx, kvf__buf *out, unsigned field, const void *bytes,
                            size_t n)
{
    KVF_TRY(add_key(ctx, out, field, WIRE_BYTES));
    KVF_TRY(add_varint(ctx, out, n));
    return kvf__buf_add(ctx, out, bytes, n);
}

static kvf_status put_text(kvf_ctx *ctx, kvf__buf *out, unsigned field, const char *text)
{
    return put_bytes(ctx, out, field, text, strlen(text));
}

/* ---- events ---------------------------------------------------------------------------------- */

/* step < 0: none. */
static kvf_status begin_event(kvf_ctx *ctx, kvf__event_file *f, double wall, int64_t step)
{
    f->event.n = f->summary.n = f->record.n = 0;
    KVF_TRY(put_double(ctx, &f->event, 1, wall));
    return step < 0 ? KVF_OK : put_int(ctx, &f->event, 2, step);
}

static kvf_status write_event(kvf_ctx *ctx, kvf__event_file *f)
{
    KVF_TRY(kvf__event_record(ctx, &f->record, f->event.data, f->event.n));
    return kvf__appendfile_add(ctx, &f->file, f->record.data, f->record.n);
}

/* Appends the current value to the summary. */
static kvf_status add_value(kvf_ctx *ctx, kvf__event_file *f)
{
    return put_bytes(ctx, &f->summary, 1, f->value.data, f->value.n);
}

static kvf_status write_summary(kvf_ctx *ctx, kvf__event_file *f)
{
    KVF_TRY(put_bytes(ctx, &f->event, 5, f->summary.data, f->summary.n));
    return write_event(ctx, f);
}

kvf_status kvf__event_file_scalars(kvf_ctx *ctx, kvf__event_file *f, double wall, int64_t step,
                                   const kvf__event_scalar *scalars, size_t n)
{
    KVF_TRY(begin_event(ctx, f, wall, step));
    for (size_t i = 0; i < n; i++) {
        f->value.n = 0;
        KVF_TRY(put_text(ctx, &f->value, 1, scalars[i].tag));
        KVF_TRY(put_float(ctx, &f->value, 2, (float)scalars[i].value));
        KVF_TRY(add_value(ctx, f));
    }
    return write_summary(ctx, f);
}

/* Appends TensorProto {1 dtype, 2 shape, 8 string_val} with one string: DT_STRING, no
 * dimensions. */
static kvf_status put_tensor(kvf_ctx *ctx, kvf__buf *value, const char *text)
{
    kvf__buf tensor = {0};
    kvf_status st = put_int(ctx, &tensor, 1, 7);
    if (!st) st = put_bytes(ctx, &tensor, 2, "", 0);
    if (!st) st = put_text(ctx, &tensor, 8, text);
    if (!st) st = put_bytes(ctx, value, 8, tensor.data, tensor.n);
    kvf__buf_done(&tensor);
    return st;
}

kvf_status kvf__event_file_text(kvf_ctx *ctx, kvf__event_file *f, double wall, int64_t step,
                                const char *tag, const char *text)
{
    static const char METADATA[] = "\x0A\x06\x0A\x04text"; /* {1 PluginData {1 plugin_name}} */
    KVF_TRY(begin_event(ctx, f, wall, step));
    f->value.n = 0;
    KVF_TRY(put_text(ctx, &f->value, 1, tag));
    KVF_TRY(put_tensor(ctx, &f->value, text));
    KVF_TRY(put_text(ctx, &f->value, 9, METADATA));
    KVF_TRY(add_value(ctx, f));
    return write_summary(ctx, f);
}

/* ---- the file -------------------------------------------------------------------------------- */

static const char STEM[] = "events.out.tfevents.";

static kvf_status make_folder(kvf_ctx *ctx, const char *path)
{
    if (mkdir(path, 0777) == 0 || (errno == EEXIST && kvf__is_dir(path))) return KVF_OK;
    return kvf__fail(ctx, KVF_EIO, "%s: cannot create the folder: %s", path, strerror(errno));
}

/* Finds a time later than those of the folder's files: names must sort by time even if clocks go
 * back or two runs begin within a second. */
static kvf_status free_time(kvf_ctx *ctx, const char *folder, long long *time)
{
    struct dirent *entry;
    DIR *dir = opendir(folder);
    if (!dir) return kvf__fail(ctx, KVF_EIO, "%s: cannot open: %s", folder, strerror(errno));
    while ((entry = readdir(dir)) != NULL) {
        if (strncmp(entry->d_name, STEM, sizeof STEM - 1)) continue;
        long long taken = strtoll(entry->d_name + sizeof STEM - 1, NULL, 10);
        if (taken >= *time && taken < 9999999999) *time = taken + 1;
    }
    closedir(dir);
    return KVF_OK;
}

static kvf_status create(kvf_ctx *ctx, const char *folder, double wall, kvf__appendfile *out)
{
    char host[65] = "";
    char *name = NULL, *path = NULL;
    long long time = (long long)wall;
    KVF_TRY(make_folder(ctx, folder));
    KVF_TRY(free_time(ctx, folder, &time));
    if (gethostname(host, sizeof host - 1) || !*host || strchr(host, '/'))
        strcpy(host, "localhost");
    kvf_status st = kvf__asprintf(ctx, &name, "%s%010lld.%s.%ld.0", STEM, time, host,
                                  (long)getpid());
    if (!st) st = kvf__path_join(ctx, folder, name, &path);
    if (!st) st = kvf__appendfile_open(ctx, path, KVF__APPEND_NEW, out);
    kvf__free(name);
    kvf__free(path);
    return st;
}

static kvf_status write_start(kvf_ctx *ctx, kvf__event_file *f, double wall, int64_t first_step)
{
    KVF_TRY(begin_event(ctx, f, wall, -1));
    KVF_TRY(put_text(ctx, &f->event, 3, "brain.Event:2"));
    KVF_TRY(write_event(ctx, f));
    KVF_TRY(begin_event(ctx, f, wall, first_step));
    KVF_TRY(put_bytes(ctx, &f->event, 7, "\x08\x01", 2)); /* SessionLog {1 status = START} */
    return write_event(ctx, f);
}

kvf_status kvf__event_file_open(kvf_ctx *ctx, const char *folder, double wall, int64_t first_step,
                                kvf__event_file *out)
{
    kvf__event_file f = {0};
    kvf_status st = create(ctx, folder, wall, &f.file);
    if (!st) st = write_start(ctx, &f, wall, first_step);
    KVF__GIVE(st, out, f, kvf__event_file_close(&f));
    return st;
}

void kvf__event_file_close(kvf__event_file *f)
{
    kvf__appendfile_close(&f->file);
    kvf__buf_done(&f->value);
    kvf__buf_done(&f->summary);
    kvf__buf_done(&f->event);
    kvf__buf_done(&f->record);
}
